"""The providers of `docs/extending.md` work."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.execution_environment import third_party

ROOT = Path(__file__).parents[2]
POINT = """[flowengine.envs]
calculator = flowengine_calculator:Calculators
licensed = licensed_calculator:Licensed
"""
NAMES = {"Calculators": "flowengine_calculator", "Licensed": "licensed_calculator"}


def programs(page: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_provider_of_the_page_is_the_one_that_passes_the_suite() -> None:
    [shown] = [text for text in programs("extending.md") if "class Calculators(" in text]
    tested = Path(third_party.__file__).read_text(encoding="utf-8")

    assert shown.split("\n")[2:] == tested.split("\n")[1:]  # after the name and the docstring


def install(tmp_path: Path) -> None:
    """Create a folder in which the example package is installed."""
    for name in ("Calculators", "Licensed"):
        [module] = [text for text in programs("extending.md") if f"class {name}(" in text]
        (tmp_path / f"{NAMES[name]}.py").write_text(module)
    info = tmp_path / "flowengine_calculator-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: flowengine-calculator\nVersion: 1\n"
    )
    (info / "entry_points.txt").write_text(POINT)


@pytest.mark.endurance
def test_a_step_runs_in_what_the_second_provider_of_the_page_opens(tmp_path: Path) -> None:
    install(tmp_path)
    (tmp_path / "sums.yaml").write_text("""
flowengine: 1
id: sums
secrets: {LICENSE: {env: LICENSE}}
environments: {box: {kind: licensed, config: {license: "${{ secrets.LICENSE }}"}}}
steps:
  - {id: add, in: box, run: 2+3}
  - {id: more, python: "using:add", with: {n: "${{ steps.add.output.value }}"}}
outputs: {total: "${{ steps.more.output }}"}
""")
    (tmp_path / "using.py").write_text(
        "from flowengine_calculator import Calculator\n"
        "def add(box: Calculator, n: int) -> int:\n    return box.add(n, 10)\n"
    )

    done = subprocess.run(
        [sys.executable, "-m", "flowengine", "--log-level", "info", "run", "sums.yaml"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin", "LICENSE": "SEKRET"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "total: 15\n", done.stderr
    assert "licensed by ***" in done.stderr
    assert "SEKRET" not in done.stderr
