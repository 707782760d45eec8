"""The tasks that take environments from one state to the next, for everybody who needs them."""
