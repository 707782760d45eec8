"""The scripts of a test case: results of calls and decisions on waits, and how values differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, cast

from flowengine import registry
from flowengine.agents.call_answers import value_of
from flowengine.engines.inspection.requests import attempt_context
from flowengine.flow.cases import as_data
from flowengine.flow.models import Loc
from flowengine.flow.models.cases import Answer, CallAnswer, Case, CaseDecision, Reply
from flowengine.kernel.commands import Run
from flowengine.kernel.graph.compiled import OPENING, Plain, SecretText
from flowengine.kernel.graph.specs import CompiledFlow
from flowengine.kernel.notation.addresses import is_round, without_repetition
from flowengine.sdk.steps.context import StepContext
from flowengine.sdk.steps.rehearsals import Rehearsal
from flowengine.sdk.texts.json_values import same
from flowengine.sdk.texts.untrusted import all_unmarked

# The scripts of a test case: the results of calls, and the decisions on waits.
#
# Each script is used up in order. Entries that remain at the end were never needed.


class CaseFailed(Exception):
    """The case cannot continue.

    Args:
        message: The fault, and its correction.
        loc: The affected part of the case. None: the whole case.
    """

    def __init__(self, message: str, loc: Loc | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.loc = loc


def of_agent(address: str) -> str:
    """Return the address of an agent's step, from that of a round or of another request of it."""
    own = address.rpartition("@")[0] if is_round(address) else address
    return without_repetition(own)


class RequestHistory:
    """The requests of each step so far, to reduce the next one to its new part."""

    def __init__(self) -> None:
        self._last: dict[str, Mapping[str, Any]] = {}

    def new(self, run: Run, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the new part of a request, without the marks of untrusted text, which are random.

        Args:
            run: The attempt.
            asked: The whole request. The new part of a list that has only grown is its end.
        """
        place = of_agent(run.address)
        before = self._last.get(place, {})
        self._last[place] = asked = all_unmarked(asked)
        return {name: _new(before.get(name), value) for name, value in asked.items()
                if name not in before or before[name] != value}  # fmt: skip


def _new(before: Any, now: Any) -> Any:
    if isinstance(before, list) and isinstance(now, list) and now[: len(before)] == before:
        return now[len(before) :]
    return now


class Scripts:
    """The answers and decisions of one case.

    Args:
        case: The case.
        flow: Its flow.
    """

    def __init__(self, case: Case, flow: CompiledFlow) -> None:
        self._case = case
        self._flow = flow
        self._answers: dict[str, Iterator[CallAnswer]] = {}
        self._replies: dict[str, Iterator[Reply]] = {}
        self._asked = RequestHistory()
        self._decisions: dict[str, Iterator[CaseDecision]] = {}
        self._next: dict[str, CaseDecision | None] = {}

    def answer(self, run: Run, rehearsal: Rehearsal | None = None) -> Answer:
        """Return the scripted result of a call.

        Args:
            run: The kernel's command.
            rehearsal: Computes its output from a reply.

        Returns:
            The answer, whose `with` fits the call.

        Raises:
            CaseFailed: The case has no answer for the call, or expects other arguments.
        """
        scripts = self._case.tools
        rehearsed = rehearsal is not None
        if rehearsal is not None and rehearsal.asked is not None:
            return self._reply(run, rehearsal.asked)
        name = next((name for name in self.names_of(run) if name in scripts), None)
        if name is None and self._flow["steps"][run.step]["kind"] == OPENING:
            return Answer(return_=None)
        if name is None and rehearsed:
            return Reply()
        if name is None:
            *_, short = self.names_of(run)
            raise CaseFailed(
                f"'{run.address}' makes a call, and the case has no answer for it. Add: "
                f"tools: {{{short}: [{{return: ...}}]}}"
            )
        script = scripts[name]
        if script.calls is None:
            answer: Answer | None = script
        else:
            turn = self._answers.setdefault(name, iter(script.calls))
            answer = next(turn, None)
        if answer is None:
            count = len(script.calls or ())
            message = (
                f"'{run.address}' makes one more call than tools.{name} has answers ({count}):"
                " add one to the list"
            )
            raise CaseFailed(message, script.loc)
        if answer.has("with_") and as_data(answer.with_) != given_to(run):
            asked, wanted = given_to(run), as_data(answer.with_)
            what = "is called with other arguments"
            raise CaseFailed(_others(what, run.address, wanted, asked), answer.loc)
        return answer

    def _reply(self, run: Run, asked: Mapping[str, Any]) -> Answer:
        """Return the next reply of a model."""
        id = self._flow["steps"][run.step]["id"]
        names = (run.address, of_agent(run.address), id)
        name = next((name for name in names if name in self._case.agents), None)
        if name is None:
            raise CaseFailed(
                f"'{run.address}' calls a model, and the case has no reply for it. Add: "
                f"agents: {{{id}: [{{text: ...}}]}}"
            )
        replies = self._case.agents[name].in_order
        reply = next(self._replies.setdefault(name, iter(replies)), None)
        if reply is None:
            raise CaseFailed(
                f"'{run.address}' calls a model once more than agents.{name} has replies "
                f"({len(replies)}): add one to the list",
                (*self._case.loc, "agents", name),
            )
        new = self._asked.new(run, asked)
        if reply.has("with_") and as_data(reply.with_) != new:
            message = _others("asks something else", run.address, as_data(reply.with_), new)
            raise CaseFailed(message, reply.loc)
        return reply

    def names_of(self, run: Run) -> list[str]:
        """Return the possible keys of a script, the most specific one first."""
        step = self._flow["steps"][run.step]
        undoes = step["body"] < 0 and step["kind"] != OPENING
        names = [run.address, f"{step['id']}/compensate" if undoes else step["id"]]
        return [*names, _called(step["tool"], run)] if "tool" in step else names

    def decision(self, wait: Mapping[str, Any]) -> CaseDecision | None:
        """Return the next decision on a wait, or None if the case has none.

        The same one is returned until it is `made`.
        """
        name = self._name_of(wait)
        if name is None:
            return None
        decisions = self._case.approvals[name]
        if decisions.in_order is None:
            return decisions
        if name not in self._next:
            turn = self._decisions.setdefault(name, iter(decisions.in_order))
            self._next[name] = next(turn, None)
        return self._next[name]

    def made(self, wait: Mapping[str, Any]) -> None:
        """Record that the decision on a wait was made, so that the next one is used."""
        name = self._name_of(wait)
        if name is not None:
            self._next.pop(name, None)

    def once(self, wait: Mapping[str, Any]) -> bool:
        """Return whether all decisions on a wait are one and the same."""
        name = self._name_of(wait)
        return name is not None and self._case.approvals[name].in_order is None

    def left(self) -> Iterator[tuple[str, Loc]]:
        """Yield a message about each entry that was never used, with its place."""
        for name, script in self._case.tools.items():
            for answer in self._answers.get(name, iter(script.calls or ())):
                yield f"tools.{name}: this answer was not used", answer.loc
        for name, replies in self._case.agents.items():
            for reply in self._replies.get(name, iter(replies.in_order)):
                yield f"agents.{name}: this reply was not used", reply.loc
        for name, decisions in self._case.approvals.items():
            waiting = self._next.get(name)
            rest = self._decisions.get(name, iter(decisions.in_order or ()))
            for decided in [*([waiting] if waiting else []), *rest]:
                yield f"approvals.{name}: this decision was not made", decided.loc

    def _name_of(self, wait: Mapping[str, Any]) -> str | None:
        names = (wait["address"], wait.get("environment"), wait.get("tool"), wait["step"])
        return next((name for name in names if name in self._case.approvals), None)


def _called(tool: str, run: Run) -> str:
    """Return the name of the called tool. A step may call any tool of a server: `server.*`."""
    given = run.input if isinstance(run.input, dict) else {}
    own = (given.get("offered") or {}).get("tool", "") if tool.endswith(".*") else ""
    return f"{tool.removesuffix('*')}{own}" if own else tool


def given_to(run: Run) -> Plain:
    """Return the arguments or the configuration of a call, with secrets by name."""
    if run.args:
        return without_secrets(run.args)
    given = run.input
    return without_secrets(given.get("args", given) if isinstance(given, dict) else given)


def without_secrets(value: Plain) -> Plain:
    """Return a value in which secrets are named as a flow file names them."""
    if isinstance(value, SecretText):
        parts = [p if isinstance(p, str) else f"${{{{ secrets.{p[0]} }}}}" for p in value.parts]
        return "".join(parts)
    if isinstance(value, dict):
        return {key: without_secrets(entry) for key, entry in value.items()}
    return [without_secrets(item) for item in value] if isinstance(value, list) else value


def _others(what: str, address: str, wanted: Plain, asked: Plain) -> str:

    lines = "\n".join(differences(wanted, asked))
    return f"'{address}' {what} than the case expects:\n{lines}"


# Attempts whose outputs are computed from replies in the case, and their parts of an engine.


def rehearsal_of(flow: CompiledFlow, run: Run, folder: str) -> Rehearsal | None:
    """Return the rehearsal of an attempt. None: the case contains its output.

    Args:
        flow: The flow.
        run: The kernel's command.
        folder: Directory for relative paths.

    Raises:
        StepError: The attempt fails before it needs a reply.
    """
    step = flow["steps"][run.step]
    if not registry.has_kind(step["kind"]):
        return None
    given = without_secrets(run.input)
    input = cast("dict[str, Plain]", given) if isinstance(given, dict) else {}
    kind = registry.kind(step["kind"])
    return kind.rehearse(_context(run, folder), step.get("task", {}), input)


def adapted(flow: CompiledFlow, run: Run, value: Any) -> Any:
    """Return the result of a call, in the form of its step's output.

    Args:
        flow: The flow.
        run: The kernel's command.
        value: The value in the case: the result, or the converted output.
    """
    step = flow["steps"][run.step]
    adapter = step.get("adapter")
    if adapter is None or (isinstance(value, dict) and "envelope" in value):
        return value
    given = without_secrets(run.input)
    input = cast("dict[str, Plain]", given) if isinstance(given, dict) else {}
    called = (step["kind"], step.get("task", {}), input)
    return registry.adapted(adapter, _context(run, "."), called, value)


def unadapted(flow: CompiledFlow, run: Run, value: Any) -> Any:
    """Return the result of a call that leads to a step's output, for a case.

    Args:
        flow: The flow.
        run: The kernel's command.
        value: The output, whose text for the model has a mark that is new each time.
    """
    step = flow["steps"][run.step]
    if "adapter" not in step or not isinstance(value, dict) or "envelope" not in value:
        return value
    result = value_of(value)
    same = all_unmarked(adapted(flow, run, result)) == all_unmarked(value)
    return result if same else value


def _context(run: Run, folder: str) -> StepContext:
    more = {"attempt": run.attempt, "fallback": run.fallback, "approval": run.approved}
    more |= {"inputs": run.inputs or {}, "answers": run.answers, "caught": run.caught}
    return attempt_context("case", folder, run.address, run.state or {}, **more)


# Differences between two values, part by part, in readable form.

MOST = 20
"""Lines that are shown."""
LONGEST = 200


def differences(expected: Any, actual: Any) -> list[str]:
    """Return a line for each part in which two values differ.

    Args:
        expected: The expected value.
        actual: The actual value.

    Returns:
        Lines such as `amount: expected 1, found 2`. If there are many, only the first ones.
    """
    lines = list(_parts(expected, actual, ""))
    more = len(lines) - MOST
    return [*lines[:MOST], f"… and {more} more"] if more > 0 else lines


def ways_apart(expected: Sequence[str], actual: Sequence[str]) -> list[str]:
    """Return two paths side by side as one list: `-` was expected, `+` is there instead."""
    lines = []
    matcher = SequenceMatcher(None, expected, actual, autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            lines += [f"  {line}" for line in expected[a:b]]
        else:
            lines += [f"- {line}" for line in expected[a:b]] + [f"+ {one}" for one in actual[c:d]]
    return lines


def shown(value: Any) -> str:
    """Return a value on one line, cut if it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _parts(expected: Any, actual: Any, path: str) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in [*expected, *(key for key in actual if key not in expected)]:
            inner = f"{path}.{key}" if path else key
            if key not in actual:
                yield f"{inner}: expected {shown(expected[key])}, it is missing"
            elif key not in expected:
                yield f"{inner}: not expected, found {shown(actual[key])}"
            else:
                yield from _parts(expected[key], actual[key], inner)
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for index, (one, other) in enumerate(zip(expected, actual, strict=True)):
            yield from _parts(one, other, f"{path}[{index}]")
    elif not same(expected, actual):
        place = f"{path}: " if path else ""
        yield f"{place}expected {shown(expected)}, found {shown(actual)}"
