"""Work that steps and scopes leave to be done afterwards (docs/language.md: compensate, finally).

| record   | created when                                      | handled by                        |
|----------|---------------------------------------------------|-----------------------------------|
| `done`   | a step with a declared compensation took effect   | `compensation` undoes it          |
| `cut`    | an attempt of such a step was cut off             | `compensation` settles it first   |
| `finals` | a scope with a `finally` has ended                | `cleaning` runs it                |

A record is kept in the place where it was created. When that place ends, it is passed outwards:
from a unit to its activation, to its scope, to the unit of that scope. It contains all data for the
hidden step, because the place may have ended by then.
"""

from __future__ import annotations

from typing import Any

from flowengine.kernel import flow_state as readers
from flowengine.kernel.commands import Run, Stop
from flowengine.kernel.events import ErrorData
from flowengine.kernel.expressions import provenance
from flowengine.kernel.expressions.names import Names, evaluate, local_names
from flowengine.kernel.flow_state import learn
from flowengine.kernel.graph.compiled import EvaluationError, Plain, join_secrets
from flowengine.kernel.limits import budgets
from flowengine.kernel.state import entries
from flowengine.kernel.state.moves import move_cut
from flowengine.kernel.state.records import Activation, Cut, Done, Final, Left, Scope, Unit, Wait
from flowengine.kernel.tokens import routing
from flowengine.kernel.transition import Transition
from flowengine.kernel.waiting.attempt_questions import ask_about_cut, wait_to_settle
from flowengine.kernel.waiting.waits import close_wait


def settle_cut_attempt(tx: Transition, number: int, cut: Cut) -> None:
    """Determine the outcome of a cut-off attempt."""
    node = tx.graph.node(cut["step"])
    if node.effect != "once" or node.on_crash == "retry":
        _run_again(tx, number, cut)
    elif node.on_crash == "ask":
        _ask(tx, number, cut)
    else:
        move_cut(cut, "settled")
        cut["outcome"] = "unknown"


def _run_again(tx: Transition, number: int, cut: Cut) -> None:
    """Run a cut-off attempt again, with the same input and key."""
    cut["attempt"] += 1
    move_cut(cut, "run")
    budgets.reserve(tx, number, None, cut.get("frame", 0))
    given = join_secrets(cut["input"], cut["secrets"])
    environments = None
    node = tx.graph.node(cut["step"])
    if node.environments:
        environments, given = given["environments"], given["input"]
    tx.commands.append(
        Run(
            number,
            cut["attempt"],
            cut["step"],
            cut["address"],
            cut["args"],
            given,
            cut["key"],
            environments=environments,
            state=readers.read(tx, node, cut.get("frame", 0)) if node.reads else None,
            granted=cut.get("granted"),
            at=tx.now,
        )
    )


def apply_result(tx: Transition, event: Any) -> None:
    """Apply an event about an attempt that no unit runs, if the attempt was cut off.

    A late result counts until the attempt is settled, unless a later attempt runs.

    Args:
        event: As for `advance`.
    """
    cut = tx.state["cuts"].get(event["unit"])
    if cut is None:
        return
    number, runs = event["unit"], cut["phase"] == "run"
    if runs and cut["attempt"] != event["attempt"]:
        return
    match event["type"]:
        case "succeeded":
            _settled(tx, number, cut, "succeeded", event["value"])
        case "failed" | "asked" | "measured":
            _settled(tx, number, cut, "failed", None)
        case "lost" if runs:
            _end_run(tx, number, cut, ran=event["ran"] != "no")
            _ask(tx, number, cut, event["error"])
        case "unoffered" if runs:
            _end_run(tx, number, cut, ran=False)
            cut["attempt"] -= 1
            move_cut(cut, "ask")
            wait_to_settle(tx, number, cut)
        case "cut" if runs:
            _end_run(tx, number, cut)
            if "process" in event:
                cut["process"] = event["process"]
            move_cut(cut, "open")
            _go_on(tx, number)
        case "cut" if cut["attempt"] == event["attempt"] and not event.get("began", True):
            _settled(tx, number, cut, "failed", None)


def _settled(tx: Transition, number: int, cut: Cut, outcome: str, value: Plain) -> None:
    phase = cut["phase"]
    if phase == "settled":
        return
    _stop(tx, number, cut)
    move_cut(cut, "settled")
    cut["outcome"], cut["value"] = outcome, value
    if phase != "open":
        _go_on(tx, number)


def _stop(tx: Transition, number: int, cut: Cut) -> None:
    """End the attempt or the question that was to settle a cut-off attempt."""
    if cut["phase"] == "run":
        _end_run(tx, number, cut)
    elif "wait" in cut:
        close_wait(tx, tx.state["waits"][cut["wait"]], "withdrawn")


def _end_run(tx: Transition, number: int, cut: Cut, *, ran: bool = True) -> None:
    budgets.charge(tx, number, cut.get("frame", 0), ran=ran)


def _ask(tx: Transition, number: int, cut: Cut, error: ErrorData | None = None) -> None:
    move_cut(cut, "ask")
    ask_about_cut(tx, number, cut, error)


def _go_on(tx: Transition, number: int) -> None:
    """Continue the compensation that waits for the outcome of an attempt."""
    for undo, record in tx.state["undos"].items():
        if number in record["cut"]:
            tx.agenda.append(entries.undo(undo))


def stop_settling(tx: Transition, number: int) -> None:
    """Withdraw the attempt or question that was to settle a cut-off attempt."""
    cut = tx.state["cuts"][number]
    if cut["phase"] == "run":
        tx.commands.append(Stop(number, cut["attempt"]))
    if cut["phase"] in ("run", "ask"):
        _stop(tx, number, cut)
        move_cut(cut, "open")


def settle(tx: Transition, wait: Wait, how: str, decision: dict[str, Any]) -> None:
    """Apply an operator's answer about a cut-off attempt."""
    choice, number = decision["choice"], wait["cut"]
    cut = tx.state["cuts"][number]
    close_wait(tx, wait, how, choice)
    if choice == "retry":
        _run_again(tx, number, cut)
    else:
        outcome = "succeeded" if choice == "result" else "failed"
        _settled(tx, number, cut, outcome, decision.get("value"))


def done_of(tx: Transition, cut: Cut) -> Done:
    """Return the record for undoing an attempt that turned out to have succeeded."""
    node = tx.graph.node(cut["step"])
    output = cut["value"]
    if node.output is not None:
        extra = {**cut["local"], "result": output, "approval": None}
        names = Names(tx, None, past=cut["past"], extra=extra, frame=cut.get("frame", 0))
        try:
            output = evaluate(names, node.output)
        except EvaluationError:
            # Undoing must not fail because the result cannot be reshaped, so it receives the raw
            # one.
            output = cut["value"]
    done: Done = {
        "step": cut["step"],
        "address": cut["address"],
        "output": output,
        "local": cut["local"],
        "past": cut["past"],
    }
    if "frame" in cut:
        done["frame"] = cut["frame"]
    return done


def note_done(tx: Transition, act: Activation, unit: Unit, output: Plain, past: int | None) -> None:
    """Record that a step took effect, if it declares how it is undone.

    The compensation of a group replaces those of its steps. In this case `past` is the past of its
    inner tokens.
    """
    if tx.node(act).compensate < 0 or "undo" in act or "responded" in unit:
        return
    forget_cut(tx, act, unit)
    behind = act["past"] if past is None else past
    done: Done = {
        "step": act["step"],
        "address": tx.address(unit),
        "output": output,
    }
    _note_seen(done, Names(tx, act, unit), behind)
    forget_undoing(tx, act)
    tx.scope_of(act)["done"].append(done)


def _note_seen(left: Left, names: Names, past: int) -> None:
    """Record the names and the past that are visible in a place. The past is shared."""
    left["local"] = local_names(names)
    left["past"] = provenance.share(names.view.state, past)
    if names.frame:
        left["frame"] = names.frame


def cut_off(tx: Transition, unit: Unit) -> None:
    """Record an attempt that was stopped while it ran, if its step declares how it is undone."""
    act = tx.act_of(unit)
    if tx.node(act).compensate < 0:
        return
    forget_cut(tx, act, unit)
    cut: Cut = {
        "step": act["step"],
        "address": tx.address(unit),
        "attempt": unit["attempt"],
        "args": unit.get("args"),
        "input": unit.get("input"),
        "secrets": unit.get("secrets", []),
        "key": unit.get("key"),
        "phase": "open",
    }
    if "granted" in unit:
        cut["granted"] = unit["granted"]
    _note_seen(cut, Names(tx, act, unit), act["past"])
    tx.state["cuts"][unit["id"]] = cut
    tx.scope_of(act)["cut"].append(unit["id"])


def forget_cut(tx: Transition, act: Activation, unit: Unit) -> None:
    """Remove a cut-off attempt of a unit because a later attempt under its key counts."""
    open_ = tx.scope_of(act)["cut"]
    if unit["id"] in open_:
        open_.remove(unit["id"])
        _drop_cut(tx, unit["id"])


def forget_undoing(tx: Transition, act: Activation) -> None:
    """Remove the records of an activation's work to undo."""
    for done in act.pop("done", []):
        provenance.drop(tx.state, done["past"])
    for number in act.pop("cut", []):
        _drop_cut(tx, number)


def _drop_cut(tx: Transition, number: int) -> None:
    provenance.drop(tx.state, tx.state["cuts"][number]["past"])
    del tx.state["cuts"][number]


def final_of(tx: Transition, scope: Scope) -> Final:
    """Return the record of the `finally` of a scope that ends, with all its data."""
    owner = tx.state["units"].get(scope["unit"])
    body = tx.graph.body(scope["body"])
    local: dict[str, Plain] = {}
    if owner is not None and body.kind != "flow":
        local = local_names(Names(tx, tx.act_of(owner), owner))
    final: Final = {
        "step": body.final,
        "address": f"{scope['path']}finally",
        "local": local,
        "past": routing.merged_past(tx, scope),
    }
    if "frame" in scope:
        final["frame"] = scope["frame"]
    learn(final, scope.get("knows"))
    if "error" in scope:
        final["error"] = scope["error"]
    return final


def pass_finals(inner: Any, outer: Any) -> None:
    """Pass due `finally` steps to an enclosing unit, activation or scope, after its own."""
    if inner.get("finals"):
        outer.setdefault("finals", []).extend(inner.pop("finals"))


def hand_over(tx: Transition, act: Activation) -> None:
    """Pass a group's work to undo and clean up to the scope around it."""
    scope = tx.scope_of(act)
    if "done" in act:
        scope["done"].extend(act["done"])
    if "cut" in act:
        scope["cut"].extend(act["cut"])
    if act.get("finals"):
        pass_finals(act, scope)
        tx.agenda.append(entries.clean(scope["id"]))


def no_longer_wait(tx: Transition, owner: Any) -> None:
    """Withdraw a place that waits for a cleanup. The cleanup continues, and its successor waits."""
    if "cleanup" in owner:
        owner.setdefault("finals", []).insert(0, _given_back(tx, owner.pop("cleanup")))


def _given_back(tx: Transition, number: int) -> Final:
    cleanup = tx.state["cleanups"][number]
    provenance.drop(tx.state, cleanup.pop("past"))
    if cleanup["kind"] == "scope":
        no_longer_cleaning(tx.state["scopes"][cleanup["of"]])
    for key in ("kind", "of", "then"):
        del cleanup[key]  # type: ignore[misc]
    return {"cleanup": number}


def no_longer_cleaning(scope: Scope) -> None:
    """Subtract a cleanup that a scope has waited for."""
    scope["cleaning"] -= 1
    if not scope["cleaning"]:
        del scope["cleaning"]


def interrupt(tx: Transition, scope: Scope) -> None:
    """Return unfinished compensations and cleanups to a scope that is withdrawn."""
    for number, cleanup in tx.state["cleanups"].items() if "cleaning" in scope else ():
        if cleanup.get("kind") == "scope" and cleanup["of"] == scope["id"]:
            scope.setdefault("finals", []).append(_given_back(tx, number))
    for number, undo in list(tx.state["undos"].items()):
        if undo["scope"] != scope["id"]:
            continue
        current = [undo["current"]] if "current" in undo else []
        scope["done"] += [*undo["todo"], *current]
        scope["cut"] += undo["cut"]
        for cut in undo["cut"]:
            stop_settling(tx, cut)
        del tx.state["undos"][number]
