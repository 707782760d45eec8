"""How long a file is kept that nothing uses yet."""

HELD_SECONDS = 7 * 24 * 3600
"""How long a file is kept to which no execution refers yet."""
