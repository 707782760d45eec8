"""The built-in environment providers, and plain objects over them that need no manager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine_envs.libraries import names_of

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


_named = names_of("flowengine_envs.compat.python_envs", "flowengine_envs.compat.markdown_browser")


def __getattr__(name: str) -> Any:
    """Load these only when they are asked for: they need pydantic."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _named(name)
