"""How a supervisor, and each worker, gets its own program: from the descriptor it then talks over.

`python3 -I -c SCRIPT NUMBER` reads four bytes of length and a JSON object `{"main": module,
"sources": {module: text}}` from descriptor NUMBER, makes the modules importable and calls
`main(NUMBER)`. So nothing has to be copied into a sandbox, and nothing there can be changed by the
code that runs in it.
"""

from __future__ import annotations

import json
import struct
from functools import lru_cache
from importlib.abc import InspectLoader
from importlib.util import find_spec

SCRIPT = """\
import importlib.abc, importlib.util, json, os, sys

def read(count):
    data = b""
    while len(data) < count:
        part = os.read(number, count - len(data))
        if not part:
            os._exit(1)
        data += part
    return data

class Sent(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    def find_spec(self, name, path=None, target=None):
        if name in sources:
            package = any(other.startswith(name + ".") for other in sources)
            return importlib.util.spec_from_loader(name, self, is_package=package)
    def get_source(self, name):
        return sources[name]
    def get_code(self, name):
        return compile(sources[name], name, "exec", dont_inherit=True)
    def is_package(self, name):
        return any(other.startswith(name + ".") for other in sources)

number = int(sys.argv[1])
sent = json.loads(read(int.from_bytes(read(4), "big")))
sources = sent["sources"]
sys.meta_path.insert(0, Sent())
importlib.import_module(sent["main"]).main(number)
"""

_HERE = __name__.rpartition(".")[0]


@lru_cache
def program(main: str, *others: str) -> bytes:
    """Return what is to be written first to a supervisor or worker.

    Args:
        main: Name of the module in this package that has `main`.
        others: Names of the modules that it imports.

    Returns:
        The length and the sources, as `SCRIPT` reads them.
    """
    sources = dict.fromkeys((_HERE.partition(".")[0], _HERE), "")
    for name in (main, *others):
        sources[f"{_HERE}.{name}"] = _source(f"{_HERE}.{name}")
    text = json.dumps({"main": f"{_HERE}.{main}", "sources": sources}).encode()
    return struct.pack(">I", len(text)) + text


def supervisor() -> bytes:
    """Return the program of a supervisor."""
    return program(
        "server",
        "bootstrap",
        "children",
        "commands",
        "file_requests",
        "files",
        "foreground",
        "forwarding",
        "frames",
        "inotify",
        "keepers",
        "loop",
        "output",
        "plain",
        "programs",
        "python_worker",
        "system",
        "terminal",
        "terminal_answers",
        "terminal_command",
        "terminal_files",
        "terminal_lines",
        "terminal_requests",
        "terminal_shell",
        "terminal_stream",
        "terminal_text",
        "terminal_waiters",
        "tmux",
        "transcript",
        "worker",
    )


def _source(name: str) -> str:
    """Return the text of a module, wherever it was imported from: inside it was sent, too."""
    spec = find_spec(name)
    assert spec is not None
    assert isinstance(spec.loader, InspectLoader)
    source = spec.loader.get_source(name)
    assert source is not None
    return source
