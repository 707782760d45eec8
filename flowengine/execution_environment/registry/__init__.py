"""What is on disk: an entry for everything that is open, and the folders of environments."""
