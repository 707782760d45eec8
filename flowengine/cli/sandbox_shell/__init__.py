"""Using a shell of an environment: from a script or at a terminal."""
