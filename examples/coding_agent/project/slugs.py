"""Short names for titles, for use in URLs."""

import re


def slug(title: str) -> str:
    """Return a title in lower case, its words joined by hyphens."""
    return re.sub(r"[^a-z0-9]", "-", title.lower()).strip("-")
