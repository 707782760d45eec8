"""Reports words that this project's texts avoid: `python -m scripts.terms`.

Checked are the pages, and the docstrings, comments and messages of the packages in `PACKAGES`.
One term for each idea, the one of the field, and American spelling.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "flowengine/flow/codes"]
PACKAGES = ["flowengine", "nodes", "envs"]
WORDS = "docs/contributing/words.md"
"""The page whose last table has a pattern in each row, what to write instead, and where."""
FOUND = [
    (re.compile(r"\b(?:" + pattern.replace(r"\|", "|") + r")\b"), instead, where)
    for pattern, instead, where in re.findall(
        r"^\| `(.+)` \| (.+) \| ([a-z, ]+) \|$", (ROOT / WORDS).read_text("utf-8"), re.MULTILINE
    )
]
CODE = re.compile(r"`[^`]*`|'[^' ]*'|\"[^\" ]*\"|\S*[/_.]\w\S*|<[^>]*>|^\s+\w+: ")
"""Parts of a line that are quoted or are not words: code, paths, names of parameters."""
LEFT_OUT = {WORDS, "docs/contributing/states.md", "flowengine/testing/environment_conformance.py"}
"""The list itself, a page made from tables in the code, a module with a program as text."""


def main() -> int:
    """Report each word, with its place.

    Returns:
        The exit code: 1 if there is one.
    """
    found = [*_in_pages(), *_in_packages()]
    for place, word, instead in found:
        print(f"{place}: {word!r}: write {instead}")  # noqa: T201
    return 1 if found else 0


def _in_pages() -> Iterator[tuple[str, str, str]]:
    for name in PAGES:
        path = ROOT / name
        for page in sorted(path.rglob("*.md")) if path.is_dir() else [path]:
            if str(page.relative_to(ROOT)) in LEFT_OUT:
                continue
            text = page.read_text(encoding="utf-8")
            prose = re.sub(r"^```.*?^```", _blank, text, flags=re.MULTILINE | re.DOTALL)
            yield from _in_lines(page, "pages", 1, prose)


def _in_packages() -> Iterator[tuple[str, str, str]]:
    for name in PACKAGES:
        for path in sorted((ROOT / name).rglob("*.py")):
            if str(path.relative_to(ROOT)) in LEFT_OUT:
                continue
            source = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(source)):
                text = node.value if isinstance(node, ast.Constant) else None
                if isinstance(text, str) and text.count(" ") > 1:
                    yield from _in_lines(path, "code", node.lineno, text)
            for token in tokenize.generate_tokens(io.StringIO(source).readline):
                if token.type == tokenize.COMMENT:
                    yield from _in_lines(path, "code", token.start[0], token.string)


def _in_lines(path: Path, kind: str, first: int, text: str) -> Iterator[tuple[str, str, str]]:
    for number, line in enumerate(text.split("\n"), first):
        prose = CODE.sub("", line)
        for pattern, instead, where in FOUND:
            for match in pattern.finditer(prose) if kind in where else ():
                yield f"{path.relative_to(ROOT)}:{number}", match[0], instead


def _blank(block: re.Match[str]) -> str:
    return "\n" * block[0].count("\n")


if __name__ == "__main__":
    sys.exit(main())
