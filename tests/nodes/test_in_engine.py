"""Step kinds in use: in flows that an engine runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import flowengine
from tests.alive import alive
from tests.command_line import compile_flow


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


# Shows F95
def test_file_goes_from_a_script_to_a_function_to_another_script(flow: Any, tmp_path: Path) -> None:
    path = flow(
        "  - {id: make, run: {script: 'printf 1,2 > r.csv', files: {r: r.csv}}}\n"
        "  - {id: read, python: 'rows:read', with: {file: '${{ steps.make.output.files.r }}'}}\n"
        "  - {id: show, run: {command: [cat, '${{ steps.make.output.files.r }}']}}\n"
        "outputs:\n"
        "  rows: ${{ steps.read.output }}\n"
        "  text: ${{ steps.show.output.stdout }}\n",
        rows="from pathlib import Path\ndef read(file: dict) -> list[str]:\n"
        "    return Path(file['path']).read_text().split(',')\n",
    )

    with flowengine.Engine(None, workdir=tmp_path) as engine:
        result = engine.run(path)

    assert (result.status, result.outputs) == ("succeeded", {"rows": ["1", "2"], "text": "1,2"})


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


# Shows F31
def test_idempotent_step_is_tried_again_with_the_same_key(flow: Any, tmp_path: Path) -> None:
    path = flow(
        "  - id: pay\n"
        "    run: {script: 'echo $FLOW_IDEMPOTENCY_KEY >> $LOG; test -e $LOG.2 || "
        "{ touch $LOG.2; exit 1; }', env: {LOG: '${{ inputs.log }}'}}\n"
        "    effect: idempotent\n"
        "    retry: {attempts: 2, delay: 1ms, type: [ExitCode]}\n"
        "outputs: {}\n",
        head="inputs: {log: {type: string}}",
    )
    log = tmp_path / "log"

    with flowengine.Engine(None) as engine:
        result = engine.run(path, {"log": str(log)})

    first, second = log.read_text().split()
    assert result.status == "succeeded"
    assert first == second
    assert len(first) == 64


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


@pytest.mark.endurance
def test_script_of_a_killed_engine_is_ended_before_the_step_is_tried_again(
    flow: Any, tmp_path: Path
) -> None:
    fifo, store = tmp_path / "fifo", tmp_path / "store"
    os.mkfifo(fifo)
    path = flow(
        "  - id: work\n"
        "    run: {script: 'test -e done || test -e $HERE/second && exit 0; touch $HERE/second; "
        "echo $$ > $HERE/fifo; while :; do sleep 1000; done', env: {HERE: '${{ inputs.here }}'}}\n"
        "    effect: idempotent\n"
        "outputs: {}\n",
        head="inputs: {here: {type: string}}",
    )
    program = (
        "import flowengine, sys\n"
        "with flowengine.Engine(sys.argv[1]) as engine:\n"
        "    engine.run(sys.argv[2], {'here': sys.argv[3]}, id='one')\n"
    )
    compile_flow(path)
    engine = subprocess.Popen([sys.executable, "-c", program, str(store), str(path), str(tmp_path)])
    script = int(fifo.read_text())
    engine.send_signal(signal.SIGKILL)
    engine.wait()
    assert alive(script)

    with flowengine.Engine(store) as again:
        result = again.resume("one")

    assert result.status == "succeeded"
    assert not alive(script)
