"""Models of `config:` and `policy:` of the kinds that run programs.

Loads pydantic: import it inside `config_model` and `policy_model`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from flowengine.sdk.models import Config, Policy, Secret

Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


Interpreter = Annotated[str, Field(min_length=1)] | None


def _alone(other: str, default: str) -> Callable[[str | None, ValidationInfo], str | None]:
    """Return what refuses two interpreters."""

    def check(value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get(other, default) != default:
            raise PydanticCustomError(
                "interpreter",
                "is a program of this machine, and {other} one of the sandbox; use one of them",
                {"other": f"'{other}'"},
            )
        return value

    return check


class Programs(Config):
    """What all kinds that run programs can be told."""

    env: dict[Name, Secret | str] = Field(default_factory=dict)
    """Environment variables of all programs: texts, or references to secrets."""


class OwnPrograms(Config):
    """What sandboxes ask of kinds that run programs of this package in them, and no others."""

    @property
    def proxied(self) -> bool:
        """Whether the places of its policy are reached from outside of the sandbox, by a proxy."""
        return True

    @property
    def env(self) -> dict[str, str]:
        """Its programs get no variables."""
        return {}

    @property
    def interpreter(self) -> str:
        """The one that runs this: it has the libraries."""
        return sys.executable


class PythonConfig(Programs):
    """`config:` of the kind `python`."""

    python: str = "python3"
    """The interpreter inside."""
    interpreter: Annotated[Interpreter, AfterValidator(_alone("python", "python3"))] = None
    """An interpreter of the user's own installation: `~/.venv/bin/python`. Its folder is shown to
    the sandbox, to read."""
    on_busy: Literal["wait", "refuse"] = "wait"
    """What a call does while another one runs."""


class BashPolicy(Policy):
    """`policy:` of the kind `bash`."""

    allow: list[Annotated[str, Field(min_length=1)]] | None = None
    """Commands that may be run, each by its first words: `ls`, `git log`. No shell reads them then:
    they are words."""
    root: str | None = None
    """Folder in which commands run and which `cwd` must not leave; relative to the workspace."""
    confine: Literal["root", "cwd"] = "root"
    """`cwd`: it is enough that commands begin in `root`, even if they can read outside of it."""


class NodeConfig(Programs):
    """`config:` of the kind `node`."""

    node: str = "node"
    """The interpreter inside."""
    interpreter: Annotated[Interpreter, AfterValidator(_alone("node", "node"))] = None
    """An interpreter of the user's own installation: `~/.nvm/versions/node/v22.1.0/bin/node`. Its
    folder is shown to the sandbox, to read."""
    min_version: Annotated[str, Field(pattern=r"^\d+(\.\d+){0,2}$")] = "18"
    """The oldest version that will do."""
    module: bool = False
    """Whether code is a module (`import`, `export default`), unless a call says it."""


class ShellConfig(Programs):
    """`config:` of the kind `shell`."""

    activate: str | None = None
    """Command that is run at every start of the shell: `. venv/bin/activate`, `pixi shell`."""
    activate_timeout: Annotated[float, Field(gt=0)] = 60.0
    """Seconds that `activate` may take."""
