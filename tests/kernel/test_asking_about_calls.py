"""Approval before a call is made: exactly the approved call runs, once."""

from __future__ import annotations

from typing import Any

from flowengine.kernel.graph.compiled import SecretText, digest
from tests.rows import each_row
from tests.simulation.explorer import deciding, explore
from tests.simulation.simulator import Simulator
from tests.testing.graphs import calls, graph, step, v, x

INPUT = v(x(lambda names: {"args": names["args"]}))


@each_row(
    ("one", "other"),
    [
        (1, 1.0),
        (b"a", "a"),
        (b"a", {"bytes": "61"}),
        (SecretText([["K"]]), {"secret": [["K"]]}),
        ({"a": 1}, {"map": [["a", 1]]}),
        ([["a", 1]], {"a": 1}),
        (None, "null"),
        (True, 1),
    ],
)
def test_what_differs_has_different_digests(one: Any, other: Any) -> None:
    assert digest(one) != digest(other)


def test_the_order_of_keys_does_not_matter_to_a_digest() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})


LONG = "the parcel came broken, and the customer has sent us pictures of it"


@each_row(
    ("args", "title"),
    [
        ({}, "Call pay?"),
        ({"to": "ana", "amount": 120.0, "fast": True}, "Call pay: to ana, amount 120, fast true?"),
        ({"why": LONG, "amount": 1.5}, "Call pay: amount 1.5?"),
        ({"why": LONG}, f"Call pay: why {LONG[:59]}…?"),
        ({"a": 1, "b": 2, "c": 3, "d": 4}, "Call pay: a 1, b 2, c 3?"),
        ({"to": "a\n\u202eb \x1b c", "tags": [1], "more": {}, "no": None, "x": ""},
         "Call pay: to a b c?"),
        ({"api_key": "1", "Token": "2", "id": SecretText(["k", ["K"]])}, "Call pay: id k***?"),
        ({"account": "main", "to": "ana"}, "Call pay: to ana?"),
    ],
)  # fmt: skip
def test_the_title_of_a_question_has_the_first_short_arguments(
    args: dict[str, Any], title: str
) -> None:
    asked = step("a", **calls("pay", args, bind={"account": "main"}), input=INPUT)
    [wait] = Simulator(graph(asked)).start().waits()
    assert wait["title"] == title


# Shows T91
def test_whatever_order_things_happen_in_each_call_runs_once_or_not_at_all() -> None:
    arms = [
        step(name, **calls("send", {"n": n}), input=INPUT, next="end", on_error=[
            {"types": ["Rejected"], "do": "continue"}])
        for n, name in enumerate("ab")
    ]  # fmt: skip
    flow = graph(step("p", parallel=arms))

    ran: set[int] = set()

    def look(played: Simulator) -> None:
        assert sorted(set(played.started)) == sorted(played.started)
        ran.add(len(played.started))

    found = explore(
        flow,
        outside=[
            deciding("p/a", {"choice": "approve", "edits": {"n": 7}}, "reject"),
            deciding("p/b", "approve", {"choice": "respond", "value": 1}),
        ],
        holds=look,
    )
    assert found.complete
    assert ran >= {0, 1, 2}
