"""The command that installs the packages of an extra."""

from __future__ import annotations

import json
import shlex
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote, urlsplit

_NAME = "flowengine"


def models_missing() -> str:
    """Return why no models of providers can be called here, with the command that installs them.

    Empty: they can. Nothing is imported.
    """
    if find_spec("litellm") is not None:
        return ""
    return f"models of providers need litellm, which is not installed: {install_command('agents')}"


def install_command(extra: str, of: str = _NAME) -> str:
    """Return the command that installs an extra from the place of the installed distribution.

    Args:
        extra: Name of the extra, such as `agents`. Several are separated by commas.
        of: Name of the distribution.

    Returns:
        A command line for `pip`. A distribution that was installed from a directory or a wheel of
        this machine is named by its path. Any other is named as on a package index.
    """
    origin = _origin(of)
    url, what = urlsplit(str(origin.get("url", ""))), f"{of}[{extra}]"
    editable = ""
    if url.scheme == "file" and "dir_info" in origin:
        editable = "-e " if origin["dir_info"].get("editable") else ""
        what = f"{unquote(url.path)}[{extra}]"
    elif url.scheme == "file":
        what += f" @ {url.geturl()}"
    return f"pip install {editable}{shlex.quote(what)}"


def _origin(name: str) -> dict[str, Any]:
    """Return where a distribution was installed from, if it was not a package index."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        text = distribution(name).read_text("direct_url.json")
        origin = json.loads(text or "{}")
    except (PackageNotFoundError, ValueError):
        return {}
    return origin if isinstance(origin, dict) else {}
