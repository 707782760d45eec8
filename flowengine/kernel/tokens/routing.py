"""Tokens: their targets when a step has ended, and their data (docs/language.md: Order)."""

from __future__ import annotations

from typing import Any

from flowengine.kernel.errors import StepFailure
from flowengine.kernel.expressions import provenance
from flowengine.kernel.expressions.names import Names, holds
from flowengine.kernel.flow_state import learn
from flowengine.kernel.graph.compiled import END, END_ALL, START, Plain
from flowengine.kernel.graph.linked import Node
from flowengine.kernel.graph.specs import SplitSpec
from flowengine.kernel.state import entries
from flowengine.kernel.state.records import Activation, Arrival, Scope
from flowengine.kernel.transition import Transition


def routes(node: Node, outcome: str) -> bool:
    """Return whether a step's `next` handles an outcome that would otherwise raise an error.

    The outcomes of a map's items do not count, because its `next` is about the whole map.
    """
    split = node.split
    if split is None or split["kind"] != "outcome":
        return False
    if node.map is not None and not node.each:
        return False
    return outcome in split["outcomes"] or "otherwise" in split


def choose(node: Node, names: Names, outcome: str) -> list[int]:
    """Return the targets of the token of a step, one for each token that leaves.

    Args:
        node: The step that ended.
        names: The names that the conditions can read.
        outcome: The outcome of the step.

    Returns:
        Targets, in the order of the entries.

    Raises:
        StepFailure: `NoBranch`: no condition holds, and `else` is missing.
        EvaluationError: A condition has no value.
    """
    split = node.split
    if split is None:
        return [END]
    kind = split["kind"]
    if kind == "one":
        return [split["to"]]
    if kind == "outcome":
        return [_by_outcome(split, outcome)]
    targets = _first(split, names) if kind == "first" else _all(split, names)
    if not targets:
        raise StepFailure("NoBranch", f"no condition of 'next' of {node.id!r} holds")
    return targets


def _by_outcome(split: SplitSpec, outcome: str) -> int:
    if outcome in split["outcomes"]:
        return split["outcomes"][outcome]
    if "otherwise" in split:
        return split["otherwise"]
    raise StepFailure("NoBranch", f"'next' has no entry for the outcome {outcome!r}")


def _first(split: SplitSpec, names: Names) -> list[int]:
    for entry in split["entries"]:
        if "when" not in entry or holds(names, entry["when"]):
            return [entry["to"]]
    return []


def _all(split: SplitSpec, names: Names) -> list[int]:
    targets = []
    conditional = False
    for entry in split["entries"]:
        if entry.get("otherwise"):
            continue
        if "when" not in entry:
            targets.append(entry["to"])
        elif holds(names, entry["when"]):
            conditional = True
            targets.append(entry["to"])
    if not conditional:
        targets += [entry["to"] for entry in split["entries"] if entry.get("otherwise")]
    return targets


def leave_step(tx: Transition, act: Activation, targets: list[int], output: Plain) -> None:
    """Remove an activation and send its token along `targets`.

    Args:
        act: The activation. It is removed from the state.
        targets: The targets of the tokens.
        output: The output of the step.
    """
    forget_activation(tx, act)
    send(tx, act, targets, act["line"], act["past"], output, act.get("knows"))


def send(
    tx: Transition,
    act: Activation,
    targets: list[int],
    line: list[int],
    past: int,
    output: Plain,
    knows: dict[str, int] | None,
) -> None:
    """Send one token of an activation along each of its edges to `targets`.

    Args:
        targets: The targets of the tokens.
        line: Their line of descent.
        past: Their past. The caller's reference to it is consumed.
        output: The output of the step.
        knows: The writes that happened before them.
    """
    if len(targets) == 1:
        _send(tx, act, targets[0], line, past, output, knows)
        return
    for entry, target in enumerate(targets):
        provenance.share(tx.state, past)
        _send(tx, act, target, [*line, entry], past, output, knows)
    provenance.drop(tx.state, past)


def _send(
    tx: Transition,
    act: Activation,
    target: int,
    line: list[int],
    past: int,
    output: Plain,
    knows: dict[str, int] | None,
) -> None:
    if target == END:
        end_token(tx, tx.scope_of(act), line, past)
    elif target == END_ALL:
        tx.agenda.append(entries.end_all(act["scope"], line, past))
    else:
        arrival: Arrival = {
            "scope": act["scope"],
            "step": target,
            "source": act["step"],
            "output": output if tx.graph.nodes[act["step"]].carries else None,
            "past": past,
            "line": line,
            "marks": act["marks"],
        }
        if "message" in act:
            arrival["message"] = act["message"]
        if knows:
            learn(arrival, knows)
        tx.agenda.append(entries.arrive(arrival))


def unsent(scope: int, step: int, past: int, line: list[int]) -> Arrival:
    """Return a token that no step has sent. It takes over the caller's reference to its past."""
    return {
        "scope": scope,
        "step": step,
        "source": START,
        "output": None,
        "past": past,
        "line": line,
        "marks": {},
    }


def start(tx: Transition, scope: Scope, targets: list[int], line: list[int]) -> None:
    """Create the first tokens of a scope, each with the scope's past at entry."""
    several = len(targets) > 1
    for entry, target in enumerate(targets):
        past = provenance.share(tx.state, scope["past"])
        arrival = unsent(scope["id"], target, past, [*line, entry] if several else line)
        learn(arrival, scope.get("knows"))
        tx.agenda.append(entries.arrive(arrival))


def end_token(tx: Transition, scope: Scope, line: list[int], past: int) -> None:
    """End a token in its scope and add its past to that of the scope."""
    if past == scope["past"]:
        provenance.drop(tx.state, past)
    else:
        scope["ended"].append([line, past])
    tx.touch(scope["id"])


def forget_activation(tx: Transition, act: Activation) -> None:
    """Remove an activation from the state. The caller keeps its reference to the past."""
    del tx.state["acts"][act["id"]]
    scope = tx.state["scopes"][act["scope"]]
    del scope["live"][act["id"]]
    if tx.graph.bodies[scope["body"]].watched and not act.get("left_early"):
        count_token(tx, scope, act["step"], -1)
    tx.touch(scope["id"])


def count_token(tx: Transition, scope: Scope, step: int, change: int, holder: int = -1) -> None:
    """Count a token in or out at a step, for the joins that count the tokens that can reach them.

    Args:
        scope: Its scope.
        step: The step at which the token is.
        change: 1 or -1.
        holder: The join that holds the token. It does not count its own tokens.
    """
    body = tx.graph.bodies[scope["body"]]
    if not body.watched:
        return
    at = scope["at"]
    count = at.get(step, 0) + change
    if count:
        at[step] = count
    else:
        del at[step]
    ahead = body.ahead.get(step, 0)
    for number, join in scope["joins"].items():
        if "upstream" in join and number != holder and ahead & body.bits[number]:
            join["upstream"] += change


def merged_past(tx: Transition, scope: Scope) -> int:
    """Merge the pasts of all tokens that ended in a scope. The caller receives a reference."""
    past = provenance.share(tx.state, scope["past"])
    for _line, ended in sorted(scope["ended"], key=_line_of):
        past = provenance.merge(tx.state, past, ended)
    scope["ended"] = []
    return past


def _line_of(entry: list[Any]) -> list[int]:
    line: list[int] = entry[0]
    return line
