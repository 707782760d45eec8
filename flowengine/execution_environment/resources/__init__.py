"""Opening and closing one resource through its provider."""
