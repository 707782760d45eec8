# Shows E21
"""The classes of type hints are not imported (also `hinted_environments.cases.yaml`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.endurance
def test_a_check_imports_nothing_that_opens_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This covers the function's module and the packages behind environments."""
    monkeypatch.chdir(tmp_path)
    Path("flow.yaml").write_text(
        "flowengine: 1\nid: it\nenvironments: {box: {kind: docker}}\n"
        'steps: [{id: a, python: "light:count"}]\n'
    )
    Path("light.py").write_text(
        "from flowengine_envs.kinds.docker.containers import Containers\n"
        "def count(it: Containers): ...\n"
    )
    heavy = ("docker", "mcp", "light")
    program = (
        "import sys; from flowengine.flow.compile import compile_file; compile_file('flow.yaml');"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.stdout, done.stderr) == ("[]\n", "")
