"""Durable storage of executions: events, snapshots, waits and artifacts."""
