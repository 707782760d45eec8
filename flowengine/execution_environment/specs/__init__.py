"""Specs of environments, and the providers and sandboxes that they can name."""
