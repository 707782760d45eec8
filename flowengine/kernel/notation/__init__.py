"""How ids, addresses, times and percentages are written."""
