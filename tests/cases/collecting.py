"""Collects the cases of `*.cases.yaml`, one test per case, one for its crashes, one in Temporal.

pytest tests/language/finally.cases.yaml
pytest 'tests/language/finally.cases.yaml::after an error it runs before the handler'
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cases.form import SUFFIX, Played, filled, places, read_cases

EFFECTS = Path(__file__).parent.parent / "engines" / "effects.py"


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> pytest.Collector | None:
    """Collect a file of cases."""
    if file_path.name.endswith(SUFFIX):
        return CaseFile.from_parent(parent, path=file_path)
    return None


class CaseFile(pytest.File):
    """A file of cases."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the plays of each case."""
        for played in read_cases(self.path):
            seldom = [pytest.mark.endurance] if "seldom" in played.told else []
            yield self._item(played, "", *seldom)
            if "crash" in played.plays:
                yield self._item(played, "crash", pytest.mark.endurance)
            if "temporal" in played.plays:
                yield self._item(played, "temporal", pytest.mark.endurance(sample=100))

    def _item(self, played: Played, way: str, *marks: Any) -> CaseItem:
        name = f"{played.id} [{way}]" if way else played.id
        item = CaseItem.from_parent(self, name=name, callobj=_test(played, way), played=played)
        item.in_temporal = way == "temporal"
        for mark in marks:
            item.add_marker(mark)
        return item


class CaseItem(pytest.Function):
    """A case in the ways that are cheap, with crashes, or in Temporal."""

    in_temporal = False

    def __init__(self, *, played: Played, **more: Any) -> None:
        super().__init__(**more)
        self.played = played

    def repr_failure(self, excinfo: Any, style: Any = None) -> str:
        """Return what was expected and what came, with its place in the file."""
        error = excinfo.value
        lines = []
        for fault in getattr(error, "faults", [error]):
            loc = (getattr(fault, "loc", None) or ())[2:]
            line = getattr(fault, "line", 0) or self.played.line(loc)
            lines.append(f"{self.path}:{line}: {self.name}")
            lines.append(str(getattr(fault, "message", None) or fault or repr(fault)))
        if not hasattr(error, "faults") and not isinstance(error, AssertionError):
            lines += traceback.format_exception(error)
        return "\n".join([*lines, *getattr(error, "__notes__", ())])

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the place of the case."""
        return self.path, self.played.line() - 1, self.name


def _test(played: Played, way: str) -> Any:
    """Return a function that plays a case."""

    def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tenth: int | None) -> None:
        from tests.language.stage import TOOLS

        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        files = {"tools.py": TOOLS, "effects.py": EFFECTS.read_text(), **played.files}
        if played.flow is not None:
            files["flow.yaml"] = played.flow
        for file, text in filled(files, places(tmp_path)).items():
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).write_text(text)
        try:
            _play(played, way, tmp_path, monkeypatch, tenth)
        finally:
            sys.modules.pop("tools", None)

    return play


def _play(
    played: Played, way: str, folder: Path, patch: pytest.MonkeyPatch, tenth: int | None
) -> None:
    if played.do:
        from tests.cases.operated import operated, operated_with_crashes

        if way == "crash":
            operated_with_crashes(played, patch, tenth)
        else:
            operated(played, patch)
        return
    from flowengine.engines.flows import load
    from tests.cases.in_engine import in_engine, with_crashes
    from tests.cases.plays import in_check, in_player, in_simulator

    if played.plays == ("check",):
        in_check(played, folder)
        return
    flow = load(folder / "flow.yaml")
    if way == "crash":
        with_crashes(played, flow, folder, tenth)
        return
    ways = {"simulator": in_simulator, "player": in_player, "engine": in_engine}
    for name in played.plays:
        if name in ways and not (name == "player" and played.then):
            ways[name](played, flow, folder)
