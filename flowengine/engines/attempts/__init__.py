"""Attempts of steps: what runs them, what they may use, how they fail, what they leave."""
