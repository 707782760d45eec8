"""What survives: events, snapshots, waits, artifacts."""
