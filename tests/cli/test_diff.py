# Shows F76
"""`flowengine diff`: large values. `diff.md` shows the rest."""

from __future__ import annotations

from tests.cli.conftest import HELLO, CommandLine, also_served


@also_served
def test_large_values_are_cut_where_they_differ(flowengine: CommandLine) -> None:
    long = "x" * 5000
    flow = flowengine.write("hello.yaml", HELLO)
    for name in ("LEFT", "RIGHT"):
        flowengine("run", flow, "--id", name, "-i", f"name={long}{name}{long}")

    done = flowengine("diff", "LEFT", "RIGHT", code=1)

    assert max(map(len, done.out.splitlines())) <= 80
    assert "diverge     at the inputs" in done.out
    assert "xLEFTx" in done.out
    assert "xRIGHTx" in done.out
    told = flowengine("--json", "diff", "LEFT", "RIGHT", code=1).json()
    assert told["inputs"] == [
        {"path": "name", "left": f"{long}LEFT{long}", "right": f"{long}RIGHT{long}"}
    ]
