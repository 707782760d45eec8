"""The examples in the page about the tool environment work."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

from tests import command_line

PAGE = Path(__file__).parents[2] / "docs" / "tool-environment.md"


def test_the_programs_of_the_page_run_and_print_what_it_says(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    programs = re.findall(
        r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", text, re.MULTILINE | re.DOTALL
    )

    assert len(programs) == 4
    for program, expected in programs:
        with chdir(tmp_path):
            done = command_line.python("-c", program)
        assert (done.out, done.err) == (expected, "")


def test_importing_the_package_loads_nothing_heavy() -> None:
    program = (
        "import sys, flowengine.tool_environment; "
        "print([name for name in ('pydantic', 'asyncio', 'msgpack') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout == "[]\n"
