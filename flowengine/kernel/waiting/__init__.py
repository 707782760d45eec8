"""Waits of executions: for times, signals, conditions and human decisions."""
