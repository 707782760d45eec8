"""Recovery of an execution after a crash, and restart of failed work."""
