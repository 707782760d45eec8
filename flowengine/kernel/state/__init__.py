"""The state of an execution: its records, the states of its parts, and every move."""
