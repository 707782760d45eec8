"""The example kind of `docs/extending.md`, which runs programs in a sandbox, works."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine import Engine
from flowengine.execution_environment import register_provider, unregister_provider
from flowengine.testing.environment_conformance import CHECKS, Check, ProviderCase
from flowengine_envs.sandboxes.processes import has
from tests.envs import counters
from tests.envs.counters import Counter, Counters

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
needs_bwrap = pytest.mark.skipif(
    not has("bwrap"), reason="no bubblewrap: apt-get install bubblewrap"
)


def count(resource: Counter) -> int:
    resource.put("lines.txt", b"one\ntwo\n")
    return resource.lines("lines.txt")


CASE = ProviderCase(Counters, {"kind": "counter", "provider": "namespace"}, use=count)


@needs_bwrap
@pytest.mark.endurance
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_kind_in_a_sandbox_conforms(check: Check) -> None:
    check(CASE)


@needs_bwrap
def test_a_step_hands_files_to_it_and_takes_others(tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text("""
flowengine: 1
id: counting
environments: {box: {kind: counter}}
steps:
  - id: write
    run: {script: "printf 'a\\nb\\nc\\n' > notes.txt", files: {notes: notes.txt}}
  - {id: count, in: box, run: {command: ["${{ steps.write.output.files.notes }}"]}}
outputs: {counts: "${{ steps.count.output.value }}"}
""")
    register_provider(Counters())
    try:
        with Engine(None) as engine:
            result = engine.run(str(flow))
    finally:
        unregister_provider("counter")
    assert result.outputs is not None, result.error
    assert list(result.outputs["counts"].values()) == [3]


def test_the_page_shows_it() -> None:
    shown = Path(counters.__file__).read_text(encoding="utf-8")
    assert f"```python\n{shown}```" in PAGE.read_text(encoding="utf-8")
