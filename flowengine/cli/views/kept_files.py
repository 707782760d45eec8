"""The files that an execution keeps, found in what is shown of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.errors import NotFound
from flowengine.sdk.file_names import clean_name, files_in

if TYPE_CHECKING:
    from flowengine.cli.session import CliSession

SHORTEST = 8
"""Number of digits of a digest that are shown, and that name a file at least."""


class KeptFile(NamedTuple):
    """A file that an execution keeps."""

    name: str
    """Its name, cleaned: no directories and no control characters."""
    size: int
    sha256: str
    where: str
    """The step whose result names it, or `inputs`, `outputs` or `approvals`."""


def kept_files(session: CliSession, execution: str) -> list[KeptFile]:
    """Return the files of an execution, each once, in the order in which they appeared.

    Args:
        session: The session.
        execution: Full id.
    """
    info: Any = session.engine.show(execution, plumbing=True)
    found: dict[str, KeptFile] = {}
    for where, value in _parts(info):
        for file in files_in(value):
            name, sha256 = clean_name(str(file["name"])), str(file["sha256"])
            size = file["size"] if isinstance(file["size"], int) else 0
            found.setdefault(sha256, KeptFile(name, size, sha256, where))
    return list(found.values())


def _parts(info: Any) -> Iterator[tuple[str, Any]]:
    yield "inputs", info.get("inputs")
    for step in info["steps"]:
        yield step["address"], step
    yield "approvals", info["waits"]
    yield "outputs", info.get("outputs")


def chosen(files: list[KeptFile], names: list[str]) -> list[KeptFile]:
    """Return the files with these names, or with digests that begin like this. None: all files.

    Raises:
        NotFound: There is none.
    """
    if not names:
        return files
    wanted: list[KeptFile] = []
    for name in names:
        by_name = [file for file in files if file.name == name]
        digits = name.lower() if len(name) >= SHORTEST else "-"
        matching = by_name or [file for file in files if file.sha256.startswith(digits)]
        if not matching:
            known = ", ".join(dict.fromkeys(file.name for file in files)) or "none"
            raise NotFound(f"the execution keeps no file '{name}'", hint=f"it keeps: {known}")
        wanted += matching
    return list(dict.fromkeys(wanted))
