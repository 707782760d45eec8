"""Text formats of ids, addresses, times and percentages."""
