"""How executions, waits, failures and environments are shown to people."""
