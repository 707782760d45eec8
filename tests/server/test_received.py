"""What starts executions and signals them means the same from every source, or is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import flowengine
from tests.received import RECEIVED
from tests.server.api import Api

FLOW = json.dumps(
    {
        "flowengine": 1,
        "id": "kept",
        "title": "Smile: 😀",
        "inputs": {name: {"default": None} for name in ["v", *RECEIVED]},
        "signals": {"arrived": {"data": {"type": "object"}}},
        "steps": [{"id": "come", "wait": {"signal": "arrived"}}],
        "outputs": {
            "came": "${{ steps.come.output.data }}",
            **{name: f"${{{{ inputs.{name} }}}}" for name in ["v", *RECEIVED]},
        },
    }
)
GOOD = {name: case for name, case in RECEIVED.items() if not case.refusal}
REFUSED = {name: case for name, case in RECEIVED.items() if case.refusal}


def test_inputs_and_signals_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kept.yaml").write_text(FLOW)
    for name, case in RECEIVED.items():
        Path(f"{name}.json").write_bytes(case.sent(name))
    named = [word for name in GOOD for word in ("-i", f"@{name}.json")]

    started = flowengine("run", "kept.yaml", "--id", "e1", *named, "-i", "-", typed="\ufeff{}")
    assert started.code == 4, started.err
    assert flowengine("signal", "e1", "arrived", "--data", "@half_in_a_key.json").code == 0
    outputs = flowengine("show", "e1", "--json").json()["outputs"]
    came = outputs.pop("came")
    assert came == {"half_in_a_key": RECEIVED["half_in_a_key"].value}
    assert {name: outputs[name] for name in GOOD} == {name: GOOD[name].value for name in GOOD}

    for name, case in REFUSED.items():
        refused = flowengine("run", "kept.yaml", "-i", f"@{name}.json")
        assert (refused.code, case.refusal in refused.err) == (3, True), refused.err
    refused = flowengine("signal", "e1", "arrived", "--data", REFUSED["nan"].text)
    assert "NaN is not a number" in refused.err
    Path("twice.json").write_text('{"v": [{"k": {"k": 1}, "l": "\\"k\\": {"}],\n  "w": {}, "v": 2}')
    for words in (["-i", "@twice.json"], ["-i", "v=" + Path("twice.json").read_text()]):
        refused = flowengine("run", "kept.yaml", *words)
        assert 'the key "v" is given twice' in refused.err, refused.err


@pytest.mark.parametrize("flows", [(FLOW,)])
def test_bodies_of_the_api(api: Api) -> None:
    headers = {"content-type": "application/json"}
    for name, case in RECEIVED.items():
        body = f'{{"flow": "kept", "inputs": {case.text}}}'.encode(case.encoding)
        answer = api("POST", "/v1/executions", content=body, headers=headers)
        assert ("execution" in answer) != bool(case.refusal), (name, answer)
        if case.refusal:
            assert case.refusal in answer["detail"], name
            continue
        execution = answer["execution"]
        data = f'{{"data": {case.text}}}'.encode(case.encoding)
        path = f"/v1/executions/{execution}/signals/arrived"
        api("POST", path, content=data, headers=headers)
        outputs = api.engine.resume(execution).outputs
        assert outputs is not None, name
        assert (outputs["v"], outputs["came"]) == (case.value, {"v": case.value}), name
