"""`shell`: a shell on a terminal that persists across steps."""
