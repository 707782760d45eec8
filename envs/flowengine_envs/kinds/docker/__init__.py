"""`docker`: commands, each in a container of the image that it names."""
