"""Search of directories for flow files and for test case files."""

from __future__ import annotations

import os
from collections.abc import Iterable

from flowengine.errors import NotFound
from flowengine.flow.source.yaml_source import says

SUFFIX = ".test.yaml"
"""The suffix of test case files."""


def files_below(folder: str, *endings: str) -> list[str]:
    """Return the files below a directory, sorted by name, without hidden directories.

    Args:
        folder: The directory.
        *endings: Suffixes of their names.
    """
    paths: list[str] = []
    for base, folders, files in os.walk(folder):
        folders[:] = [
            folder for folder in folders if not folder.startswith(".") and folder != "node_modules"
        ]
        paths += (
            os.path.normpath(os.path.join(base, file))
            for file in files
            if file.endswith(endings) and _is_to_be_read(os.path.join(base, file))
        )
    return sorted(paths)


def flow_files(paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the flow files that a list of files and directories stands for.

    Args:
        paths: Files, which are returned with any content, and directories, whose YAML files are
            returned if they contain `flowengine:`.

    Returns:
        Flow files without duplicates, and the other YAML files of the directories.

    Raises:
        NotFound: A directory has no flow file.
    """
    found: list[str] = []
    others: list[str] = []
    for path in paths:
        if not os.path.isdir(path):
            found.append(path)
            continue
        inside = [file for file in files_below(path, ".yaml", ".yml") if not file.endswith(SUFFIX)]
        flows = [file for file in inside if _says_so(file)]
        if not flows:
            raise NotFound(
                f"there is no flow file in {path}",
                hint="a flow file is YAML with 'flowengine: 1'. flowengine init writes one",
            )
        found += flows
        others += [file for file in inside if file not in flows]
    return list(dict.fromkeys(found)), list(dict.fromkeys(others))


def _is_to_be_read(path: str) -> bool:
    """Return whether a path is a file, or a link whose target its reader reports."""
    return os.path.isfile(path) or (os.path.islink(path) and not os.path.exists(path))


def _says_so(path: str) -> bool:
    """Return whether a file declares itself a flow. An unreadable one is reported by its reader."""
    try:
        with open(path, "rb") as file:
            return says(file.read().decode("utf-8", "replace"), "flowengine")
    except OSError:
        return True
