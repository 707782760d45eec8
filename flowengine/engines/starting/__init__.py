"""Starting executions: inputs are checked, the id is reserved, the first event is recorded."""
