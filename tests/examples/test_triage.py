from __future__ import annotations

from pathlib import Path

from tests.examples.conftest import EXAMPLES, Shell

HERE = EXAMPLES / "triage"


def test_it_hands_over_looks_up_and_settles(flowengine: Shell) -> None:
    done = flowengine("run", HERE / "triage.yaml", "--workdir", HERE)

    assert done.out == (
        "answer: Your invoice was 60.00 EUR too high; you get them back.\nby: billing\n"
    )
    assert "answer/billing.calls#2[1]/refund" in done.err
    assert "answer/_offer" not in done.err


def test_why_it_waits_for_a_refund_is_told(flowengine: Shell, tmp_path: Path) -> None:
    replies = (HERE / "replies.json").read_text().replace('"amount": 60}', '"amount": 600}')
    (tmp_path / "replies.json").write_text(replies)

    done = flowengine("run", HERE / "triage.yaml", "--workdir", tmp_path, code=4)
    [execution] = flowengine("--json", "list").json()
    why = flowengine("why", execution["execution"])

    assert "Call 'refund'?" in done.err
    assert "answer/billing.calls#2[1]/refund" in why.out
    [wait] = flowengine("--json", "approvals", "list").json()
    assert wait["subject"] == {"number": "4711", "amount": 600}


def test_another_model_can_be_named(flowengine: Shell, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("- text: Ask somebody else.\n")

    done = flowengine(
        "run", HERE / "triage.yaml", "--workdir", tmp_path, "--model", "scripted/other.yaml"
    )

    assert done.out == "answer: Ask somebody else.\nby: desk\n"
    [execution] = flowengine("--json", "list").json()
    assert execution["labels"] == {"model": "scripted/other.yaml"}


def test_its_graph_has_models_tools_and_handoffs(flowengine: Shell) -> None:
    drawn = flowengine("graph", HERE / "triage.yaml", "--format", "mermaid").out

    assert "agent desk" in drawn
    assert "python billing:refund" in drawn
    assert "_offer" not in drawn
    assert "dispatch" not in drawn
    handoffs = [line for line in drawn.splitlines() if "hands over" in line]
    assert len(handoffs) == 2
