"""The store that lives as long as the process."""
