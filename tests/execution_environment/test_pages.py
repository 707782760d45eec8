"""The programs of `docs/environments.md` and the provider of `docs/extending.md` work."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.execution_environment import third_party

ROOT = Path(__file__).parents[2]
POINT = "[flowengine.envs]\ncalculator = flowengine_calculator:Calculators\n"


def programs(page: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_provider_of_the_page_is_the_one_that_passes_the_suite() -> None:
    [shown] = [text for text in programs("extending.md") if "class Calculators(" in text]
    tested = Path(third_party.__file__).read_text(encoding="utf-8")

    assert shown.partition("\n")[2] == tested.partition("\n")[2]


def test_once_it_is_installed_the_programs_of_the_page_work(tmp_path: Path) -> None:
    [module] = [text for text in programs("extending.md") if "class Calculators(" in text]
    info = tmp_path / "flowengine_calculator-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: flowengine-calculator\nVersion: 1\n"
    )
    (info / "entry_points.txt").write_text(POINT)
    (tmp_path / "flowengine_calculator.py").write_text(module)
    using, asking = [text for text in programs("environments.md") if "calculator" in text]
    asking += (
        "\nfrom flowengine.execution_environment import manager\n"
        "spec = {'kind': 'calculator', 'approval': 'required'}\n"
        "print(manager().ensure(spec).resource.add(20, 3))\n"
    )

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"{using}\n{asking}"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("5\n23\n", "")
    assert not list((tmp_path / ".flowengine").glob("environments/entries/*"))
