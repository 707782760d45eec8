"""Configuration directories of the machine and of the user, which are outside any project."""

from __future__ import annotations

import os

MACHINE_FOLDER = "/etc/flowengine"
"""The machine's configuration directory, which may contain policies."""


def user_folder() -> str:
    """Return the user's configuration directory, which contains settings and policies."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "flowengine")
