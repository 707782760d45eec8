"""Step kinds in use: in flows that an engine runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import flowengine


@pytest.fixture
def flow(tmp_path: Path) -> Any:
    """Write a flow file, with modules next to it."""

    def write(steps: str, head: str = "", **modules: str) -> Path:
        for name, source in modules.items():
            (tmp_path / f"{name}.py").write_text(source)
        path = tmp_path / "flow.yaml"
        path.write_text(f"flowengine: 1\nid: flow\n{head}\nsteps:\n{steps}")
        return path

    return write


FLOATS = """
from typing import TypedDict
from flowengine.sdk import quick

class Line(TypedDict):
    price: float
    count: int

def told(
    amount: float, n: int, rates: list[float], line: Line, most: float | None,
    either: int | float, any,
):
    return [repr(x) for x in (amount, n, rates, line, most, either, any)]

@quick
def at_once(amount: float, scale: float) -> str:
    return f"{amount.hex()} {scale!r}"
"""


def test_parameter_annotated_float_gets_a_float(flow: Any, tmp_path: Path) -> None:
    path = flow(
        "  - id: a\n"
        "    python: 'm:told'\n"
        "    with: {amount: '${{ inputs.amount }}', n: 2, rates: [1, 2.5], any: 7,\n"
        "           line: {price: 3, count: 4}, most: 5, either: 6}\n"
        "  - {id: b, call: scaled, with: {amount: '${{ inputs.amount }}'}}\n"
        "outputs: {a: '${{ steps.a.output }}', b: '${{ steps.b.output }}'}\n",
        head="inputs: {amount: {type: number}}\n"
        "tools: {scaled: {python: 'm:at_once', with: {scale: 2}}}",
        m=FLOATS,
    )

    with flowengine.Engine(None, workdir=tmp_path) as engine:
        result = engine.run(path, {"amount": 80})

    assert result.outputs == {
        "a": ["80.0", "2", "[1.0, 2.5]", "{'price': 3.0, 'count': 4}", "5.0", "6", "7"],
        "b": "0x1.4000000000000p+6 2.0",
    }


def files_with_a_secret(flow: Any, word: str) -> Path:
    return flow(  # type: ignore[no-any-return]
        "  - id: a\n"
        "    run: {script: 'printf \"key=$T\" > a.txt; printf $T | base64 > b.txt; echo c > c.txt',"
        "\n          files: {a: a.txt, b: '[bc].txt'}, env: {T: '${{ secrets.T }}'}}\n"
        "outputs: {files: '${{ steps.a.output.files }}'}\n",
        head=f"secrets: {{T: {{env: TOKEN{word}}}}}\n",
    )


def test_file_that_holds_a_secret_is_not_kept(
    flow: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "s3cr3t-value")
    store = tmp_path / "store"

    with flowengine.Engine(store) as engine:
        result = engine.run(files_with_a_secret(flow, ""))

    assert result.error is not None
    assert result.error["type"] == "ValidationError"
    assert "the file 'a.txt' contains the secret T, so it is not kept" in result.error["message"]
    assert not any(b"s3cr3t" in path.read_bytes() for path in store.rglob("*") if path.is_file())
