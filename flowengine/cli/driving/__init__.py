"""Driving executions: what is shown meanwhile, and what the user is asked."""
