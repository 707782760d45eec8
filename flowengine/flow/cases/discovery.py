"""Folders in place of files: which flow files, which files of test cases lie below them."""

from __future__ import annotations

import os
from collections.abc import Iterable

from flowengine.errors import NotFound
from flowengine.flow.source.yaml_source import says

SUFFIX = ".test.yaml"
"""How the names of files of test cases end."""


def files_below(folder: str, *endings: str) -> list[str]:
    """Return the files below a folder, in order of their names; hidden folders are left out.

    Args:
        folder: The folder.
        *endings: How their names end.
    """
    found: list[str] = []
    for base, folders, files in os.walk(folder):
        folders[:] = [one for one in folders if not one.startswith(".") and one != "node_modules"]
        found += (os.path.normpath(os.path.join(base, one)) for one in files
                  if one.endswith(endings) and _is_to_be_read(os.path.join(base, one)))  # fmt: skip
    return sorted(found)


def flow_files(paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the flow files that are meant by files and folders.

    Args:
        paths: Files, each of which is meant whatever it holds, and folders, of which those are
            that say `flowengine:`.

    Returns:
        Flow files, each once, and YAML files of folders that are none.

    Raises:
        NotFound: A folder has no flow file.
    """
    found: list[str] = []
    others: list[str] = []
    for path in paths:
        if not os.path.isdir(path):
            found.append(path)
            continue
        inside = [one for one in files_below(path, ".yaml", ".yml") if not one.endswith(SUFFIX)]
        flows = [one for one in inside if _says_so(one)]
        if not flows:
            raise NotFound(
                f"there is no flow file in {path}",
                hint="a flow file is YAML and says 'flowengine: 1'; flowengine init writes one",
            )
        found += flows
        others += [one for one in inside if one not in flows]
    return list(dict.fromkeys(found)), list(dict.fromkeys(others))


def _is_to_be_read(path: str) -> bool:
    """Return whether a path is that of a file, or a link whose end is told by its reader."""
    return os.path.isfile(path) or (os.path.islink(path) and not os.path.exists(path))


def _says_so(path: str) -> bool:
    """Return whether a file says that it is a flow; an unreadable one is told by its reader."""
    try:
        with open(path, "rb") as file:
            return says(file.read().decode("utf-8", "replace"), "flowengine")
    except OSError:
        return True
