"""The commands there are, their parsers, and how the values of their options are read."""
