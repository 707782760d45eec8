"""The tasks that move environments from one state to the next, shared by all their users."""
