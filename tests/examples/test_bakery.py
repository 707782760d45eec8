# Shows F93
"""The bakery: orders start with a message, share an oven, and go out automatically (F93)."""

from __future__ import annotations

from tests.examples.conftest import EXAMPLES, Shell

BAKERY = EXAMPLES / "bakery"
ORDER = '{"customer": "ana", "goods": ["rye", "oat"]}'


def test_a_message_begins_an_order_and_others_find_it(flowengine: Shell) -> None:
    flow = ["--file", str(BAKERY / "bakery.yaml"), "--key", "A1"]
    flowengine("signal", *flow, "ordered", "--data", ORDER, code=4)
    [order] = flowengine("--json", "list").json()

    flowengine("signal", "--key", "A1", "paid", "--data", "3.5", code=4)
    flowengine("signal", "--key", "A1", "more", "--data", '"malt"', code=4)
    shown = flowengine("--json", "show", order["execution"]).json()
    assert shown["status"] == "waiting", "it was too little"
    assert shown["inputs"]["goods"] == ["rye", "oat"]
