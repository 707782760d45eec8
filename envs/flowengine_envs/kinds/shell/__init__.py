"""`shell`: a shell on a terminal that lasts from step to step."""
