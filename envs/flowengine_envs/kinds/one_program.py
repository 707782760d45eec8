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
    """Start a program below a first process that forwards its connections out of the sandbox.

    Args:
        sandbox: An open sandbox, which ends remaining processes when it closes.
        argv: Program and arguments, run without a shell.
        env: Its variables. They pass through its standard input, so that no command line shows
            them.
        cwd: Its working directory in the sandbox. Default: the workspace.
        limits: Limits for each process, by resource name.
        quota: Bytes that workspace and home directory may use together. None: unlimited.
        mounts: Path in the sandbox → device and inode number that its directory must have.

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
