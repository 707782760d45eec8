"""Flows that send the notifications of approvals (docs/language.md: approval).

Each notification is an execution of such a flow, which calls the tool. It therefore has its own
journal, attempts and policies, and its failure does not affect the approval.
"""

from __future__ import annotations

from typing import Any

from flowengine.flow.loading.files import Definition, FlowFile, FlowFiles
from flowengine.flow.loading.load import load_generated
from flowengine.flow.models import Loc
from flowengine.kernel.notation.ids import NOTIFIES

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


def notification_flow(files: FlowFiles, file: FlowFile, tool: str, loc: Loc) -> Definition | None:
    """Return the flow that sends notifications with a tool, or None if errors were reported.

    Args:
        files: Finds the declaration of the tool.
        file: The file of the approval.
        tool: The name of the tool there.
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
        "inputs": {"approval": {"type": "object"}},
        "state": {
            "failures": {"type": "integer", "default": 0},
            "error": {"type": "string", "default": ""},
        },
        "steps": [
            {
                "id": "send",
                "call": tool,
                "with": {"approval": "${{ inputs.approval }}"},
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
    flow = Definition(file, loaded, f"{NOTIFIES}{file.prefix}{tool}")
    flow.written = body
    return flow
