"""What one manager knows: specs, what was opened for each, its state, and who holds it."""
