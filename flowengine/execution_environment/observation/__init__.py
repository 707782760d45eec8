"""What watchers are told: events and metrics."""
