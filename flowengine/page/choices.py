"""An approval in words: the effect of each choice, who must not decide, and the decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from markupsafe import Markup

from flowengine.drawing.picture import step_name
from flowengine.flow.export.yaml_text import inline
from flowengine.kernel.graph.compiled import END
from flowengine.kernel.graph.specs import CompiledFlow, HandlerSpec, StepSpec
from flowengine.kernel.waiting.approvals import gave_away
from flowengine.page.fields import with_file_names
from flowengine.page.forms import value_at
from flowengine.page.looks import LONGEST_TEXT, moment, person
from flowengine.sdk.texts.visible_text import printable_lines, shortened
from flowengine.server.calls import ApiCall
from flowengine.server.rights import Right

_OF_CALL = {
    "approve": "makes the call with these values",
    "reject": "does not make the call, and returns your comment",
    "respond": "uses the result that you enter, without a call",
}

CHANNELS = {
    "page": "on this page",
    "rest": "by a program, through the API",
    "cli": "on the command line",
    "rule": "by a rule",
    "grant": "by an earlier approval of such calls",
}
"""Channel of a decision → how it was made."""
_PARTICIPLES = {"approve": "approved", "reject": "rejected", "answer": "answered"}
_OF_DECISION = ("value", "grant", "attachments", "images")
"""Further parts of a decision that its view shows."""


class ChoiceEffect(NamedTuple):
    """The effect of a choice."""

    label: str
    needs_comment: bool
    follows: str
    """In words: `continues with Book the trip`. Empty: unknown."""


def effects(flow: CompiledFlow, wait: Mapping[str, Any]) -> list[ChoiceEffect]:
    """Return the effect of each choice, except for those without a known effect.

    Args:
        flow: The flow of the execution.
        wait: The approval.
    """
    steps = [step for step in flow["steps"] if step["id"] == wait["step"]]
    asks = steps[0] if len(steps) == 1 and steps[0]["action"] == "approval" else None
    found = []
    for choice in wait.get("choices") or ():
        follows = "" if asks is None else _follows(flow, asks, choice["id"])
        if wait.get("tool") and wait["kind"] == "approval":
            follows = _OF_CALL.get(choice["id"], "")
        needs_comment = choice.get("comment") == "required"
        if follows or needs_comment:
            label = str(choice.get("label") or choice["id"])
            found.append(ChoiceEffect(label, needs_comment, follows))
    return found


def _follows(flow: CompiledFlow, step: StepSpec, outcome: str) -> str:
    """Return where an outcome of a step leads, in words."""
    split: Any = step.get("split", {"kind": "one", "to": END})
    routes: Mapping[str, int] = split.get("outcomes", {})
    if outcome in routes or "otherwise" in split:
        return _leads_to(flow, step, routes.get(outcome, split.get("otherwise")))
    error = step.get("raises", {}).get(outcome)
    if error is not None:
        for handler in _handlers(flow, step):
            if error not in handler.get("types", [error]):
                continue
            if "when" in handler:
                return ""  # only the kernel knows
            do, follows = handler.get("do", "raise"), _stops(error)
            if do == "next":
                follows = _leads_to(flow, step, handler["to"])
            elif do in ("output", "continue"):
                follows = _leads_to(flow, step, step.get("split", {}).get("to", END))
            return f"{follows} and undoes earlier steps" if handler.get("compensate") else follows
        return _stops(error)
    if split["kind"] == "one":
        return _leads_to(flow, step, split["to"])
    names = [
        step_name(flow["steps"][entry["to"]]) for entry in split["entries"] if entry["to"] >= 0
    ]
    is_all = split["kind"] == "all" and all("when" not in entry for entry in split["entries"])
    return f"continues with {(' and ' if is_all else ' or ').join(names)}" if names else ""


def _stops(error: str) -> str:
    return f"ends the flow as {error.lower()}"


def _handlers(flow: CompiledFlow, step: StepSpec) -> Iterator[HandlerSpec]:
    yield from step.get("on_error", ())
    if step["body"] == 0:
        yield from flow.get("on_error", ())


def _leads_to(flow: CompiledFlow, step: StepSpec, target: int) -> str:
    if target >= 0:
        return f"continues with {step_name(flow['steps'][target])}"
    owner = flow["bodies"][step["body"]]["owner"]
    if target == END and owner >= 0:
        return f"ends {step_name(flow['steps'][owner])}"
    return "ends the flow"


def closed_as(wait: Mapping[str, Any]) -> str:
    """Return how an approval was closed: `approved by ben`, `expired`, `withdrawn`.

    An open one needs the votes of others besides that of the user.
    """
    decision, how = wait.get("decision"), str(wait.get("how", "approved, others decide, too"))
    if decision is None or how != "decided":
        return how
    choice = decision.get("choice")
    labels = {item["id"]: item.get("label") for item in wait.get("choices") or ()}
    return f"{_PARTICIPLES.get(choice) or labels.get(choice) or choice} by {person(decision['by'])}"


def why_not(call: ApiCall, wait: Any) -> str:
    """Return why the user is not allowed to decide on an approval. Empty if allowed."""
    if wait["status"] != "pending":
        return "This approval is closed."
    if not call.may(Right.DECIDE, wait["flow"]):
        return f"You do not have the right to decide on approvals of the flow {wait['flow']}."
    if call.principal.user in gave_away(wait):
        mine = [link for link in wait["handed"] if link["by"] == call.principal.user]
        to, at = person(mine[-1]["to"]), moment(mine[-1]["at"])
        now = ", ".join(map(person, wait.get("assignees", ()))) or to
        text = "You delegated this approval to {}, {}. It now waits for {}."
        return Markup(text).format(to, at, now)
    if not call.engine.approvals.may_answer(wait, call.principal.user):
        names = ", ".join(map(person, wait.get("assignees", ()))) or "others"
        return f"This approval is addressed to {names}."
    if any(vote["by"] == call.principal.user for vote in wait.get("votes") or ()):
        return "You have approved. Others decide, too."
    return ""


def decided_rows(wait: Any) -> list[tuple[str, str]]:
    """Return the content of the decision: changed fields, the form, a result, files."""
    decision = wait.get("decision") or {}
    subject, edits = wait.get("subject"), decision.get("edits") or {}
    rows = [
        (str(path), f"{in_lines(value_at(subject, path))} → {in_lines(value)}")
        for path, value in edits.items()
    ]
    form = decision.get("form")
    rows += rows_of(form if isinstance(form, dict) or form is None else {"answer": form})
    rows += [(name, in_lines(decision[name])) for name in _OF_DECISION if decision.get(name)]
    return rows


def rows_of(subject: Any) -> list[tuple[str, str]]:
    """Return the content of an approval, a row for each field."""
    if subject is None:
        return []
    if isinstance(subject, dict):
        return [(str(name), in_lines(value)) for name, value in subject.items()]
    return [("", in_lines(subject))]


def in_lines(value: Any) -> str:
    """Return a text unchanged, another value on one line, and each object of a list on its own.

    Of a long one, the beginning, end, size and digest.
    """
    if isinstance(value, str) and printable_lines(value) == value:
        text = value  # others are quoted, so that each character is seen
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        text = "\n".join(inline(with_file_names(item)) for item in value)
    else:
        text = inline(with_file_names(value))
    return shortened(text, LONGEST_TEXT, text)
