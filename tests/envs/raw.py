"""A supervisor as a plain child process, driven byte by byte."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flowengine_envs.link import bootstrap, channel, frames
from flowengine_envs.link.frames import LinkMessage

PYTHON = "/usr/bin/python3"
ENV = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}


class Raw:
    """Started, but not greeted."""

    def __init__(self, workspace: Path, python: str = PYTHON) -> None:
        self.workspace = workspace
        self.home = workspace.parent / f"{workspace.name}.home"
        self.home.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [python, *channel.COMMAND[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=ENV,
            start_new_session=True,
        )
        self.key = os.urandom(frames.KEY)
        self.sealer = frames.Sealer(self.key, frames.TO_SUPERVISOR)
        self._opener = frames.Opener(self.key, frames.TO_ENGINE)
        self._last = 0
        self._got: list[LinkMessage] = []

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        view = memoryview(data)
        while view:
            view = view[self.process.stdin.write(view) or 0 :]

    def begin(self, program: bytes | None = None, **hello: Any) -> LinkMessage:
        self.write((program or bootstrap.supervisor()) + self.key)
        return self.ask("hello", **{**self.hello(), **hello})

    def hello(self) -> dict[str, Any]:
        return {
            "version": frames.VERSION,
            "workspace": str(self.workspace),
            "home": str(self.home),
            "own_processes": False,
            "output": str(self.workspace / "output"),
            "forwards": [],
            "mounts": [],
            "files": {},
        }

    def worker(self) -> None:
        folder = str(self.workspace)
        assert self.ask("worker", argv=[PYTHON], env=ENV, cwd=folder, limits={}).header["done"]

    def send(self, request: str, payload: bytes = b"", **fields: Any) -> int:
        self._last += 1
        self.write(self.sealer.seal({"id": self._last, "request": request, **fields}, payload))
        return self._last

    def ask(self, request: str, payload: bytes = b"", **fields: Any) -> LinkMessage:
        return self.last(self.send(request, payload, **fields))

    def python(self, code: str, **fields: Any) -> int:
        asked: dict[str, Any] = {
            "inputs": {},
            "timeout": 60,
            "grace": 2,
            "kept": 65536,
            "file": 1 << 20,
            "largest": 1 << 20,
            "busy": "wait",
        }
        return self.send("python", code=code, **{**asked, **fields})

    def run(self, argv: list[str], **fields: Any) -> int:
        asked: dict[str, Any] = {
            "env": ENV,
            "cwd": str(self.workspace),
            "limits": {},
            "timeout": 60,
            "grace": 1,
            "kept": 65536,
            "file": 1 << 20,
            "result": False,
            "preload": None,
        }
        return self.send("run", argv=argv, **{**asked, **fields})

    def last(self, id: int | None, seconds: float = 60) -> LinkMessage:
        """Wait for the last answer to a request."""
        return self.until(lambda header: header.get("id") == id and header.get("done"), seconds)

    def until(self, wanted: Any, seconds: float = 60) -> LinkMessage:
        deadline = time.monotonic() + seconds
        while True:
            for index, message in enumerate(self._got):
                if wanted(message.header):
                    return self._got.pop(index)
            self._read(deadline)

    def said(self, id: int) -> Mapping[str, bytes]:
        """Return the output of a request so far."""
        said = {"stdout": b"", "stderr": b""}
        for message in self._got:
            if message.header.get("id") == id and "stream" in message.header:
                said[message.header["stream"]] += message.payload
        return said

    def _read(self, deadline: float) -> None:
        assert self.process.stdout is not None
        left = deadline - time.monotonic()
        ready, _, _ = select.select([self.process.stdout], [], [], max(left, 0))
        assert ready, "no answer in time"
        data = os.read(self.process.stdout.fileno(), 1 << 18)
        assert data, f"the supervisor ended: {self.stderr()}"
        for message in self._opener.feed(data):
            assert isinstance(message, LinkMessage)
            self._got.append(message)

    def stderr(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()
