"""Messages: signals from outside, and messages between executions."""
