"""Models of `config:` and `policy:` for the kinds that run programs.

Importing this module loads pydantic, so import it inside `config_model` and `policy_model`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from flowengine.sdk.environments.models import Config, EnvironmentPolicy, Secret

Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


Interpreter = Annotated[str, Field(min_length=1)] | None


def _alone(other: str, default: str) -> Callable[[str | None, ValidationInfo], str | None]:
    """Return a validator that refuses two interpreters."""

    def check(value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get(other, default) != default:
            raise PydanticCustomError(
                "interpreter",
                "is a program of this machine, and {other} one of the sandbox: use one of them",
                {"other": f"'{other}'"},
            )
        return value

    return check


class Programs(Config):
    """Settings of all kinds that run programs."""

    env: dict[Name, Secret | str] = Field(default_factory=dict)
    """Environment variables of all programs: literal texts, or references to secrets."""


class OwnPrograms(Config):
    """Settings that sandboxes require of kinds that run only this package's own programs."""

    @property
    def proxied(self) -> bool:
        """Whether a proxy outside the sandbox connects its programs to the places of its policy."""
        return True

    @property
    def env(self) -> dict[str, str]:
        """Return no variables, because these programs receive none."""
        return {}

    @property
    def interpreter(self) -> str:
        """Return the interpreter that runs this process, which has the libraries."""
        return sys.executable


class PythonConfig(Programs):
    """`config:` of the kind `python`."""

    python: str = "python3"
    """The interpreter in the sandbox."""
    interpreter: Annotated[Interpreter, AfterValidator(_alone("python", "python3"))] = None
    """An interpreter from the user's own installation, such as `~/.venv/bin/python`.

    The sandbox receives read-only access to its directory.
    """
    on_busy: Literal["wait", "refuse"] = "wait"
    """Behavior of a call while another one runs."""


class BashPolicy(EnvironmentPolicy):
    """`policy:` of the kind `bash`."""

    allow: list[Annotated[str, Field(min_length=1)]] | None = None
    """Commands that may run, each given by its first words: `ls`, `git log`.

    No shell interprets them.
    """
    root: str | None = None
    """Directory in which commands run and which `cwd` must not leave, relative to the workspace."""
    confine: Literal["root", "cwd"] = "root"
    """`cwd`: commands only have to start in `root`, even if they can read outside it."""


class NodeConfig(Programs):
    """`config:` of the kind `node`."""

    node: str = "node"
    """The interpreter in the sandbox."""
    interpreter: Annotated[Interpreter, AfterValidator(_alone("node", "node"))] = None
    """An interpreter from the user's own installation.

    For example `~/.nvm/versions/node/v22.1.0/bin/node`. The sandbox receives read-only access to
    its directory.
    """
    min_version: Annotated[str, Field(pattern=r"^\d+(\.\d+){0,2}$")] = "18"
    """The oldest version that is accepted."""
    module: bool = False
    """Whether code is a module (`import`, `export default`), unless a call specifies it."""


class ShellConfig(Programs):
    """`config:` of the kind `shell`."""

    activate: str | None = None
    """Command run at every start of the shell, such as `. venv/bin/activate` or `pixi shell`."""
    activate_timeout: Annotated[float, Field(gt=0)] = 60.0
    """Seconds that `activate` may take."""
