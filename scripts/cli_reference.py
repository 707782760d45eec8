"""The reference of the command line, generated from the output of `--help`.

python -m scripts.cli_reference docs/cli.md
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from flowengine.cli.parsing.command_table import (
    COMMANDS,
    COMMON_OPTIONS,
    help_of_program,
    load,
    parser_of,
)

MARK = "<!-- From here on made by: python -m scripts.cli_reference docs/cli.md -->"


def reference() -> str:
    """Return the help of the program and of every command as Markdown."""
    os.environ["COLUMNS"] = "100"
    parts = [MARK, "", "## All commands", "", _block(help_of_program())]
    for words in COMMANDS:
        text = parser_of(words, load(words)).format_help()
        text = re.sub(rf"{re.escape(COMMON_OPTIONS)}\n.*\n\n|  -h, --help .*\n", "", text)
        parts += ["", f"### flowengine {words}", "", _block(text)]
    return "\n".join(parts) + "\n"


def main() -> None:
    """Replace the reference behind the mark in a page."""
    page = Path(sys.argv[1])
    before = page.read_text(encoding="utf-8").partition(MARK)[0]
    page.write_text(before + reference(), encoding="utf-8")


def _block(text: str) -> str:
    return f"```text\n{text.strip()}\n```"


if __name__ == "__main__":
    main()
