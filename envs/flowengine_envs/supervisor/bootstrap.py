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

if sys.version_info < (3, 9):
    sys.exit("python3 is version %d.%d here, and a sandbox needs 3.9 or later: use an image with a "
             "newer one, or install a newer one where there is no image" % sys.version_info[:2])

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
        others: Names of the modules that it imports. The packages they are in are sent empty.

    Returns:
        The length and the sources, as `SCRIPT` reads them.
    """
    sources: dict[str, str] = {}
    for name in (f"{_HERE}.{each}" for each in (main, *others)):
        package, _, _module = name.rpartition(".")
        while package:
            sources[package] = ""
            package = package.rpartition(".")[0]
        sources[name] = _source(name)
    text = json.dumps({"main": f"{_HERE}.{main}", "sources": sources}).encode()
    return struct.pack(">I", len(text)) + text


def supervisor() -> bytes:
    """Return the program of a supervisor."""
    return program(
        "server",
        "bootstrap",
        "children",
        "code_answers",
        "commands",
        "disk_usage",
        "file_requests",
        "files",
        "forwarding",
        "frames",
        "inotify",
        "keepers",
        "killing",
        "loop",
        "mapped_files",
        "output",
        "plain",
        "programs",
        "python_worker",
        "quota",
        "system",
        "terminal.answers",
        "terminal.command",
        "terminal.ending",
        "terminal.files",
        "terminal.foreground",
        "terminal.handover",
        "terminal.lines",
        "terminal.looks",
        "terminal.requests",
        "terminal.shell",
        "terminal.stream",
        "terminal.terminal",
        "terminal.text",
        "terminal.tmux",
        "terminal.transcript",
        "terminal.waiters",
        "terminal.watching",
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
