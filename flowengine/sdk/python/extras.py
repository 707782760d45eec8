"""The command that installs the packages of an extra."""

from __future__ import annotations

import json
import shlex
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote, urlsplit

from flowengine.errors import UsageError

_EXTRAS = {
    "ag_ui": "ag-ui", "docker": "docker", "litellm": "agents", "mcp": "mcp",
    "opentelemetry": "telemetry", "playwright": "browser", "temporalio": "temporal",
    **dict.fromkeys(("jinja2", "jwt", "sse_starlette", "starlette", "uvicorn"), "serve"),
}  # fmt: skip
"""Modules of packages, and the extras that install them."""


def missing_package(error: ModuleNotFoundError) -> UsageError | None:
    """Return an error with the command that installs a missing package, if an extra has it.

    Args:
        error: What its import raised.
    """
    module = str(error.name).partition(".")[0]
    if module not in _EXTRAS:
        return None
    hint = f"install it: {install_command(_EXTRAS[module])}"
    return UsageError(f"this needs the package {module}, which is not installed", hint=hint)


def models_missing() -> str:
    """Return why no models of providers can be called here, with the command that installs them.

    Empty: they can. Nothing is imported.
    """
    if is_installed("litellm"):
        return ""
    return f"models of providers need litellm, which is not installed: {install_command('agents')}"


def is_installed(module: str) -> bool:
    """Return whether a module can be found, without importing it. Its package may be imported."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its package is missing
        return False


def install_command(extra: str, of: str = "flowengine") -> str:
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
