"""Where the configuration of the machine and of the user is: outside any project."""

from __future__ import annotations

import os

MACHINE_FOLDER = "/etc/flowengine"
"""The machine's configuration folder, in which policies may be."""


def user_folder() -> str:
    """Return the user's configuration folder, in which settings and policies are."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "flowengine")
