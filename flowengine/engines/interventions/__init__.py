"""What operators do to an execution: fork, retry, upgrade, cancel."""
