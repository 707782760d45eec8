"""How executions start: inputs checked, the id reserved, the first event recorded."""
