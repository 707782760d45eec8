"""Count the code: `python -m scripts.mass [CHECKOUT]`.

Code lines are lines without blank ones, comments and docstrings. A room is a package, such as
`flowengine/kernel` or `tests/kernel`. `tests/budget.toml` limits the lines of each room.
"""

from __future__ import annotations

import io
import re
import statistics
import sys
import tokenize
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PRODUCT = ("flowengine", "nodes", "envs")
TESTS = "tests"
SMALL = 60
_LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
}  # fmt: skip
_BEGINS = {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
"""Tokens after which a statement begins."""
_PRIVATE = re.compile(r"\b_[a-z]\w*")
_DEFINED = re.compile(r"^ *(?:async )?def (_[a-z]\w*)", re.MULTILINE)


class Mass(NamedTuple):
    """The size of a checkout."""

    rooms: dict[str, int]
    """Code lines of each room. `product` and `tests` at the end are the sums."""
    modules: list[int]
    """Code lines of each module of the product."""
    loose: int
    """Modules beside the packages of `flowengine/`."""
    named_once: int
    """Private functions that are named once besides their definition."""


def measure(root: Path = ROOT) -> Mass:
    """Return the size of a checkout."""
    rooms, sums = Counter[str](), Counter[str]()
    defined, words = Counter[str](), Counter[str]()
    modules = []
    for top in (*PRODUCT, TESTS):
        for path in sorted((root / top).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            size = code_lines(source)
            rooms[_room_of(path.relative_to(root))] += size
            sums["tests" if top == TESTS else "product"] += size
            if top != TESTS:
                modules.append(size)
                words.update(_PRIVATE.findall(source))
                defined.update(_DEFINED.findall(source))
    loose = sum(not path.name.startswith("__") for path in (root / "flowengine").glob("*.py"))
    once = sum(number for name, number in defined.items() if words[name] == 2 * number)
    files = rooms.pop(TESTS, 0)
    named = {**rooms, "tests/*.py": files, "product": sums["product"], "tests": sums["tests"]}
    return Mass(named, modules, loose, once)


def _room_of(path: Path) -> str:
    return "/".join(path.parts[:2]) if len(path.parts) > 2 else path.parts[0]


def code_lines(source: str) -> int:
    """Return the number of code lines of a module."""
    lines, statement = set[int](), set[int]()
    only_text = True
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in _BEGINS:
            if not only_text:
                lines |= statement
            statement, only_text = set(), True
        elif token.type not in _LAYOUT:
            only_text = only_text and token.type == tokenize.STRING
            statement.update(range(token.start[0], token.end[0] + 1))
    return len(lines | (set() if only_text else statement))


def main() -> None:
    """Print the size of a checkout."""
    mass = measure(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
    for room, lines in mass.rooms.items():
        sys.stdout.write(f"{lines:8,}  {room}\n")
    small = sum(size < SMALL for size in mass.modules)
    middle = statistics.median(mass.modules)
    sys.stdout.write(
        f"modules: {len(mass.modules)}, median {middle:.0f} lines, {small} under {SMALL}, "
        f"{mass.loose} beside the packages of flowengine/\n"
        f"private functions named once besides their definition: about {mass.named_once}\n"
    )


if __name__ == "__main__":
    main()
