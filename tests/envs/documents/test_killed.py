# Shows E86
"""The engine is killed while it fetches or reads a document (E86): nothing is left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk.processes import PREFIX, sweep_scratch
from flowengine_envs.sandboxes.processes import has
from tests.alive import alive
from tests.envs.documents.test_downloads import HEAD, raw
from tests.envs.documents.test_kind import many_paragraphs
from tests.envs.network.ways_out import serving

CODE = """
import sys
from flowengine.execution_environment import EnvironmentManager
store, place, source = sys.argv[1:]
spec = {"kind": "documents", "scope": "session", "owner_id": "s", "policy": {"network": [place]}}
reader = EnvironmentManager(store).ensure(spec).resource
if source.startswith("http"):
    reader.visit(source)
else:
    reader.read(open(source, "rb").read(), source)
"""


def descendants(pid: int) -> set[int]:
    found = {pid}
    for _ in range(6):
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent in found:
                found.add(int(folder.name))
    return found - {pid}


def works(pids: set[int]) -> bool:
    """Return whether one of the processes is converting a document."""
    for pid in pids:
        try:
            if b"documents.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return True
        except OSError:
            continue
    return False


@pytest.mark.endurance
@pytest.mark.wherever("at")
@pytest.mark.parametrize("at", ["download", "conversion"])
def test_killed_at_work_nothing_is_left(at: str, tmp_path: Path, temporary: Path) -> None:
    if not has("bwrap"):
        pytest.skip("no bubblewrap: apt-get install bubblewrap")

    def page(handler: Any) -> None:
        raw(HEAD + b"\r\n" + b"x" * 100_000, lambda each: each.rfile.read(1))(handler)

    with serving() as site:
        site.pages["/a"] = page
        source = site.url("/a")
        if at == "conversion":
            (tmp_path / "a.docx").write_bytes(many_paragraphs())
            source = str(tmp_path / "a.docx")
        argv = [sys.executable, "-c", CODE, str(tmp_path / "store"), site.place, source]
        engine = subprocess.Popen(argv)
        try:
            until = time.monotonic() + 60
            while time.monotonic() < until:
                below = descendants(engine.pid)
                begun = list(temporary.glob(f"{PREFIX}*/download"))
                if begun if at == "download" else works(below):
                    break
                assert engine.poll() is None
                threading.Event().wait(0.05)
            assert below
        finally:
            engine.send_signal(signal.SIGKILL)
            engine.wait()
        with EnvironmentManager(tmp_path / "store") as manager:
            manager.reap()
        sweep_scratch()
        until = time.monotonic() + 60
        while (left := [pid for pid in below if alive(pid)]) and time.monotonic() < until:
            threading.Event().wait(0.05)
        assert left == []
        assert list(temporary.glob(f"{PREFIX}*")) == []
