"""A program that opens environments and gets killed in between."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from flowengine.execution_environment import (
    EnvironmentManager,
    register_provider,
    release_on_termination,
)
from flowengine.sdk.environments import VARIABLE, Leftover, Provider, Request, Spec
from flowengine.sdk.processes import Family


class Box:
    """A process, a stray process in another session and with another parent, and a folder."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.folder = Path(tempfile.mkdtemp(prefix="box-", dir=request.config.folder))
        request.trace(folder=str(self.folder))
        env = {**os.environ, VARIABLE: request.mark}
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(
            ["sleep", "1077"], env=env, start_new_session=True, stdout=quiet, stderr=quiet
        )
        request.trace(pid=self.process.pid)
        stray = ["sh", "-c", "setsid sleep 1078 &"]
        subprocess.run(stray, env=env, check=True, stdout=quiet, stderr=quiet)


class Boxes(Provider[Box]):
    """Opens processes, and reports its progress so that it can be killed at a given point."""

    kind = "box"

    def __init__(self, stop: str = "") -> None:
        self.stop = stop
        self.reaped: list[Leftover] = []

    def config_model(self) -> Any:
        from flowengine.sdk.environments.models import Config

        class BoxConfig(Config):
            folder: str

        return BoxConfig

    async def probe(self, spec: Spec) -> None:
        """Always available."""

    async def ensure(self, request: Request) -> Box:
        if self.stop == "intent":
            await reached()
        box = Box(request)
        if self.stop == "started":
            await reached()
        return box

    def health_check(self, resource: Box) -> bool:
        return resource.process.poll() is None

    async def release(self, resource: Box) -> None:
        if self.stop == "releasing":
            await reached()
        resource.process.kill()
        resource.process.wait()
        Family(resource.request.mark, variable=VARIABLE).kill()
        shutil.rmtree(resource.folder)

    async def reap(self, leftover: Leftover) -> None:
        self.reaped.append(leftover)


async def reached() -> None:
    """Report that the point is reached, and wait to be killed."""
    sys.stdout.write("now\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def main(folder: str, stop: str, scope: str) -> None:
    release_on_termination()
    register_provider(Boxes(stop))
    manager = EnvironmentManager(Path(folder, "environments"))
    spec = {"kind": "box", "scope": scope, "owner_id": "x", "config": {"folder": folder}}
    handle = manager.ensure(spec)
    assert handle.workspace is not None
    (handle.workspace / "file").write_text("kept")
    if stop == "releasing":
        manager.release(handle)
    if stop == "exit":
        raise SystemExit("an error that nobody handles")
    sys.stdout.write("now\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
