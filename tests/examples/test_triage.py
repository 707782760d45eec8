from __future__ import annotations

from tests.examples.conftest import EXAMPLES, Shell

HERE = EXAMPLES / "triage"


def test_it_hands_over_looks_up_and_asks_before_it_pays(flowengine: Shell) -> None:
    asked = flowengine("run", HERE / "triage.yaml", "--workdir", HERE, code=4)
    [wait] = flowengine("--json", "approvals", "list").json()
    why = flowengine("why", wait["execution"])
    done = flowengine("approve", wait["id"], "--edit", "amount=60")

    assert asked.err.count("waiting     approval") == 1
    assert 'with       {number: "4711", amount: 240}\n' in asked.err
    assert wait["subject"] == {"number": "4711", "amount": 240}
    assert "answer/billing@2/refund" in why.out
    assert done.out == "answer: Your invoice was too high; the refund is on its way.\nby: billing\n"
    paid = flowengine("show", wait["execution"], "--step", wait["address"])
    assert "60.00 EUR go back for invoice 4711" in paid.out
