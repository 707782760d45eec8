"""Executions in memory: state, timers, shared locks, and replay of their journals."""
