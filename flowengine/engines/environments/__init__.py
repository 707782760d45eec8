"""Environments of executions: what a step asks for is opened, kept for its scope, and released."""
