"""The first process of a sandbox for one program: runs it and forwards its connections.

It starts like a supervisor (`bootstrap`) and then reads its options, a part of JSON. The rest of
standard input belongs to the program, as do the other streams.

It forwards connections, ends the program when the disk is almost full, and reaps orphans. It ends
when the program ends. It forwards SIGTERM to the program. On SIGINT it kills the program with its
descendants.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from flowengine_envs.inside import system
from flowengine_envs.inside.forwarding import Forwarding
from flowengine_envs.inside.killing import kill_everything
from flowengine_envs.inside.loop import EventLoop
from flowengine_envs.inside.reserve import Reserve
from flowengine_envs.link import parts
from flowengine_envs.workspaces.files import Workspace
from flowengine_envs.workspaces.free_space import SHORT

_NOT_STARTED = 127
"""The exit code that shells use for a missing program."""


def main(number: int) -> None:
    """Run a program to its end.

    Args:
        number: Descriptor of the options: `argv`, `env`, `cwd`, `limits` of each process,
            `forwards` of the sandbox, its `folders`, `mounts` (path → device and inode), and
            `unreadable`, whether to hide this process's memory from the program.
    """
    data = parts.read(partial(os.read, number))
    if data is None:  # The engine has ended.
        os._exit(1)
    options = json.loads(data)
    if options["unreadable"]:
        system.become_unreadable()
    system.adopt_orphans()
    _check_mounts(options["mounts"])
    for name, value in options["limits"].items():
        limit = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(limit)[1]
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (most, most))
    loop = EventLoop()
    Forwarding(loop, options["forwards"])
    reserve = Reserve(loop, lambda: True, _stop_full, tuple)
    reserve.hold([Workspace(path) for path in options["folders"]])
    source, sink = os.pipe()
    for fd in (source, sink):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, lambda *_: _end())
    program = _start(options)
    signal.signal(signal.SIGTERM, lambda *_: _pass_on(program, signal.SIGTERM))
    with open(os.devnull, "r+b", buffering=0) as null:  # The streams belong only to the program.
        os.dup2(null.fileno(), 0)
        os.dup2(null.fileno(), 1)
    reserve.begins()

    def reap() -> None:
        with suppress(BlockingIOError):
            os.read(source, 4096)
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == program:
                    sys.stderr.flush()
                    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
                if not pid:
                    break

    loop.reading(source, reap)
    loop.run()


def _check_mounts(mounts: Mapping[str, Any]) -> None:
    """Exit before the program starts if a directory is not the intended one."""
    for path, identity in mounts.items():
        info = os.stat(path)
        if [info.st_dev, info.st_ino] != identity:
            sys.exit(
                f"{path} is not the directory that was opened: it, or one above it, was replaced"
            )


def _start(options: Mapping[str, Any]) -> int:
    """Start the program and return its process id."""
    argv = options["argv"]
    inherited = {name: value for name, value in os.environ.items() if name != "PWD"}
    try:
        env = {**inherited, **options["env"]}
        return subprocess.Popen(argv, env=env, cwd=options["cwd"]).pid
    except OSError as error:
        place = error.filename or argv[0]
        print(f"{place}: {error.strerror}", file=sys.stderr, flush=True)  # noqa: T201 - its log
        os._exit(_NOT_STARTED)


def _pass_on(program: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(program, number)


def _stop_full() -> None:
    """End everything, because the disk is almost full."""
    print(f"it was ended: {SHORT}", file=sys.stderr, flush=True)  # noqa: T201
    _end()


def _end() -> None:
    kill_everything()
    os._exit(1)
