from __future__ import annotations

from tests.examples.conftest import EXAMPLES, Shell


# Shows F17
def test_an_input_it_does_not_have_is_refused_before_anything_runs(flowengine: Shell) -> None:
    done = flowengine("run", EXAMPLES / "hello.yaml", "-i", "nmae=Ada", code=3)

    assert "nmae" in done.err
    assert flowengine("--json", "list").json() == []
