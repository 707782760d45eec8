"""Environments of executions: opened for steps, kept for their scope, and released."""
