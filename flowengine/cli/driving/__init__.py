"""Driving executions: their progress, and prompts for the user's decisions."""
