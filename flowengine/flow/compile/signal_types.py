"""The type of `signal` at a step: the messages that may have started its tokens.

See docs/language.md: trigger.

A forward dataflow over the flow's own steps: a trigger begins with its message, the start of the
flow with none, and each step passes on its arrivals. Steps of a group see the arrivals of the
group.
"""

from __future__ import annotations

from flowengine.flow.compile.plan import Plan
from flowengine.flow.compile.step_info import Info
from flowengine.flow.compile.types import UNKNOWN, Schema, closed, common, signal_schema
from flowengine.flow.compile.views import VisibleNames
from flowengine.flow.expressions import Note
from flowengine.flow.models import Trigger
from flowengine.kernel.graph.compiled import TRIGGER

NO_MESSAGE = -1
"""Used in place of a triggered step if no message started the token."""
ABSENT = Note(
    "W305",
    "a token that no message started may arrive here: 'signal' is then null",
    "test signal != null, or write default(signal.data.…, …)",
    reason="a token that no message started may have come",
)


class SignalTypes:
    """The type of `signal` at each step."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._begun: list[frozenset[int]] | None = None

    def seen(self, info: Info, view: VisibleNames) -> VisibleNames:
        """Return the view of a step with `signal`, if a message may have started its token."""
        if not self.plan.flow.get("triggered"):
            return view
        while info.parent >= 0:
            info = self.plan.steps[info.parent]
        begun = self._all()[info.number]
        triggered = sorted(begun - {NO_MESSAGE})
        if not triggered:
            return view
        schema = common(
            [self.schema(self.plan.steps[number].model.trigger) for number in triggered]
        )
        doubt = {"signal": ABSENT} if NO_MESSAGE in begun else {}
        return view.having({"signal": schema or signal_schema(UNKNOWN)}, uncertain=doubt)

    def schema(self, trigger: Trigger | None) -> Schema:
        """Return the type of the message that a trigger brings."""
        if trigger is None or trigger.state is not None:
            return UNKNOWN
        if trigger.all is not None:
            return signal_schema(closed({name: self._data(name) for name in trigger.all}))
        one_of = trigger.any or [trigger.signal or ""]
        return common([signal_schema(self._data(name)) for name in one_of]) or UNKNOWN

    def _data(self, signal: str) -> Schema:
        model = self.plan.model.signals.get(signal)
        return UNKNOWN if model is None or model.data is None else model.data

    def _all(self) -> list[frozenset[int]]:
        """Return, for each step, the triggers whose messages may reach it."""
        if self._begun is None:
            steps = self.plan.steps
            self._begun = [frozenset() for _ in steps]
            changed = True
            while changed:
                changed = False
                for number in self.plan.body(0)["steps"]:
                    new = self._at(steps[number])
                    if new != self._begun[number]:
                        self._begun[number] = new
                        changed = True
        return self._begun

    def _at(self, info: Info) -> frozenset[int]:
        arriving = [self._from(info, source) for source in info.spec["sources"]]
        messages: frozenset[int] = frozenset().union(*arriving)
        waits_for_all = info.spec.get("join", {}).get("kind") == "all"
        if waits_for_all and any(each and NO_MESSAGE not in each for each in arriving):
            return messages - {NO_MESSAGE}
        return messages

    def _from(self, info: Info, source: int) -> frozenset[int]:
        assert self._begun is not None
        if source >= 0:
            return self._begun[source]
        trigger = info.model.trigger
        brings = source == TRIGGER and trigger is not None and trigger.state is None
        return frozenset({info.number if brings else NO_MESSAGE})
