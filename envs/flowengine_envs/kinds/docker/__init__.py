"""`docker`: commands, each in a container of a chosen image."""
