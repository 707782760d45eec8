"""The flows below `examples/`, each compiled once for all tests of a process."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from flowengine.flow.compile import Compiled, compile_file

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = [
    path for path in sorted(EXAMPLES.glob("**/*.yaml")) if not {".test", ".eval"} & {*path.suffixes}
]


@cache
def compiled(file: Path) -> Compiled:
    """Return a compiled example."""
    return compile_file(file)
