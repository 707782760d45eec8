"""What people read of executions, waits, failures and environments."""
