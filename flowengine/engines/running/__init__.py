"""Driving executions: events are committed, commands carried out, until nothing moves."""
