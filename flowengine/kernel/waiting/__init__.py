"""What executions wait for: time, signals, conditions, people."""
