# Shows G4
"""Instances of models and dataclasses as values of flows that are built in Python."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel

from flowengine import Engine, Flow, cel


class Order(BaseModel):
    number: int
    item: str = "chair"


@dataclass
class Place:
    city: str


flow = Flow("orders", inputs={"order": Order, "place": Place})


@flow.step
def check(order: Order, place: Place) -> str:
    assert (type(order), type(place)) == (Order, Place)
    return f"{order.number} {order.item} {place.city}"


ask = flow.step(
    "ask", approval={"title": "Send it?", "subject": {"order": cel.inputs.order}, "edit": ["order"]}
)


@flow.step(
    with_={"order": cel.default(ask.output.subject.order, cel.inputs.order), "place": Place("Rome")}
)
def send(order: Order, place: Place) -> str:
    assert (type(order), type(place)) == (Order, Place)
    return f"{order.number} {place.city}"


flow.output("checked", "${{ steps.check.output }}")
flow.output("sent", "${{ steps.send.output }}")


def test_instances_are_inputs_arguments_of_steps_and_edits() -> None:
    with Engine(None) as engine:
        for place in (Place("Oslo"), {"city": "Oslo"}):
            [wait] = engine.run(flow, {"order": Order(number=3), "place": place}).waits
            result = engine.approvals.approve(wait["id"], edit={"order": Order(number=9)}).result
            assert result is not None
            assert result.outputs == {"checked": "3 chair Oslo", "sent": "9 Rome"}
        execution = engine.start(flow, {"order": Order(number=3), "place": Place("Oslo")})
        assert engine.resume(execution).status == "waiting"
