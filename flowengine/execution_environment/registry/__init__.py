"""State on disk: an entry for each open environment, and the directories of environments."""
