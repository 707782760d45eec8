"""The process that turns the HTML of pages into Markdown, one page after the other.

    python -I -c START OPTIONS

A page comes as two lengths of 4 bytes, then options as JSON and the HTML; the answer is a length of
4 bytes, then JSON. HTML of pages can be made to exhaust or crash its parser, so it is parsed in
nothing but a process that can be ended.
"""

from __future__ import annotations

import json
import resource
import struct
import sys
from collections.abc import Mapping
from typing import Any

START = (
    "import sys, json; options = json.loads(sys.argv[1]); sys.path[:0] = options['search_path']; "
    "from flowengine_envs.browser.markdown_worker import main; main(options)"
)
LENGTHS = struct.Struct(">II")
LENGTH = struct.Struct(">I")


def main(options: Mapping[str, Any]) -> None:
    """Convert pages until standard input ends.

    Args:
        options: `memory`, in bytes.
    """
    from flowengine_envs.documents.converters import convert
    from flowengine_envs.documents.document import Limits, Unreadable

    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    memory = options["memory"]
    soft = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while len(head := source.read(LENGTHS.size)) == LENGTHS.size:
        told, size = LENGTHS.unpack(head)
        asked, html = json.loads(source.read(told)), source.read(size)
        try:
            limits = Limits(characters=asked["characters"])
            found = convert(
                html, "page.html", "text/html; charset=utf-8", limits, base=asked["base"]
            )
            answer: dict[str, Any] = {
                "markdown": found.markdown,
                "title": found.title,
                "truncated": found.truncated,
            }
        except MemoryError:
            answer = {"error": "it takes more memory than it may"}
        except Unreadable as error:
            answer = {"error": str(error)}
        data = json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")
        sink.write(LENGTH.pack(len(data)) + data)
        sink.flush()
