"""Messages: signals from outside, and what executions send to each other."""
