from __future__ import annotations

from tests.examples.conftest import EXAMPLES, Shell


def test_it_greets_who_is_named(flowengine: Shell) -> None:
    done = flowengine("run", EXAMPLES / "hello.yaml", "-i", "name=Ada")

    assert done.out == "message: Hello, Ada!\n"


def test_it_greets_the_world_by_default_as_one_json_object(flowengine: Shell) -> None:
    done = flowengine("--json", "run", EXAMPLES / "hello.yaml").json()

    assert done["status"] == "succeeded"
    assert done["outputs"] == {"message": "Hello, world!"}


# Shows F17
def test_an_input_it_does_not_have_is_refused_before_anything_runs(flowengine: Shell) -> None:
    done = flowengine("run", EXAMPLES / "hello.yaml", "-i", "nmae=Ada", code=3)

    assert "nmae" in done.err
    assert flowengine("--json", "list").json() == []
