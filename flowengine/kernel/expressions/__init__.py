"""What expressions see: names, and what the steps behind a token gave."""
