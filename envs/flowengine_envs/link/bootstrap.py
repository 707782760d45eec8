"""Sends a supervisor or worker its own program, over the descriptor that it then communicates on.

`python3 -I -c SCRIPT NUMBER` reads two parts from descriptor NUMBER, each after its length in four
bytes: a JSON object `{"main": module, "magic": version of bytecode, "sources": {module: text}}`,
and the modules as bytecode. It makes the modules importable and calls `main(NUMBER)`. Nothing needs
to be copied into a sandbox, so the code that runs there cannot change the program.

Compiling these modules takes longer than anything else when a sandbox starts, so the engine
compiles them. A Python with another bytecode version compiles the sources itself.
"""

from __future__ import annotations

import json
import marshal
import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.util import MAGIC_NUMBER, find_spec
from types import CodeType
from typing import Any

from flowengine_envs.link.parts import part

SCRIPT = """\
import sys

if sys.version_info < (3, 9):
    sys.exit("python3 is version %d.%d here, and a sandbox needs 3.9 or later: use an image with a "
             "newer one, or install a newer one where there is no image" % sys.version_info[:2])

import gc
gc.disable()  # loading makes no garbage
import json, marshal, os
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import MAGIC_NUMBER

def read():
    return exactly(int.from_bytes(exactly(4), "big"))

def exactly(count):
    data = b""
    while len(data) < count:
        part = os.read(number, count - len(data))
        if not part:
            os._exit(1)
        data += part
    return data

class Sent:
    def find_spec(self, name, path=None, target=None):
        if name in sources:
            return ModuleSpec(name, self, is_package=self.is_package(name))
    def is_package(self, name):
        return any(other.startswith(name + ".") for other in sources)
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        exec(self.get_code(module.__name__), module.__dict__)
    def get_code(self, name):
        if compiled:
            return marshal.loads(compiled[name])
        return compile(sources[name], name, "exec", dont_inherit=True)
    def get_source(self, name):
        return sources[name]

number = int(sys.argv[1])
sent, bytecode = json.loads(read()), read()
sources = sent["sources"]
compiled = marshal.loads(bytecode) if sent["magic"] == MAGIC_NUMBER.hex() else None
sys.meta_path.insert(0, Sent())
main = import_module(sent["main"]).main
gc.enable()
main(number)
"""

_PACKAGE = __name__.partition(".")[0]


@lru_cache
def program(main: str, *others: str) -> bytes:
    """Return the first bytes to send to a supervisor or worker.

    Args:
        main: Module that contains `main`, by its name in `flowengine_envs`.
        others: Names of the modules that it imports, there or in another package of ours. Their
            packages are sent empty.

    Returns:
        The sources and the bytecode, as `SCRIPT` reads them.
    """
    sources, compiled = {}, {}
    for name in _with_packages([main, *others]):
        sources[name], code = _module(name)
        compiled[name] = marshal.dumps(code)
    head = {"main": f"{_PACKAGE}.{main}", "magic": MAGIC_NUMBER.hex(), "sources": sources}
    parts = json.dumps(head).encode(), marshal.dumps(compiled)
    return b"".join(map(part, parts))


def supervisor() -> bytes:
    """Return the program of a supervisor."""
    return program("inside.server", *_inside())


def first_process() -> bytes:
    """Return the program of the first process of a sandbox for one program."""
    return program("inside.first_process", *_inside())


def _inside() -> Iterator[str]:
    """Yield the modules that run inside of sandboxes."""
    yield from _modules("inside")
    yield from _modules("inside.terminal")
    for name in ("bootstrap", "code_answers", "frames", "parts", "plain", "masking", "words"):
        yield f"link.{name}"
    yield from ("workspaces.files", "workspaces.free_space")
    yield "flowengine_documents.terminal_text"
    for name in ("files.path_walk", "texts.exception_text", "texts.sizes"):
        yield f"flowengine.sdk.{name}"


def _modules(package: str) -> Iterator[str]:
    """Yield the names of the modules in a package."""
    spec = find_spec(f"{_PACKAGE}.{package}")
    assert spec is not None
    for folder in spec.submodule_search_locations or ():
        for name in sorted(os.listdir(folder)):
            if name.endswith(".py") and name != "__init__.py":
                yield f"{package}.{name[: -len('.py')]}"


def _with_packages(modules: Iterable[str]) -> Iterator[str]:
    """Yield the full names of modules, and of their packages."""
    for module in modules:
        full = module if module.startswith("flowengine") else f"{_PACKAGE}.{module}"
        parts = full.split(".")
        for count in range(1, len(parts) + 1):
            yield ".".join(parts[:count])


def _module(name: str) -> tuple[str, CodeType]:
    """Return the text and the code of a module, which are empty for a package.

    It may be called inside a sandbox, where modules come from the received program.
    """
    spec = find_spec(name)
    assert spec is not None
    if spec.submodule_search_locations is not None:
        return "", compile("", name, "exec")
    loader: Any = spec.loader
    return loader.get_source(name), _renamed(loader.get_code(name), name)


def _renamed(code: CodeType, file: str) -> CodeType:
    """Return code with another file name, so that it contains no path of this machine."""
    constants = tuple(
        _renamed(each, file) if isinstance(each, CodeType) else each for each in code.co_consts
    )
    return code.replace(co_filename=file, co_consts=constants)
