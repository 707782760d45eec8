"""Invalid declarations of environments: all errors are reported, and nothing is opened (S89)."""

from __future__ import annotations

import pytest

from tests.cli.conftest import CommandLine
from tests.own_environments import environments_in

FLOW = """\
flowengine: 1
id: broken
environments:
  one: {kind: bash, provider: nowhere}
  two: {kind: bash, colour: red}
  three: {kind: bash, limits: {time: soon}}
  four: {kind: bash}
  four: {kind: python}
  five: {kind: bash, config: {colour: red}}
steps:
  - {id: a, run: echo a > marker, in: four}
  - {id: b, run: echo a, in: absent}
"""


@pytest.mark.parametrize(("command", "code"), [("check", 3), ("run", 3)])
def test_every_fault_is_told_with_its_place(
    flowengine: CommandLine, command: str, code: int
) -> None:
    flowengine.write("broken.yaml", FLOW)

    done = flowengine(command, "broken.yaml", code=code)

    for told in (
        "broken.yaml:4:31: error[E401]: there is no provider 'nowhere' for 'bash'",
        "broken.yaml:5:21: error[E102]: unknown key 'colour' in an environment",
        "broken.yaml:6:38: error[E402]: 'time' is not a valid duration",
        "broken.yaml:8:3: error[E101]: duplicate key 'four'",
        "broken.yaml:9:31: error[E402]: unknown key 'colour' in 'config'",
        "broken.yaml:12:30: error[E401]: there is no environment 'absent'",
    ):
        assert told in done.err
    assert "6 errors in broken.yaml; nothing was run" in done.err
    assert not list(flowengine.folder.rglob("marker"))
    assert not list(environments_in(flowengine.folder / ".flowengine").glob("entries/*"))
