"""The commands that pages and messages name exist, and have the options named with them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from flowengine.cli.parsing.command_table import COMMANDS, FAMILIES, load, parser_of

ROOT = Path(__file__).parents[2]
NAMED = re.compile(
    r"(?:[`'\"$:|&>(] ?|\bor )flowengine"
    r"(?: --(?:store|server|durability|log-level) \S+| -[\w-]+)*"  # options of the program
    r"((?: [a-z]+)+)"
    r"((?:(?!\. )[^`'\"|;&)\n])*)"
)
"""A command line in a text: its first words, and the rest."""


def texts() -> Iterator[tuple[Path, str]]:
    """Yield the texts that users see, with the file of each."""
    pages = (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*"))
    for path in (*pages, *ROOT.glob("flowengine/**/*.html"), *ROOT.glob("flowengine/**/codes/*")):
        if path.suffix in {".md", ".yaml", ".py", ".html", ".sh"}:
            yield path, path.read_text(encoding="utf-8")
    for path in (
        one for top in ("flowengine", "nodes", "envs") for one in ROOT.glob(f"{top}/**/*.py")
    ):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (p.value if isinstance(p, ast.Constant) else " X" for p in node.values)
                yield path, "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield path, f" {node.value}" if " " in node.value else ""


def test_named_commands_exist_and_have_the_named_options() -> None:
    options = {words: parser_of(words, load(words))._option_string_actions for words in COMMANDS}
    named, wrong = set(), set()
    for path, text in texts():
        for words, rest in NAMED.findall(text):
            first, *more = words.split()
            name = " ".join([first, *more[:1]]) if first in FAMILIES else first
            given = re.findall(r" (--?[a-z][\w-]*)", rest)
            named.add(name)
            if name not in FAMILIES and not options.get(name, {}).keys() >= {*given}:
                wrong.add(f"{path.relative_to(ROOT)}: {name}{rest}")

    assert not wrong, "\n".join(sorted(wrong))
    assert named >= COMMANDS.keys()
