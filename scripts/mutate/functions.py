"""The live functions of a program, and how their code is replaced."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType


class Functions:
    """The functions that exist in this process and were defined below a folder."""

    def __init__(self, root: Path) -> None:
        gc.unfreeze()  # the collector does not list frozen objects
        self._found: defaultdict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        for one in gc.get_objects():
            if isinstance(one, FunctionType) and one.__code__.co_filename.startswith(f"{root}/"):
                self._found[_identity(one.__code__)].append(one)
        gc.freeze()

    def replace(self, module: CodeType) -> None:
        """Replace the code of functions by that of a newly compiled module.

        References to them stay valid, such as those in classes, registries and closures.
        """
        for code in _inside(module):
            for function in self._found.get(_identity(code), ()):
                function.__code__ = code


def _inside(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _inside(one)


def _identity(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno
