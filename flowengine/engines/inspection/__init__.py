"""Inspection of executions: lists, history, differences, and why one makes no progress."""
