"""Compares the expectations of a case with the execution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.flow.cases import as_data
from flowengine.kernel.notation.addresses import around, is_part, steps_in, without_repetition
from flowengine.kernel.view import DECIDABLE
from flowengine.sdk.json_values import same
from flowengine.sdk.untrusted import all_unmarked
from flowengine.testing.scripts import differences, shown, ways_apart

if TYPE_CHECKING:
    from flowengine.flow.models import Loc
    from flowengine.flow.models.cases import Case, ExpectedError
    from flowengine.kernel.commands import Observation
    from flowengine.kernel.graph.specs import CompiledFlow
    from flowengine.testing.player import Player

BEGUN = frozenset({"running", "waiting", "retrying", "succeeded", "failed", "uncertain"})


class Problem(NamedTuple):
    """A difference from the expectations of a case."""

    message: str
    """The expected and the actual result. The first line names the subject."""
    loc: Loc | None = None
    """The part of the case with the expectation."""


def path_of(observations: list[Observation], flow: CompiledFlow) -> list[str]:
    """Return the addresses of all steps that began, in order of beginning.

    Args:
        observations: The observations of the execution.
        flow: The flow, whose `plumbing` steps are omitted.
    """
    path: dict[str, None] = {}
    plumbing: set[tuple[str, ...]] = set()
    for seen in observations:
        if flow["steps"][seen.step].get("plumbing"):
            plumbing.add(tuple(steps_in(seen.address)))
        elif seen.status in BEGUN and seen.address not in path:
            path.update(dict.fromkeys(around(seen.address)))
    return [way for way in path if tuple(steps_in(way)) not in plumbing]


def problems(case: Case, player: Player) -> Iterator[Problem]:
    """Yield the differences between a case and its execution.

    Args:
        case: The case.
        player: The player that played it.

    Yields:
        The problems, none if the case has passed.
    """
    if player.problem is not None:
        yield Problem(player.problem.message, player.problem.loc or case.loc)
        return
    yield from _status(case, player)
    yield from _path(case, player)
    yield from _steps(case, player)
    state = player.execution.state
    expect = case.expect
    if expect.outputs is not None and state["outputs"] is not None:
        yield from _named("outputs", expect.outputs, all_unmarked(state["outputs"]), case)
    if expect.state is not None:
        variables = {key: all_unmarked(value[0]) for key, value in state["vars"].items()}
        yield from _named("state", expect.state, variables, case)
    if expect.error is not None and state["error"] is not None:
        yield from _error(expect.error, all_unmarked(dict(state["error"])))
    if expect.waits is not None:
        waits = [record["address"] for record in player.execution.waits.values()]
        if sorted(waits) != sorted(expect.waits):
            lines = "\n".join(ways_apart(sorted(expect.waits), sorted(waits)))
            yield Problem(f"waits\n{lines}", (*expect.loc, "waits"))
    for message, loc in player.scripts.left():
        yield Problem(message, loc)


def _status(case: Case, player: Player) -> Iterator[Problem]:
    execution = player.execution
    status, wanted = execution.state["status"], case.expected_status
    if status == wanted:
        return
    message = f"status: expected {wanted}, it {_is(status)}"
    error = execution.state["error"]
    if error is not None:
        where = f" in '{error['step']}'" if error.get("step") else ""
        message += f"\n{error['type']}{where}: {error['message']}"
    for record in execution.waits.values():
        what = f"{record['kind']} '{record['address']}'"
        message += f"\nwaits for: {what}"
        if record["kind"] in DECIDABLE:
            choices = "|".join(choice["id"] for choice in record.get("choices") or ()) or "..."
            message += f", add: approvals: {{{_short(record)}: {{choice: {choices}}}}}"
    for address in player.at_work():
        message += f"\nstill running: '{address}'"
    yield Problem(message, (*case.expect.loc, "status") if case.has("expect") else case.loc)


def _is(status: str) -> str:
    return {"failed": "failed", "succeeded": "succeeded"}.get(status, f"is {status}")


def _path(case: Case, player: Player) -> Iterator[Problem]:
    wanted = case.expect.path
    if wanted is None:
        return
    path = path_of(player.observations, player.flow.compiled)
    if not any(map(is_part, wanted)):
        path = [address for address in path if not is_part(address)]
    if all(address == without_repetition(address) for address in wanted):
        path = list(map(without_repetition, path))
    if path != wanted:
        lines = "\n".join(ways_apart(wanted, path))
        yield Problem(f"path\n{lines}", (*case.expect.loc, "path"))


def _steps(case: Case, player: Player) -> Iterator[Problem]:
    ends = {seen.address: seen for seen in player.observations}
    for address, wanted in (case.expect.steps or {}).items():
        seen = ends.get(address)
        for name in ("status", "outcome", "output"):
            expected = all_unmarked(as_data(getattr(wanted, name)))
            actual = None if seen is None else all_unmarked(getattr(seen, name))
            if wanted.has(name) and not same(expected, actual):
                lines = "\n".join(differences({name: expected}, {name: actual}))
                yield Problem(f"steps\n{address}: {lines}", (*case.expect.loc, "steps", address))


def _named(
    what: str, wanted: dict[str, Any], actual: dict[str, Any], case: Case
) -> Iterator[Problem]:
    """Compare the expected values by name, ignoring other names."""
    for name, value in wanted.items():
        expected = all_unmarked(as_data(value))
        if name not in actual or not same(expected, actual[name]):
            lines = "\n".join(differences({name: expected}, {name: actual.get(name)}))
            yield Problem(f"{what}\n{lines}", (*case.expect.loc, what, name))


def _error(wanted: ExpectedError, actual: dict[str, Any]) -> Iterator[Problem]:
    for name in ("type", "step", "data"):
        if wanted.has(name) and not same(as_data(getattr(wanted, name)), actual.get(name)):
            lines = "\n".join(differences({name: getattr(wanted, name)}, {name: actual.get(name)}))
            yield Problem(f"error\n{lines}", (*wanted.loc, name))
    if wanted.message is not None and wanted.message not in actual["message"]:
        message = f"error\nmessage: expected {shown(wanted.message)} in {shown(actual['message'])}"
        yield Problem(message, (*wanted.loc, "message"))


def _short(record: dict[str, Any]) -> str:
    """Return the name under which a case decides on a wait."""
    name: str = record.get("environment") or record["step"]
    return name
