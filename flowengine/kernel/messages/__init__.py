"""Messages between executions, and the tokens that messages and writes begin."""
