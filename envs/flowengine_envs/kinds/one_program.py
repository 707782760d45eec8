"""A sandbox that runs one program, whose standard streams are connected to the engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from flowengine.sdk.environments import Program, Sandbox
from flowengine_envs.link import bootstrap
from flowengine_envs.link.channel import COMMAND
from flowengine_envs.link.parts import part


async def start_program(
    sandbox: Sandbox,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None = None,
    limits: Mapping[str, int],
    quota: int | None = None,
    mounts: Mapping[str, Any] | None = None,
) -> Program:
    """Start a program below a first process that leads its connections out.

    Args:
        sandbox: An open sandbox; it ends what is left when it closes.
        argv: Program and arguments; no shell.
        env: Its variables. They pass through its standard input, so no command line has them.
        cwd: Its working directory inside; default: the workspace.
        limits: What holds for each process, by the names of resources.
        quota: Bytes that workspace and home folder may take together; None: any number.
        mounts: Path inside → device and number that the folder there has to have.

    Returns:
        The program.
    """
    options = {
        "argv": [*argv],
        "env": {**env, **sandbox.variables},
        "cwd": cwd or sandbox.workdir,
        "limits": dict(limits),
        "forwards": [*sandbox.forwards],
        "folders": [sandbox.workdir, sandbox.home],
        "quota": quota,
        "mounts": dict(mounts or {}),
        "unreadable": sandbox.capabilities().isolation != "none",
    }
    program = await sandbox.start(COMMAND, env={"LANG": "C.UTF-8"})
    assert program.stdin is not None
    program.stdin.write(bootstrap.first_process() + part(json.dumps(options).encode()))
    return program
