"""The compiled form is stored and used by open executions, so it must not change by accident."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from flowengine.flow.compile import compile_file
from tests.flow.examples import FILES, compiled

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "compiled_examples.json"


@pytest.mark.endurance
def test_a_flow_that_is_compiled_again_is_the_same_to_the_last_byte() -> None:
    """Compilation and linking must not modify data that the compiler caches."""
    path = ROOT / "examples/research_crew/research.yaml"
    first, *again = (json.dumps(compile_file(path).flow, default=bytes.hex) for _ in range(3))

    assert again == [first, first]


def test_the_examples_compile_to_the_same_bytes() -> None:
    """`UPDATE_GOLDEN=1` accepts the current result for an edited example."""
    found = {}
    for path in FILES:
        flow, structural_hash, *_ = compiled(path)
        text = json.dumps(flow, default=bytes.hex).replace(str(ROOT), "")
        digest = hashlib.sha256(text.encode()).hexdigest()
        found[path.relative_to(ROOT).as_posix()] = f"{structural_hash} {digest}"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")

    assert len(found) > 10
    assert found == json.loads(GOLDEN.read_text(encoding="utf-8"))
