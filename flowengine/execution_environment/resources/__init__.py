"""Opening and closing of one resource through its provider."""
