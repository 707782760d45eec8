"""Executions, waits, failures and environments in readable form."""
