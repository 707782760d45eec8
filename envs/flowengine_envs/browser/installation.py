"""Locations of Chromium and Playwright on this machine, and the directories they need."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from flowengine_envs.documents import conversion
from flowengine_envs.sandboxes.installations import is_below

INSTALL = (
    "on Debian or Ubuntu: apt-get install chromium. Elsewhere: python -m playwright install "
    "chromium. Or name an installed one (config: program)"
)
_PROGRAMS = (
    "/usr/lib/chromium/chromium",
    "/usr/lib64/chromium-browser/chromium-browser",
    "/usr/lib/chromium-browser/chromium-browser",
    "/opt/google/chrome/chrome",
)
"""The executables themselves. The one on `PATH` is usually a script that reads files of `/etc`."""
_NAMES = ("chromium", "chromium-browser", "google-chrome")


def browser(named: str | None) -> str | None:
    """Return the path of the browser.

    Args:
        named: The path that a spec names, if any.

    Returns:
        The path. None: no browser was found.
    """
    if named is not None:
        own = os.path.abspath(os.path.expanduser(named))
        return own if os.access(own, os.X_OK) and os.path.isfile(own) else None
    known = [path for path in _PROGRAMS if os.access(path, os.X_OK)]
    paths = [path for name in _NAMES if (path := shutil.which(name)) is not None]
    folder = os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or "~/.cache/ms-playwright"
    downloaded = Path(os.path.expanduser(folder)).glob("chromium-*/chrome-linux*/chrome")
    newest_first = sorted(
        (str(path) for path in downloaded if os.access(path, os.X_OK)), reverse=True
    )
    return next(iter([*known, *newest_first, *paths]), None)


def driver() -> Path | None:
    """Return the directory of Playwright's driver. None: Playwright is not installed."""
    spec = find_spec("playwright")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "driver"


def missing() -> list[str]:
    """Return the missing Python packages."""
    return [name for name in ("lxml", "playwright") if find_spec(name) is None]


def folders(named: str | None) -> tuple[str, ...]:
    """Return the directories that a sandbox needs besides the interpreter's and the system's.

    Args:
        named: The path of the browser that a spec names, if any.
    """
    program, played = browser(named), driver()
    places = [os.path.dirname(program)] if program is not None else []
    places += [str(played)] if played is not None else []
    shown = (sys.prefix, sys.base_prefix, "/usr")
    new = [place for place in places if not is_below(place, shown)]
    return (*conversion.folders(), *new)
