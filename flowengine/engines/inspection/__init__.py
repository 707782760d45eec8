"""Looking at executions: lists, history, differences, and why one does not move."""
