"""Ends the engine while environments are open, and reports everything left behind.

    python -m tests.attacks.killed FOLDER '{"sign": "KILL", "opened": 10}'

The engine is ended once `opened` environments are open, `after` seconds later (default: 0). With
`hold`, the steps never end. With `ahead`, environments open in the background. With `resume`, the
execution is resumed afterwards instead of being reaped. Prints a line of JSON. This process adopts
orphans (PR_SET_CHILD_SUBREAPER), so all descendants of the engine stay below it, even if they
changed their session and parent.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from flowengine_envs.sandboxes import cgroups
from tests.attacks import everything
from tests.own_environments import environments_for

LATEST = 10.0
"""Seconds after which nothing may be left (E86).

On a machine so busy that the first environment opens slowly, the limit is higher.
"""
_SUBREAPER = 36


def main(
    place: Path,
    *,
    sign: str,
    opened: int,
    after: float = 0,
    hold: bool = False,
    ahead: bool = False,
    resume: bool = False,
) -> None:
    """End the engine, and print a report."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    began = time.monotonic()
    engine = _start(place, hold=hold, ahead=ahead)
    while not _entries(place) and engine.poll() is None:
        time.sleep(0.02)
    latest = max(LATEST, 20 * (time.monotonic() - began))
    told = _end(place, engine, opened, after, signal.Signals[f"SIG{sign}"], latest)
    told |= _after(place, latest, resume=resume)
    sys.stdout.write(f"{json.dumps(told)}\n")


def _end(
    place: Path,
    engine: subprocess.Popen[bytes],
    opened: int,
    after: float,
    sign: signal.Signals,
    latest: float,
) -> dict[str, object]:
    seen: set[Path] = set()
    while len(seen) < opened and engine.poll() is None:
        seen |= {*_entries(place)}
        time.sleep(0.02)
    open_ = 0
    try:
        engine.wait(after)
    except subprocess.TimeoutExpired:
        open_ = len(_entries(place))
        engine.send_signal(sign)
        engine.wait()
    told = {"code": engine.returncode, "open": open_}
    told["listed"] = _listed(place) == {path.stem for path in _entries(place)}
    if sign != signal.SIGKILL:
        # Without reaping: processes that have just lost their supervisor end by themselves.
        told["left without reaping"] = _left_in_time(place, latest)
        told["told"] = (place / "said").read_text()[-2000:]
    return told


def _start(place: Path, *, hold: bool, ahead: bool) -> subprocess.Popen[bytes]:
    everything.make(place, hold=hold, ahead=ahead)
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


def _environments(place: Path) -> Path:
    return environments_for(place, _env(place))


def _entries(place: Path) -> list[Path]:
    return list(_environments(place).glob("entries/*.json"))


def _listed(place: Path) -> set[str]:
    """Return the IDs listed by `envs list`."""
    said = _flowengine(place, "--json", "envs", "list").stdout
    return {one["id"] for one in json.loads(said)}


def _after(place: Path, latest: float, *, resume: bool) -> dict[str, object]:
    began = time.monotonic()
    if resume:
        done = _flowengine(place, "run", "everything.yaml", "--id", _id(place))
        end = f"run: {done.returncode}"
        _flowengine(place, "envs", "release", "--all")
    else:
        done = _flowengine(place, "envs", "release", "--all")
        end = f"reap: {done.returncode}"
    left = _left_in_time(place, latest)
    told: dict[str, object] = {
        "end": end,
        "seconds": round(time.monotonic() - began, 2),
        "left": left,
    }
    if done.returncode:
        told["said"] = done.stderr[-2000:]
    if left:
        _clear(place)
    return told


def _left_in_time(place: Path, latest: float) -> dict[str, list[str]]:
    """Return everything still left when the time is over."""
    began = time.monotonic()
    while any((left := _left(place)).values()) and time.monotonic() < began + latest:
        time.sleep(0.2)
    return {name: found for name, found in left.items() if found}


def _left(place: Path) -> dict[str, list[str]]:
    """Return everything of an execution that can be found on this machine."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return {
        "processes": _below(),
        "containers": everything.containers(_id(place)),
        # The lock for building the image stays for later builds.
        "folders": sorted(p.name for p in (place / "tmp").iterdir() if p.suffix != ".lock"),
        "mounts": [line for line in mounts if str(place) in line],
        "groups": _groups(place),
        "entries": [path.name for path in _entries(place)],
    }


def _below() -> list[str]:
    """Return the descendants of this process, and reap zombies."""
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
    """Return the control groups of the environments recorded here."""
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
    """Remove what should not be left."""
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
    """Return an ID for the execution that is unique to this run of the program."""
    return f"{place.name}-{os.getpid()}"


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), **json.loads(sys.argv[2]))
