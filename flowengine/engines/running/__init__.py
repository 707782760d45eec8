"""Driving executions: events are committed and commands carried out until nothing is left to do."""
