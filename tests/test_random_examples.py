"""Hypothesis draws the same examples in each run (`tests/conftest.py`)."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def drawn() -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []

    @settings(derandomize=True)
    @given(st.text(), st.integers())
    def draw(text: str, number: int) -> None:
        found.append((text, number))

    draw()
    return found


def test_what_is_loaded_meanwhile_changes_no_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = drawn()
    file = tmp_path / "loaded.py"
    file.write_text(f"FOUND = {[f'word {n}' for n in range(50)] + [*range(10_000, 10_050)]}")
    spec = spec_from_file_location("loaded", file)
    assert spec is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "loaded", module)
    assert spec.loader is not None
    spec.loader.exec_module(module)

    assert drawn() == before
