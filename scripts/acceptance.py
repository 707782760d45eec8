"""The acceptance table with the tests of its rows: `python -m scripts.acceptance` prints it.

A comment `# Shows F30, F31` (in Markdown `<!-- shows F30 -->`) directly above a test marks that
test, and anywhere else its file.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "acceptance.md"
MARK = re.compile(
    r"^ *(?:# Shows|<!-- shows) ([A-Z]\w+(?:, [A-Z]\w+)*)(?: -->)?\n"
    r" *(?:(?:async )?def (\w+)|class (\w+)|- name: (.+)|## (.+))?",
    re.MULTILINE,
)
ROW = re.compile(r"^\| (([A-Z]\d+[a-z]?).*) \| (.*) \|$", re.MULTILINE)


def shown() -> dict[str, list[str]]:
    """Return the addresses of the tests of each row."""
    tests: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("*.*")):
        if path.suffix in {".py", ".yaml", ".md"}:
            for rows, *names in MARK.findall(path.read_text(encoding="utf-8")):
                address = "::".join([path.relative_to(ROOT).as_posix(), *filter(None, names)])
                for row in rows.split(", "):
                    tests.setdefault(row, []).append(address)
    return tests


def with_tests(page: str) -> str:
    """Return the page with a column that lists the tests of each row."""
    tests = shown()

    def row(match: re.Match[str]) -> str:
        listed = ", ".join(f"`{test}`" for test in tests.get(match[2], ()))
        return f"{match[0]} {listed or 'none'} |"

    page = page.replace("| row | what | state |", "| row | what | state | tests |")
    return ROW.sub(row, page.replace("|---|---|---|", "|---|---|---|---|"))


if __name__ == "__main__":
    sys.stdout.write(with_tests(PAGE.read_text(encoding="utf-8")))
