"""Edges of the graph: splits, joins and the targets of handlers.

See docs/language.md: Order.
"""

from __future__ import annotations

from bisect import bisect_left

from flowengine.flow.check.net import targets
from flowengine.flow.compile.outcomes import outcomes
from flowengine.flow.compile.plan import Info, Plan
from flowengine.flow.models import Cancel, Entry, Handler, Join, Loc, Next, Trigger
from flowengine.flow.source.diagnostics import DiagnosticReporter
from flowengine.kernel.graph.compiled import END, END_ALL, START, TRIGGER
from flowengine.kernel.graph.specs import (
    CompiledFlow,
    HandlerSpec,
    JoinSpec,
    SplitEntry,
    SplitSpec,
    TriggerSpec,
)
from flowengine.sdk.texts.near_words import did_you_mean

NEVER: int = -3
"""Placeholder for a target that was reported, without an edge."""
CONDITION: int = -1
"""Placeholder for a condition until expressions are compiled."""


class Edges:
    """Writes the edges of a plan.

    Args:
        plan: The steps.
    """

    def __init__(self, plan: Plan, report: DiagnosticReporter) -> None:
        self.plan = plan
        self.report = report
        self.conditions: dict[int, list[tuple[SplitEntry, Entry]]] = {}
        """Step → the conditional entries of its `next`, with their models."""
        self.named: dict[int, list[Info | None]] = {}
        """Step → the steps that lead to it by name. None represents a handler of the flow."""
        self.made_to_succeed = {
            name
            for info in plan.steps
            if isinstance(info.given, Cancel) and info.given.as_ == "succeeded"
            if isinstance(info.given.steps, list)
            for name in info.given.steps
        }
        """Steps that a `cancel` ends as succeeded, so that their outcome is `ok`."""
        self.gaps = plan.gaps

    def write(self) -> None:
        """Write splits, joins and handlers of all steps, and `sources`."""
        for info in self.plan.steps:
            self._handlers(info)
            if info.model.next is not None:
                self._next(info, info.model.next)
            if info.model.join is not None:
                info.spec["join"] = join_spec(info.model.join)
            if info.model.trigger is not None:
                info.spec["trigger"] = trigger_spec(info.model.trigger)
            if info.model.when is not None:
                info.spec["when"] = CONDITION
        if isinstance(self.plan.model.on_error, list):
            self.plan.flow["on_error"] = [self._handler(None, h) for h in self.plan.model.on_error]
        for info in self.plan.steps:
            if info.model.next is None:
                self._fall_through(info)
            self._cancel(info)
        handled = [h["to"] for h in self.plan.flow.get("on_error", []) if h.get("do") == "next"]
        triggered = [info for info in self.plan.steps if info.model.trigger is not None]
        if triggered:
            self.plan.flow["triggered"] = [info.number for info in triggered]
        link_sources(self.plan.flow, frozenset(handled))
        for info in triggered:
            self._check_trigger(info)
        for info in self.plan.steps:
            if info.model.join is not None and info.model.join.from_ is not None:
                self._check_from(info, info.model.join)

    # Targets

    def _target(self, info: Info | None, name: str, loc: Loc) -> int:
        """Return the step that a target names. Without `info`, the target is at flow level."""
        if name in {"end", "end_all"}:
            return END if name == "end" else END_ALL
        body = 0 if info is None else info.spec["body"]
        number = self.plan.by_id.get(name)
        if number is None:
            self.gaps.bodies.add(body)
            if name not in self.plan.misnamed:
                known = [self.plan.steps[n].id for n in self.plan.body(body)["steps"]]
                hint = did_you_mean(name, [*known, "end", "end_all"])
                hint = hint or "targets are steps of the same list, end and end_all"
                self.report.at("E201", f"there is no step {name!r}", loc, hint)
            return NEVER
        target = self.plan.steps[number]
        if info is not None and self.plan.is_parallel(body):
            owner = self.plan.steps[self.plan.body(body)["owner"]]
            message = f"{name!r} is outside of {info.id!r}, which is a branch of {owner.id!r}"
            hint = "in 'parallel', 'next' leads to end or end_all. Put a longer branch in a group"
            self.report.at("E205", message, loc, hint)
            self.gaps.bodies.add(body)
            return NEVER
        if target.spec["body"] != body:
            self.gaps.bodies.add(body)
            if target.parent >= 0:
                group = self.plan.steps[target.parent].id
                hint = f"it is inside {group!r}: lead to {group!r}, or move the step"
            else:
                hint = "it is outside of this group: end the group here, and lead on from the group"
            self.report.at("E205", f"{name!r} is a step of another scope", loc, hint)
            return NEVER
        self.named.setdefault(number, []).append(info)
        return number

    # Splits

    def _next(self, info: Info, given: Next) -> None:
        if not goes_on(info):
            message = f"no branch leaves {info.id!r}: {info.action!r} does not continue"
            self.report.at("E103", message, given.loc, "leave 'next' out", key=True)
            return
        if given.to is None and not (given.all or given.first or given.outcome):
            self.gaps.bodies.add(info.spec["body"])  # left out because of an error
            return
        if given.to is not None:
            to = self._target(info, given.to, (*given.loc, "to"))
            split = SplitSpec(kind="one", to=to)
        elif given.outcome is not None:
            split = self._by_outcome(info, given)
        else:
            split = self._by_entries(info, given)
        info.spec["split"] = without_reported(split)

    def _by_entries(self, info: Info, given: Next) -> SplitSpec:
        kind = "first" if given.first is not None else "all"
        entries: list[SplitEntry] = []
        seen: set[str] = set()
        for model in given.first or given.all or ():
            if model.to is None and model.else_ is None:
                self.gaps.bodies.add(info.spec["body"])  # left out because of an error
                continue
            name = model.to if model.to is not None else str(model.else_)
            loc = (*model.loc, "to" if model.to is not None else "else")
            entry = SplitEntry(to=self._target(info, name, loc))
            if model.when is not None:
                entry["when"] = CONDITION
                self.conditions.setdefault(info.number, []).append((entry, model))
            elif model.to is None:
                entry["otherwise"] = True
            if kind == "all" and name in seen and entry["to"] >= 0:
                message = (
                    f"{name!r} is named twice in one 'all', but one step leads to it by one edge"
                )
                self.report.at("E103", message, loc, "join the conditions with ||")
            seen.add(name)
            entries.append(entry)
        wrong = self.plan.model.left_out(given.loc)
        if entries and not wrong and all("when" in entry for entry in entries):
            message = (
                f"{kind!r} of {info.id!r} has no 'else': NoBranch is raised if no condition holds"
            )
            self.report.at("W207", message, (*given.loc, kind), "add {else: ...}", key=True)
        return SplitSpec(kind=kind, entries=entries)  # type: ignore[typeddict-item]

    def _by_outcome(self, info: Info, given: Next) -> SplitSpec:
        assert given.outcome is not None
        can, known = outcomes(info), info.number not in self.gaps.outcomes
        if info.id in self.made_to_succeed and "ok" not in can.plain:
            can.plain.append("ok")
        split = SplitSpec(kind="outcome", outcomes={})
        for name, target in given.outcome.items():
            loc = (*given.loc, "outcome", name)
            to = self._target(info, target, loc)
            if name == "else":
                split["otherwise"] = to
                continue
            if name not in can.names and known:
                hint = did_you_mean(name, can.names) or f"it ends in {' or '.join(can.names)}"
                message = f"{info.id!r} never ends in the outcome {name!r}"
                self.report.at("E209", message, loc, hint, key=True)
            split["outcomes"][name] = to
        if known:
            missing = [name for name in can.plain if name not in given.outcome]
            if missing and "else" not in given.outcome:
                self.gaps.bodies.add(info.spec["body"])
                names = " and ".join(repr(name) for name in missing)
                noun = "outcome" if len(missing) == 1 else "outcomes"
                message = f"'next' of {info.id!r} does not cover the {noun} {names}"
                hint = f"add {missing[0]}, or 'else'"
                self.report.at("E209", message, (*given.loc, "outcome"), hint, key=True)
        elif "else" not in given.outcome:
            self.gaps.bodies.add(info.spec["body"])
        return split

    # Falling through

    def _fall_through(self, info: Info) -> None:
        left_out = info.number in self.gaps.steps or self.plan.model.left_out((*info.loc, "next"))
        if left_out or not goes_on(info):
            return
        body = self.plan.body(info.spec["body"])
        steps = body["steps"]
        index = bisect_left(steps, info.number)
        last = index + 1 == len(steps)
        if last or self.plan.is_parallel(info.spec["body"]):
            info.spec["split"] = SplitSpec(kind="one", to=END)
            return
        following = self.plan.steps[steps[index + 1]]
        if self._may_fall(info, following):
            info.spec["split"] = SplitSpec(kind="one", to=following.number)
        else:  # its next step is unknown
            self.gaps.bodies.add(info.spec["body"])

    def _may_fall(self, info: Info, following: Info) -> bool:
        """Return whether a step clearly leads to the next one, and report it otherwise."""
        # A handler of the step itself that leads there has the same edge.
        others = [
            sibling for sibling in self.named.get(following.number, ()) if sibling is not info
        ]
        if others:
            first = next((other for other in others if other is not None), None)
            who = "an 'on_error' of the flow" if first is None else repr(first.id)
            why = f"{who} also leads to"
        elif following.model.join is not None or following.model.trigger is not None:
            why = "has a join" if following.model.join is not None else "has a trigger"
        else:
            return True
        message = f"{info.id!r} falls through into {following.id!r}, which {why}"
        hint = f"use 'next: {following.id}' or 'next: end'"
        self.report.at("E203", message, (*info.loc, "id"), hint)
        return False

    # Handlers, joins and cancels

    def _handlers(self, info: Info) -> None:
        given = info.model.on_error
        if given == "continue":
            info.spec["on_error"] = [HandlerSpec(do="continue")]
        elif given == "compensate":
            info.spec["on_error"] = [HandlerSpec(compensate=True, do="raise")]
        elif isinstance(given, list):
            info.spec["on_error"] = [self._handler(info, model) for model in given]

    def _handler(self, info: Info | None, model: Handler) -> HandlerSpec:
        spec = HandlerSpec(do="raise")
        if model.type is not None:
            spec["types"] = list(model.type)
        if model.when is not None:
            spec["when"] = CONDITION
        if model.compensate:
            spec["compensate"] = True
        if model.next is not None:
            to = self._target(info, model.next, (*model.loc, "next"))
            if to != NEVER:
                spec["do"], spec["to"] = "next", to
        elif model.has("output"):
            spec["do"] = "output"
        elif model.fail is not None:
            spec["do"] = "fail"
        return spec

    def _check_from(self, info: Info, join: Join) -> None:
        """Check that `from` names exactly the steps that lead to a join."""
        sources = [self.plan.steps[s].id for s in info.spec["sources"] if s >= 0]
        named = join.from_ or []
        loc = (*join.loc, "from")
        for index, name in enumerate(named):
            if name not in sources and name not in self.plan.misnamed:
                message = f"{name!r} does not lead to {info.id!r}"
                self.report.at("E206", message, (*loc, index), did_you_mean(name, sources))
        missing = [name for name in sources if name not in named]
        if missing and info.spec["body"] not in self.gaps.bodies:
            names = " and ".join(repr(name) for name in missing)
            verb = "leads" if len(missing) == 1 else "lead"
            message = f"{names} {verb} to {info.id!r} too"
            self.report.at("E206", message, loc, "'from' has to name every source", key=True)

    def _check_trigger(self, info: Info) -> None:
        """Check that only its trigger leads to a step, at top level."""
        loc = (*info.loc, "trigger")
        if info.spec["body"] != 0:
            place = "in 'finally'" if self.plan.in_finally(info) else "inside a group"
            message = f"{info.id!r} is {place}: a 'trigger' works only at the top level of a flow"
            hint = "wait for the signal instead: 'wait: {signal: ...}'"
            self.report.at("E208", message, loc, hint, key=True)
        elif info.model.join is None and info.number in self.named:
            first = self.named[info.number][0]
            # How tokens meet there is unknown, too.
            self.gaps.bodies.add(0)
            self.gaps.joins.add(info.number)
            who = "an 'on_error' of the flow" if first is None else repr(first.id)
            message = f"{info.id!r} has a 'trigger', and {who} also leads to it"
            hint = "declare how the two meet with 'join', or use a separate step for one of them"
            self.report.at("E208", message, loc, hint, key=True)

    def _cancel(self, info: Info) -> None:
        if not isinstance(info.given, Cancel):
            return
        given = info.given
        outcome = given.as_
        if given.steps == "execution" and self.plan.in_finally(info):
            message = "the execution cannot be cancelled while it cleans up"
            self.report.at("E103", message, info.loc, "raise an error with 'fail'")
        if given.steps == "execution":
            info.spec["cancel"] = {"execution": True, "outcome": outcome}
            return
        visible = {sibling.id: sibling for sibling in self.plan.siblings(info)}
        for group in self.plan.around(info):
            for sibling in self.plan.siblings(group):
                visible.setdefault(sibling.id, sibling)
        numbers = []
        for index, name in enumerate(given.steps):
            if name in visible:
                numbers.append(visible[name].number)
                continue
            long, short = (*given.loc, "steps", index), (*given.loc, index)
            bare = self.report.position(short) != self.report.position(given.loc)
            loc = short if bare else long
            if name in self.plan.by_id:
                message = f"{name!r} is not in this scope or an enclosing one"
                self.report.at("E205", message, loc, "cancel the group that contains it")
            else:
                hint = did_you_mean(name, visible)
                self.report.at("E201", f"there is no step {name!r}", loc, hint)
        info.spec["cancel"] = {"targets": numbers, "outcome": outcome}


def goes_on(info: Info) -> bool:
    """Return whether a token can leave a step other than by `end` of its scope or an error."""
    ends = info.action == "fail" or (
        isinstance(info.given, Cancel) and info.given.steps == "execution"
    )
    if not ends or info.model.when is not None or info.model.on_error == "continue":
        return True
    handlers = info.model.on_error
    return isinstance(handlers, list) and any(handler.has("output") for handler in handlers)


def trigger_spec(trigger: Trigger) -> TriggerSpec:
    """Return the compiled form of a trigger. Its `match` is filled in later."""
    if trigger.state is not None:
        return TriggerSpec(state=trigger.state)
    spec = TriggerSpec(signals=[*(trigger.signal or trigger.all or ())])
    if trigger.all is not None:
        spec["all"] = True
    if trigger.transient:
        spec["transient"] = True
    return spec


def join_spec(join: Join) -> JoinSpec:
    """Return the compiled form of a join. A computed `need` is filled in later."""
    if join.need in {"each", "all", "active"}:
        return JoinSpec(kind=join.need)  # type: ignore[typeddict-item]
    spec = JoinSpec(kind="count", late=join.late)
    if isinstance(join.need, int):
        spec["need"] = ["const", join.need]
    return spec


def without_reported(split: SplitSpec) -> SplitSpec:
    """Remove targets that do not exist, which were reported, from a split."""
    if split["kind"] == "one":
        return SplitSpec(kind="one", to=END) if split["to"] == NEVER else split
    if split["kind"] == "outcome":
        kept = {name: to for name, to in split["outcomes"].items() if to != NEVER}
        left = SplitSpec(kind="outcome", outcomes=kept)
        if split.get("otherwise", NEVER) != NEVER:
            left["otherwise"] = split["otherwise"]
        return left
    return {**split, "entries": [entry for entry in split["entries"] if entry["to"] != NEVER]}


def link_sources(flow: CompiledFlow, started: frozenset[int] = frozenset()) -> None:
    """Write `sources` of every step.

    Args:
        flow: The compiled flow, with splits, triggers and handlers written.
        started: Steps at which handlers of the flow start a token.
    """
    sources: list[dict[int, None]] = [{} for _ in flow["steps"]]
    for body in flow["bodies"]:
        for step in body.get("start", []):
            sources[step][START] = None
    for step in sorted(started):
        if step >= 0:
            sources[step][START] = None
    for step in flow.get("triggered", ()):
        sources[step][TRIGGER] = None
    for number, spec in enumerate(flow["steps"]):
        for target in targets(spec):
            if target >= 0:
                sources[target][number] = None
    for spec, sources_of in zip(flow["steps"], sources, strict=True):
        spec["sources"] = list(sources_of)
