"""Compares the expectations of a case with the execution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from flowengine.agents.actions import TURN, requested
from flowengine.engines.executions.execution import Execution
from flowengine.errors import InputError
from flowengine.flow.cases import as_data
from flowengine.flow.models import Loc
from flowengine.flow.models.cases import Case
from flowengine.flow.models.expected import ExpectedCall, ExpectedError, ExpectingCase
from flowengine.kernel.commands import Observation
from flowengine.kernel.graph.specs import CompiledFlow
from flowengine.kernel.notation.addresses import (
    around,
    is_part,
    without_repetition,
)
from flowengine.kernel.view import DECIDABLE
from flowengine.sdk.texts.json_values import same
from flowengine.sdk.texts.untrusted import all_unmarked
from flowengine.sdk.values.validation import shared
from flowengine.testing.player import Player
from flowengine.testing.scripts import differences, shown, ways_apart

BEGUN = frozenset({"running", "waiting", "retrying", "succeeded", "failed", "uncertain"})


class Problem(NamedTuple):
    """A difference from the expectations of a case."""

    message: str
    """The expected and the actual result. The first line names the subject."""
    loc: Loc | None = None
    """The part of the case with the expectation."""


def path_of(observations: list[Observation]) -> list[str]:
    """Return the addresses of all steps that began, in order of beginning.

    Args:
        observations: The observations of the execution.
    """
    path: dict[str, None] = {}
    for seen in observations:
        if seen.status in BEGUN and seen.address not in path:
            path.update(dict.fromkeys(around(seen.address)))
    return [*path]


class Happened(NamedTuple):
    """An execution that is compared with a case."""

    execution: Execution
    observations: list[Observation]
    flow: CompiledFlow
    at_work: Sequence[str] = ()
    """Addresses of the steps that are still running."""


def agent_calls(happened: Happened) -> Iterator[dict[str, Any]]:
    """Yield the calls that models request, handoffs included, as `{name, arguments}`.

    Calls that an approver rejects or a policy denies are among them.

    Args:
        happened: The execution.
    """
    steps = happened.flow["steps"]
    for seen in happened.observations:
        if seen.status != "succeeded" or steps[seen.step].get("kind") != TURN:
            continue
        for call in requested(seen.output):
            yield {"name": call.tool, "arguments": all_unmarked(call.arguments)}


def problems(case: Case, player: Player) -> Iterator[Problem]:
    """Yield the differences between a case and the execution of its player.

    Args:
        case: The case.
        player: The player that played it.

    Yields:
        The problems, none if the case has passed.
    """
    if player.problem is not None:
        yield Problem(player.problem.message, player.problem.loc or case.loc)
        return
    at_work = player.at_work()
    seen = player.observations
    yield from unmet(case, Happened(player.execution, seen, player.flow.compiled, at_work))
    for message, loc in player.scripts.left():
        yield Problem(message, loc)


def unmet(case: ExpectingCase, happened: Happened) -> Iterator[Problem]:
    """Yield the expectations of a case that an execution does not meet.

    Args:
        case: The case.
        happened: The execution.

    Yields:
        The problems, none if it meets all of them.
    """
    yield from _status(case, happened)
    yield from _path(case, happened)
    yield from _steps(case, happened)
    yield from _calls(case, happened)
    state = happened.execution.state
    expect = case.expect
    if state["outputs"] is not None:
        outputs = all_unmarked(state["outputs"])
        yield from _named("outputs", expect.outputs or {}, outputs, case)
        for name, schema in (expect.matches or {}).items():
            loc = (*expect.loc, "matches", name)
            if name not in outputs:
                yield Problem(f"matches\nthere is no output '{name}'", loc)
                continue
            try:
                shared(schema).check(outputs[name], name)
            except InputError as error:
                yield Problem(f"matches\n{error.message}", loc)
    if expect.state is not None:
        variables = {key: all_unmarked(value[0]) for key, value in state["vars"].items()}
        yield from _named("state", expect.state, variables, case)
    if expect.error is not None and state["error"] is not None:
        yield from _error(expect.error, all_unmarked(dict(state["error"])))
    if expect.waits is not None:
        waits = [record["address"] for record in happened.execution.waits.values()]
        if sorted(waits) != sorted(expect.waits):
            lines = "\n".join(ways_apart(sorted(expect.waits), sorted(waits)))
            yield Problem(f"waits\n{lines}", (*expect.loc, "waits"))


def _status(case: ExpectingCase, happened: Happened) -> Iterator[Problem]:
    execution = happened.execution
    status, wanted = execution.state["status"], case.expected_status
    if status == wanted:
        return
    became = status if status in {"failed", "succeeded"} else f"is {status}"
    message = f"status: expected {wanted}, it {became}"
    error = execution.state["error"]
    if error is not None:
        where = f" in '{error['step']}'" if error.get("step") else ""
        message += f"\n{error['type']}{where}: {error['message']}"
    for record in execution.waits.values():
        what = f"{record['kind']} '{record['address']}'"
        message += f"\nwaits for: {what}"
        if record["kind"] in DECIDABLE:
            choices = "|".join(choice["id"] for choice in record.get("choices") or ()) or "..."
            name: str = record.get("environment") or record["step"]
            message += f", add: approvals: {{{name}: {{choice: {choices}}}}}"
    for address in happened.at_work:
        message += f"\nstill running: '{address}'"
    yield Problem(message, (*case.expect.loc, "status") if case.has("expect") else case.loc)


def _path(case: ExpectingCase, happened: Happened) -> Iterator[Problem]:
    wanted = case.expect.path
    if wanted is None:
        return
    path = path_of(happened.observations)
    if not any(map(is_part, wanted)):
        path = [address for address in path if not is_part(address)]
    if all(address == without_repetition(address) for address in wanted):
        path = list(map(without_repetition, path))
    if path != wanted:
        lines = "\n".join(ways_apart(wanted, path))
        yield Problem(f"path\n{lines}", (*case.expect.loc, "path"))


def _steps(case: ExpectingCase, happened: Happened) -> Iterator[Problem]:
    ends = {seen.address: seen for seen in happened.observations}
    for address, wanted in (case.expect.steps or {}).items():
        seen = ends.get(address)
        for name in ("status", "outcome", "output"):
            expected = all_unmarked(as_data(getattr(wanted, name)))
            actual = None if seen is None else all_unmarked(getattr(seen, name))
            if wanted.has(name) and not same(expected, actual):
                if seen is None:
                    message = f"steps\n{address}: {name}: expected {shown(expected)}, the step"
                    yield Problem(f"{message} never began", (*case.expect.loc, "steps", address))
                    break
                lines = "\n".join(differences({name: expected}, {name: actual}))
                yield Problem(f"steps\n{address}: {lines}", (*case.expect.loc, "steps", address))


def _calls(case: ExpectingCase, happened: Happened) -> Iterator[Problem]:
    """Compare the calls that models have requested."""
    expected = case.expect.calls
    if expected is None:
        return
    made = list(agent_calls(happened))
    key, wanted = next((key, calls) for key, calls in expected if calls is not None)
    if not _fit(key, wanted, made):
        with_arguments = {call.name for call in wanted if call.with_ is not None}
        bare = {call.name for call in wanted} - with_arguments
        expects = [_call_text(call.name, call.with_) for call in wanted]
        requested = [
            _call_text(call["name"], None if call["name"] in bare else call["arguments"])
            for call in made
        ]
        lines = "\n".join(ways_apart(expects, requested))
        yield Problem(f"calls\n{lines}", (*case.expect.loc, "calls"))


def _fit(key: str, wanted: list[ExpectedCall], made: list[dict[str, Any]]) -> bool:
    if key == "exactly":
        return len(wanted) == len(made) and all(map(_is_call, wanted, made))
    if key == "including":
        rest = iter(made)
        return all(any(_is_call(call, entry) for entry in rest) for call in wanted)
    left = list(made)
    for call in sorted(wanted, key=lambda call: call.with_ is None):  # those fit fewer calls
        if (found := next((entry for entry in left if _is_call(call, entry)), None)) is None:
            return False
        left.remove(found)
    return not left


def _is_call(wanted: ExpectedCall, made: dict[str, Any]) -> bool:
    return wanted.name == made["name"] and (
        wanted.with_ is None or same(as_data(wanted.with_), made["arguments"])
    )


def _call_text(name: str, arguments: dict[str, Any] | None) -> str:
    given = ", ".join(f"{key}={shown(value)}" for key, value in (arguments or {}).items())
    return name if arguments is None else f"{name}({given})"


def _named(
    what: str, wanted: dict[str, Any], actual: dict[str, Any], case: ExpectingCase
) -> Iterator[Problem]:
    """Compare the expected values by name, ignoring other names."""
    for name, value in wanted.items():
        expected = all_unmarked(as_data(value))
        if name not in actual or not same(expected, actual[name]):
            found = {name: actual[name]} if name in actual else {}
            lines = "\n".join(differences({name: expected}, found))
            yield Problem(f"{what}\n{lines}", (*case.expect.loc, what, name))


def _error(wanted: ExpectedError, actual: dict[str, Any]) -> Iterator[Problem]:
    for name in ("type", "step", "data"):
        if wanted.has(name) and not same(as_data(getattr(wanted, name)), actual.get(name)):
            lines = "\n".join(differences({name: getattr(wanted, name)}, {name: actual.get(name)}))
            yield Problem(f"error\n{lines}", (*wanted.loc, name))
    if wanted.message is not None and wanted.message not in actual["message"]:
        message = f"error\nmessage: expected {shown(wanted.message)} in {shown(actual['message'])}"
        yield Problem(message, (*wanted.loc, "message"))
