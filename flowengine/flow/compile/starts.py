"""The entries of `start`: signals and schedules that start executions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flowengine.flow.compile.actions import Actions
from flowengine.flow.compile.arguments import Arguments, check_arguments
from flowengine.flow.compile.callee import Callee
from flowengine.flow.compile.expressions import Expressions
from flowengine.flow.compile.tools import arguments_of
from flowengine.flow.compile.types import EXECUTION, TEXT, UNKNOWN, VisibleNames, signal_schema
from flowengine.flow.loading.files import Definition, FlowFile, FlowFiles
from flowengine.flow.loading.load import load_generated
from flowengine.flow.models import Loc, Start
from flowengine.flow.schedules import NoSchedule, Schedule, name_of
from flowengine.kernel.notation.addresses import NOTIFIES, OF_END
from flowengine.kernel.notation.times import parse_duration


class Starts:
    """Compiles what starts executions of a flow.

    Args:
        model: The flow.
        expressions: Compiles the values of its inputs.
        actions: Knows the declared signals.
    """

    def __init__(self, model: Definition, expressions: Expressions, actions: Actions) -> None:
        self._model = model
        self._report = model.file.report
        self._expressions = expressions
        self._actions = actions
        self._schedules: set[str] = set()

    def compiled(self, given: Iterable[Start]) -> list[dict[str, Any]]:
        """Return the compiled entries."""
        return [
            self._signal(item) if item.signal is not None else self._schedule(item)
            for item in given
            if item.signal is not None or item.schedule is not None
        ]

    def _signal(self, given: Start) -> dict[str, Any]:
        name, loc = str(given.signal), (*given.loc, "signal")
        data = self._actions.signal_data(name, loc)
        declared = self._model.signals.get(name)
        if declared is not None and declared.key is None:
            message = f"the signal {name!r} has no key to find an execution by"
            hint = f"declare it: 'signals: {{{name}: {{key: ${{{{ inputs.… }}}}}}}}'"
            self._report.at("E103", message, loc, hint)
        view = VisibleNames({"signal": signal_schema(data), "now": TEXT, "execution": EXECUTION})
        return {"signal": name, "with": self._inputs(given, view)}

    def _schedule(self, given: Start) -> dict[str, Any]:
        expression, loc = " ".join(str(given.schedule).split()), given.loc
        try:
            Schedule("* * * * *", given.timezone)
        except NoSchedule as error:
            self._report.at("E103", str(error), (*loc, "timezone"))
        try:
            Schedule(expression, "UTC")
        except NoSchedule as error:
            hint = "such as '0 9 * * 1-5': at 9:00 from Monday to Friday"
            self._report.at("E103", str(error), (*loc, "schedule"), hint)
        name = name_of(expression, given.timezone)
        if name in self._schedules:
            message = f"the schedule {expression!r} in {given.timezone} is listed twice"
            hint = "one of them is enough: both would start executions at the same times"
            self._report.at("E103", message, (*loc, "schedule"), hint)
        self._schedules.add(name)
        return {
            "schedule": expression,
            "timezone": given.timezone,
            "missed": given.missed,
            "jitter": parse_duration(given.jitter),
            "with": self._inputs(given, VisibleNames({"now": TEXT, "execution": EXECUTION})),
        }

    def _inputs(self, given: Start, view: VisibleNames) -> dict[str, Any]:
        """Compile the inputs, which are checked like those of a call."""
        loc = (*given.loc, "with")
        values = {
            key: self._expressions.value(value, (*loc, key), view)
            for key, value in given.with_.items()
        }
        callee = Callee("flow", {}, UNKNOWN, arguments_of(self._model))
        check_arguments(self._report, callee, Arguments(values), loc, self._model.id)
        return {key: typed.value for key, typed in values.items()}


# Flows that send notifications about approvals and ends (docs/language/approvals.md).
#
# Each notification is an execution of such a flow, which calls the tool. It therefore has its own
# journal, attempts and rules, and its failure does not affect the reported execution.

PAUSES = ["10s", "1m", "5m", "15m", "1h"]
"""Pauses between the attempts. The last one is repeated."""
ATTEMPTS = 10
"""Maximum number of attempts, over about six hours. A pause is a `wait` and not a `retry`, so that
no process stays for it."""
PERMANENT = [
    "Expired",
    "ExpressionError",
    "Refused",
    "Rejected",
    "SecretMissing",
    "ValidationError",
]
"""Errors after which no other attempt is made."""


def notification_flow(
    files: FlowFiles, file: FlowFile, tool: str, about: str, loc: Loc
) -> Definition | None:
    """Return the flow that sends notifications with a tool, or None if errors were reported.

    Args:
        files: Finds the declaration of the tool.
        file: The file that names the tool.
        tool: The name of the tool there.
        about: The argument of the tool: `approval`, or `execution` for the end of one.
        loc: Its place.
    """
    owner = files.owner(file, "tools", tool, loc)
    model = None if owner is None else owner[0].model.tools.get(owner[1])
    if model is not None and model.approval is not None:
        message = f"{tool!r} needs an approval itself, so it cannot send notifications"
        file.report.at("E103", message, loc, "declare a tool without 'approval'")
        return None
    again = f"state.failures < {ATTEMPTS - 1} && !(error.type in {PERMANENT})"
    longest = len(PAUSES) - 1
    pause = f"{PAUSES}[state.failures <= {longest} ? state.failures - 1 : {longest}]"
    body: dict[str, Any] = {
        "inputs": {about: {"type": "object"}},
        "state": {
            "failures": {"type": "integer", "default": 0},
            "error": {"type": "string", "default": ""},
        },
        "steps": [
            {
                "id": "send",
                "call": tool,
                "with": {about: f"${{{{ inputs.{about} }}}}"},
                "effect": "idempotent",
                "next": "end",
                "on_error": [
                    {
                        "when": f"${{{{ {again} }}}}",
                        "set": {
                            "failures": "${{ state.failures + 1 }}",
                            "error": "${{ error.type + ': ' + error.message }}",
                        },
                        "next": "pause",
                    }
                ],
            },
            {"id": "pause", "wait": {"for": f"${{{{ {pause} }}}}"}, "next": "send"},
        ],
    }
    place: Loc = (*loc, "(generated)")
    loaded = load_generated(body, file.source, place, files.diagnostics)
    if loaded is None:
        return None
    of_end = OF_END if about == "execution" else ""
    flow = Definition(file, loaded, f"{NOTIFIES}{of_end}{file.prefix}{tool}")
    flow.written = body
    return flow
