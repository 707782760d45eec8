"""A step kind that makes calls as the case says: the results of its rounds are scripted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine.sdk import Declarations, GeneratedFlow, Mark, Plain, StepContext, StepKind

STATE: dict[str, Plain] = {
    "heard": {"type": "array", "default": [], "reducer": "append"},
    "noted": {"type": "array", "default": [], "reducer": "append"},
    "told": {"type": "string", "default": "", "signal": "tell"},
}


_HEARD = "${{ state.heard.map(e, 'error' in e ? [e.n, e.error.type] : [e.n, e.output]) }}"


def _acting(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step that calls `tools:act`, unless it does something else."""
    if not {"approval", "flow", "group", "wait"}.isdisjoint(step):
        return dict(step)
    value = {"value": "${{ call.args.v }}"}
    return {"python": {"function": "tools:act"}, "with": value, **step}


class Caller(StepKind):
    """Runs a flow of one step, `round`, which calls the steps `callees`.

    The results of its rounds are those of `tools:act`, in the case: `{calls: [...]}` or the end.
    """

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        """Return the JSON Schema of the configuration."""
        anything: dict[str, Plain] = {"type": "array"}
        return {
            "type": "object",
            "properties": {"callees": anything, "catches": anything, "round": {"type": "object"}},
        }

    @classmethod
    def generate(
        cls, configuration: Mapping[str, Any], declarations: Declarations
    ) -> GeneratedFlow:
        """Return the flow of the step."""
        callees = [_acting(callee) for callee in configuration["callees"]]
        exchange: dict[str, Plain] = {
            "answers": "heard",
            "keeps": [["noted", "note"]],
            "heeds": ["told"],
            "catches": configuration.get("catches", []),
            "about": [],
            "until": "${{ state.told != '' }}",
        }
        step = {
            "id": "round",
            "python": {"function": "tools:act"},
            **configuration.get("round", {}),
        }
        body: dict[str, Plain] = {
            "inputs": {"_args": {"type": "object"}},
            "state": STATE,
            "signals": {"tell": {"data": {"type": "string"}}},
            "steps": [step],
            "callees": {"round": callees},
            "outputs": {
                "output": {"value": {"heard": _HEARD, "noted": "${{ state.noted }}"}},
            },
        }
        mark = Mark({"reads": ["heard", "told"]}, exchange)
        return GeneratedFlow("calling", body, declarations, marks={"round": mark})

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        """Never runs: its flow does."""
        raise NotImplementedError
