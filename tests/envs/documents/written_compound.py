"""Minimal compound files, as Office programs before 2007 and Outlook write them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

_SECTOR, _SMALL = 512, 64
_NONE, _END = 0xFFFFFFFF, 0xFFFFFFFE


def compound(streams: Mapping[str, bytes]) -> bytes:
    """Return a compound file with these short streams. The path of a stream names its storages."""
    assert all(len(content) < 4096 for content in streams.values())
    names = sorted({path[:at] for path in streams for at, sign in enumerate(path) if sign == "/"})
    paths = ["", *names, *streams]
    small, chain = b"", list[int]()
    entries: list[list[Any]] = []
    for path in paths:
        content = streams.get(path, b"")
        count = -(-len(content) // _SMALL)
        start = len(chain) if count else _END
        chain += [*range(len(chain) + 1, len(chain) + count), *([_END] if count else [])]
        small += content.ljust(count * _SMALL, b"\0")
        kids = [at for at, other in enumerate(paths) if other and _parent(other) == path]
        beside = [at for at, other in enumerate(paths) if other and _parent(other) == _parent(path)]
        later = [at for at in beside if at > paths.index(path)] if path else []
        name = (path.rpartition("/")[2] or "Root Entry").encode("utf-16-le") + b"\0\0"
        kind = 5 if not path else 2 if path in streams else 1
        child = kids[0] if kids and kind != 2 else _NONE
        right = later[0] if later else _NONE
        entries.append([name, kind, right, child, start, len(content)])
    directory = _sectors(len(entries) * 128)
    table = _sectors(len(chain) * 4)
    root = entries[0]
    root[4], root[5] = directory + table if small else _END, len(small)
    listed = b"".join(map(_entry, entries)).ljust(directory * _SECTOR, b"\0")
    small_table = struct.pack(f"<{len(chain)}I", *chain).ljust(table * _SECTOR, b"\xff")
    body = listed + small_table + small.ljust(_sectors(len(small)) * _SECTOR, b"\0")
    fat: list[int] = []
    for count in (directory, table, _sectors(len(small))):
        fat += [*range(len(fat) + 1, len(fat) + count), *([_END] if count else [])]
    first = len(fat)
    tables = _sectors((first + 1) * 4)
    fat += [0xFFFFFFFD] * tables
    head = struct.pack(
        "<8s16x5H6x9I",
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        *(0x3E, 3, 0xFFFE, 9, 6),
        *(0, tables, 0, 0, 4096, directory if table else _END, table, _END, 0),
    )
    listed_tables = struct.pack("<109I", *range(first, first + tables), *[_NONE] * (109 - tables))
    written = struct.pack(f"<{len(fat)}I", *fat).ljust(tables * _SECTOR, b"\xff")
    return head + listed_tables + body + written


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _sectors(size: int) -> int:
    return -(-size // _SECTOR)


def _entry(entry: list[Any]) -> bytes:
    name, kind, right, child, start, size = entry
    places = (_NONE, right, child)
    return struct.pack("<64sHBB3I36xIQ", name, len(name), kind, 1, *places, start, size)
