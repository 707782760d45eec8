"""Importing the package is cheap."""

from __future__ import annotations

import subprocess
import sys


def test_importing_the_package_loads_nothing_heavy() -> None:
    program = (
        "import sys, flowengine.tool_environment; "
        "print([name for name in ('pydantic', 'asyncio', 'msgpack') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout == "[]\n"
