"""The built-in environment providers, and plain objects over them that need no manager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flowengine_envs.compat.markdown_browser import RequestsMarkdownBrowser
    from flowengine_envs.compat.python_envs import (
        DockerConfig,
        DockerEnv,
        Execution,
        LocalEnv,
        run_python_code,
        with_env,
    )

__all__ = [
    "DockerConfig",
    "DockerEnv",
    "Execution",
    "LocalEnv",
    "RequestsMarkdownBrowser",
    "run_python_code",
    "with_env",
]


def __getattr__(name: str) -> Any:
    """Load these only when they are asked for: they need pydantic."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "RequestsMarkdownBrowser":
        from flowengine_envs.compat import markdown_browser

        return markdown_browser.RequestsMarkdownBrowser
    from flowengine_envs.compat import python_envs

    return getattr(python_envs, name)
