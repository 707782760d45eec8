"""How what is at work is withdrawn, cleaned up after and undone."""
