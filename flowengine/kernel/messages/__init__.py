"""Messages between executions, and tokens created by messages and state writes."""
