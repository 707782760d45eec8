"""Interpreters of the user's own installation, and the files that a sandbox needs to run one.

`config: {interpreter: ~/.venv/bin/python}` names a program of this machine. It runs only in the
sandbox, because a flow file may name any program. Its installation is determined from its links.
Sandboxes that can write next to it can change these, so a link may lead only to interpreters.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from flowengine.sdk import EnvironmentUnavailable, Refused
from flowengine.sdk.environments import Request, Spec
from flowengine_envs.sandboxes.mounts import check

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Directories that every sandbox of this machine sees."""
_WORKSPACE = "/workspace"
OWN = ("/tmp", "/dev/shm", _WORKSPACE, "/home/flow")
"""Directories that a sandbox has itself."""
_MARKS = ("pyvenv.cfg", "lib*/python3*/os.py", "include/node/node.h", "lib/node_modules/npm")
"""Patterns that identify an interpreter's directory, which matches at least one."""
_BESIDE = {"uvx": ("uv",)}
"""Programs that another program expects next to itself."""
_LINKS = 40
"""Maximum number of links that the kernel follows."""


class Installation(NamedTuple):
    """An interpreter and the files that it needs."""

    program: str
    """Its path, on the machine and inside."""
    folders: dict[str, Path]
    """Directory or program inside → path on the machine, without those of the system."""


def installation(spec: Spec, request: Request | None = None) -> Installation | None:
    """Return the interpreter of the machine that a spec names, if any.

    Args:
        spec: The environment's spec.
        request: The request to open it, if there is one. It lists the directories hidden from all
            sandboxes.

    Returns:
        The interpreter. None: the sandbox's own is used.

    Raises:
        EnvironmentUnavailable: The program does not exist, or the sandbox cannot contain it.
        Refused: Its directory must not be shown to a sandbox.
    """
    named = getattr(spec.config, "interpreter", None)
    if named is None:
        return None
    if spec.provider not in ("namespace", "host"):
        raise EnvironmentUnavailable(
            f"{spec}: 'interpreter' is a program of this machine, which '{spec.provider}' does not "
            f"run: use provider: namespace, or name an image that has one (config: image, "
            f"{spec.kind})"
        )
    program = os.path.abspath(os.path.join(spec.folder, os.path.expanduser(named)))
    if not os.path.isfile(program):
        raise EnvironmentUnavailable(f"{spec}: there is no interpreter {program}")
    if not os.access(program, os.X_OK):
        raise EnvironmentUnavailable(f"{spec}: the interpreter {program} is not executable")
    if spec.provider == "host":
        return Installation(program, {})
    libraries = [Path(folder) for folder in getattr(spec.config, "libraries", ())]
    whole = getattr(spec.config, "whole_folder", True)
    shown = _shown(spec, program, [*_parts(program, whole=whole), *libraries])
    _check(spec, program, shown, request)
    return Installation(program, shown)


def _shown(spec: Spec, program: str, parts: Iterable[Path]) -> dict[str, Path]:
    """Return the paths to show, parents before children."""
    paths: dict[str, Path] = {}
    for folder in parts:
        real = Path(os.path.realpath(folder))
        for inside in (str(folder), str(real)):
            if is_below(inside, _SYSTEM):
                continue
            if any(is_below(own, (inside,)) for own in OWN) or is_below(inside, (_WORKSPACE,)):
                raise EnvironmentUnavailable(
                    f"{spec}: {program} needs {inside}, where a sandbox has its own files: "
                    "install it in another directory"
                )
            paths[inside] = real
    return dict(sorted(paths.items()))


def _check(spec: Spec, program: str, shown: Mapping[str, Path], request: Request | None) -> None:
    """Refuse hidden directories, and links to directories that contain no interpreter."""
    named = Path(os.path.realpath(spec.folder), os.path.relpath(program, spec.folder))
    own = {_prefix(Path(each).parent) for each in (program, os.path.normpath(named))}
    libraries = {*getattr(spec.config, "libraries", ())}
    state = None if request is None else request.workspace.parent
    for inside, real in shown.items():
        if real.is_file():
            continue
        try:
            check(real, state, () if request is None else request.guarded)
        except Refused as refused:
            raise Refused(
                f"{spec}: {program} cannot be used: {refused.message}. Install it in a "
                "separate directory"
            ) from None
        is_named = any(real.is_relative_to(each) for each in own)
        is_named = is_named or inside in libraries or str(real) in libraries
        if not is_named and not _is_marked(real):
            raise Refused(
                f"{spec}: {program} cannot be used: a link leads to {real}, not a directory "
                "of an interpreter. Name the intended program"
            )


def _parts(program: str, *, whole: bool) -> Iterator[Path]:
    """Yield the directories of a program and of its links' targets.

    Args:
        program: Its path.
        whole: Whether its directory is always included. If not, a program outside an interpreter's
            directory is shown alone, because other files there are unrelated.
    """
    for path in _chain(program):
        prefix = _prefix(path.parent)
        if whole or (_is_marked(prefix) and prefix != Path("~/.local").expanduser()):
            yield prefix
        else:
            yield path
            yield from filter(
                Path.is_file, (path.parent / name for name in _BESIDE.get(path.name, ()))
            )


def _is_marked(folder: Path) -> bool:
    return any(any(folder.glob(mark)) for mark in _MARKS)


def _chain(program: str) -> Iterator[Path]:
    """Yield a program and the targets of its links, one after another."""
    path = Path(program)
    for _ in range(_LINKS):
        yield path
        if not path.is_symlink():
            return
        path = Path(os.path.abspath(path.parent / os.readlink(path)))


def _prefix(folder: Path) -> Path:
    """Return the directory of an installation, from the directory of its programs."""
    return folder.parent if folder.name == "bin" else folder


def is_below(path: str, folders: Iterable[str]) -> bool:
    """Return whether a path is one of several directories, or in one."""
    return any(Path(path).is_relative_to(folder) for folder in folders)
