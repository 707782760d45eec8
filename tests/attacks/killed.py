"""Ends the engine at random moments while everything is open, and counts what is left.

    python -m tests.attacks.killed FOLDER SEED SIGNALS ENDS [FIRST]

SIGNALS is KILL, TERM or INT, or several with commas, in turn. A line of JSON an end. This
process takes in orphans (PR_SET_CHILD_SUBREAPER): whatever descends from an engine, and however
often it changed session and parent, is found below it.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from flowengine.execution_environment import EnvironmentManager  # noqa: F401 - fails early
from flowengine_envs.docker import image
from flowengine_envs.docker.daemon import connect
from flowengine_envs.sandboxes import cgroups
from tests.attacks import everything
from tests.own_environments import environments_for

LATEST = 10.0
"""Seconds within which nothing may be left (E86).

Where the machine is so busy that a whole run takes longer than that, it is as long as that run."""
_SUBREAPER = 36


def main(folder: Path, seed: str, names: str, ends: int, first: int = 0) -> None:
    """End it so many times, and tell of each."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    image.build(connect())  # unless it is there: that is not to be a part of how long a run takes
    length = _calm(folder / "calm")
    for number in range(first, first + ends):
        draw = random.Random(f"{seed}{number}")
        name = names.split(",")[number % len(names.split(","))]
        place = folder / f"{name.lower()}{number}"
        after = draw.uniform(0, 1.05) * length
        sign = signal.Signals[f"SIG{name}"]
        # One in three opens all in the background: it is ended while more is on its way at once.
        ahead = number % 3 == 1
        told = {"number": number, **_end(place, after, sign, max(LATEST, length), ahead=ahead)}
        # One in six goes on with the execution instead: it has to end, and leave nothing either.
        told |= _after(place, max(LATEST, length), resume=number % 6 == 2)
        sys.stdout.write(f"{json.dumps(told)}\n")
        sys.stdout.flush()


def _calm(place: Path) -> float:
    """Return how long it takes undisturbed, from the first thing that is opened."""
    engine = _start(place)
    began = _until_opening(place, engine)
    engine.wait()
    length = time.monotonic() - began
    assert engine.returncode == 0, (place / "said").read_text()
    left = _left_in_time(place, max(LATEST, length))
    assert left == {}, left
    return length


def _end(
    place: Path, after: float, sign: signal.Signals, latest: float, *, ahead: bool
) -> dict[str, object]:
    engine = _start(place, ahead=ahead)
    _until_opening(place, engine)
    open_ = 0
    try:
        engine.wait(after)
    except subprocess.TimeoutExpired:
        open_ = len(_entries(place))
        engine.send_signal(sign)
        engine.wait()
    told = {"after": round(after, 2), "code": engine.returncode, "open": open_}
    told["listed"] = _listed(place) == {path.stem for path in _entries(place)}
    if sign != signal.SIGKILL:
        # Nobody reaps meanwhile; what lost its supervisor a moment ago ends by itself.
        told["left without reaping"] = _left_in_time(place, latest)
        told["told"] = (place / "said").read_text()[-2000:]
    return told


def _start(place: Path, *, ahead: bool = False) -> subprocess.Popen[bytes]:
    everything.make(place, ahead=ahead)
    (place / "tmp").mkdir()
    with (place / "said").open("wb") as said:
        return subprocess.Popen(
            _argv("run", "everything.yaml", "--id", _id(place)),
            cwd=place,
            env=_env(place),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )


def _until_opening(place: Path, engine: subprocess.Popen[bytes]) -> float:
    while not _environments(place).exists() and engine.poll() is None:
        time.sleep(0.002)
    return time.monotonic()


def _environments(place: Path) -> Path:
    return environments_for(place, _env(place))


def _entries(place: Path) -> list[Path]:
    return list(_environments(place).glob("entries/*.json"))


def _listed(place: Path) -> set[str]:
    """Return the ids of what `envs list` tells is there."""
    said = _flowengine(place, "--json", "envs", "list").stdout
    return {one["id"] for one in json.loads(said)}


def _after(place: Path, latest: float, *, resume: bool) -> dict[str, object]:
    began = time.monotonic()
    if resume:
        done = _flowengine(place, "run", "everything.yaml", "--id", _id(place))
        end = f"run: {done.returncode}"
        _flowengine(place, "envs", "reap")
    else:
        done = _flowengine(place, "envs", "reap")
        end = f"reap: {done.returncode}"
    left = _left_in_time(place, latest)
    told: dict[str, object] = {
        "end": end,
        "seconds": round(time.monotonic() - began, 2),
        "left": left,
    }
    if done.returncode:
        told["said"] = done.stderr[-2000:]
    _clear(place)
    return told


def _left_in_time(place: Path, latest: float) -> dict[str, list[str]]:
    """Return what is there still when nothing may be left any more."""
    began = time.monotonic()
    while any((left := _left(place)).values()) and time.monotonic() < began + latest:
        time.sleep(0.05)
    return {name: found for name, found in left.items() if found}


def _left(place: Path) -> dict[str, list[str]]:
    """Return everything of an execution that can be found on this machine."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return {
        "processes": _below(),
        "containers": everything.containers(_id(place)),
        # The lock of those who build the image is there for the next ones.
        "folders": sorted(p.name for p in (place / "tmp").iterdir() if p.suffix != ".lock"),
        "mounts": [line for line in mounts if str(place) in line],
        "groups": _groups(place),
        "entries": [path.name for path in _entries(place)],
    }


def _below() -> list[str]:
    """Return what descends from this process; zombies are taken away."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return []
        if not pid:
            break
    argv = ["ps", "-eo", "pid=,ppid=,stat=,args="]
    lines = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [line.split(None, 3) for line in lines]
    found = {os.getpid()}
    for _ in rows:
        more = {int(row[0]) for row in rows if int(row[1]) in found} - found
        if not more:
            break
        found |= more
    return [
        " ".join(row[2:])[:200]
        for row in rows
        if int(row[0]) in found - {os.getpid()}
        if not row[2].startswith("Z") and not row[3].startswith("ps -eo")
    ]


def _groups(place: Path) -> list[str]:
    """Return the control groups of the environments that were written down here."""
    tree = cgroups.tree()
    seen = place / "seen"
    ids = set(seen.read_text().split()) if seen.exists() else set()
    ids |= {path.stem for path in _entries(place)}
    seen.write_text("\n".join(ids))
    folders = set() if tree is None else set(tree.folders.values())
    return [
        str(path)
        for folder in folders
        for path in folder.glob("flowengine-*")
        if _is_one(path, ids)
    ]


def _is_one(path: Path, ids: set[str]) -> bool:
    return any(id in path.name for id in ids)


def _clear(place: Path) -> None:
    """Take away what should not be there, so that the next kill is counted by itself."""
    for name in everything.containers(_id(place)):
        subprocess.run(["docker", "rm", "-f", name], capture_output=True, check=False)
    for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        os.kill(int(child), signal.SIGKILL)


def _flowengine(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _argv(*words),
        cwd=place,
        env=_env(place),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def _argv(*words: str) -> list[str]:
    return [sys.executable, "-m", "flowengine", *words]


def _env(place: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(place / "tmp"), "HOME": str(place), "XDG_STATE_HOME": ""}


def _id(place: Path) -> str:
    """Return an id for the execution that no other run of this program uses."""
    return f"{place.name}-{os.getpid()}"


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3], *map(int, sys.argv[4:]))
