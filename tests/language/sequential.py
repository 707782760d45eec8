"""Random sequential flows, and an oracle for their outcome that is independent of the engine.

A `Flow` is a small tree. `written` turns it into flow file data. `Oracle` interprets it as plain
recursion: a group is a loop over its steps, an error an exception, `finally` is `finally`, and time
is a number. Only one step runs at a time, so writes to state never conflict.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

KEYS = ["k0", "k1", "k2"]
FOR_EVER = 10**15


class Value(NamedTuple):
    """A written value: `(state.KEY * times + plus) % 97`."""

    key: str
    times: int
    plus: int


class Test(NamedTuple):
    """A condition: `state.KEY % modulo == rest`."""

    key: str
    modulo: int
    rest: int


Sets = dict[str, Value]


@dataclass
class Handler:
    """A handler in `on_error`, where `do` is `continue`, `output`, `aside`, or `fail`."""

    do: str
    type: str | None = None
    sets: Sets = field(default_factory=dict)


@dataclass
class Step:
    """A step. Fields that its kind does not use are empty.

    `kind` is `write`, `fail`, `cancel`, `hang` (wait forever), `pause`, `group`, `flow`, or one of
    two branches that meet: `race` (the first writes, then hangs, and loses), `end_all` (the same,
    but the other one ends it) and `both` (only one writes).
    """

    id: str
    kind: str
    when: Test | None = None
    sets: Sets = field(default_factory=dict)
    leave: tuple[Test, str] | None = None
    handlers: list[Handler] = field(default_factory=list)
    timeout: int = 0
    deadline: int = 0
    attempts: int = 0
    only: str | None = None
    until: Test | None = None
    rounds: int = 0
    items: int = 0
    stops: bool = True
    steps: list[Step] = field(default_factory=list)
    aside: list[Step] = field(default_factory=list)
    final: list[Step] = field(default_factory=list)
    type: str = ""
    retryable: bool = False
    target: str = ""
    how: str = ""
    after: int = 0


@dataclass
class Flow:
    """A flow: the main flow with its subflows, or a subflow."""

    steps: list[Step]
    aside: list[Step] = field(default_factory=list)
    final: list[Step] = field(default_factory=list)
    handlers: list[Handler] = field(default_factory=list)
    flows: dict[str, Flow] = field(default_factory=dict)


# The oracle


class Error(Exception):
    """An error of the flow."""

    def __init__(self, type: str, retryable: bool = False) -> None:
        super().__init__(type)
        self.type = type
        self.retryable = retryable


class Withdrawn(Exception):
    """Ends a surrounding step: `whose` identifies that step's interpretation."""

    def __init__(self, whose: object, how: str = "") -> None:
        super().__init__(how)
        self.whose = whose
        self.how = how


class Oracle:
    """One interpretation of a flow, as plain recursion."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.state: dict[str, int] = dict.fromkeys(KEYS, 0)
        self.log: list[str] = []
        self.now = 0
        self.bounds: list[tuple[int, object]] = []
        self.inside: list[tuple[str, object]] = []

    def play(self) -> tuple[str, Any, dict[str, Any]]:
        """Return the status, the outputs or the error type, and the final state."""
        try:
            outputs = self._flow(self.flow)
        except Error as error:
            return "failed", error.type, {**self.state, "log": self.log}
        return "succeeded", outputs, {**self.state, "log": self.log}

    def _flow(self, flow: Flow) -> dict[str, Any]:
        try:
            try:
                self._body(flow.steps, flow.aside)
            except Error as error:
                found = self._handler(flow.handlers, error)
                if found.do == "output":
                    return {"k0": -1}
                if found.do == "aside":
                    self._body(flow.aside, [])
            return {"k0": self.state["k0"]}
        finally:
            self._body(flow.final, [])

    def _handler(self, handlers: list[Handler], error: Error) -> Handler:
        for one in handlers:
            if one.type == error.type or (one.type is None and error.type != "Cancelled"):
                self._set(one.sets)
                if one.do == "fail":
                    raise Error("Other")
                return one
        raise error

    def _body(self, steps: list[Step], aside: list[Step]) -> None:
        for step in steps:
            then = self._step(step)
            if then == "aside":
                self._body(aside, [])
            if then != "next":
                return

    def _step(self, step: Step) -> str:
        then = "next"
        if step.when is None or self._holds(step.when):
            try:
                then = self._at_work(step)
            except Error as error:
                then = "aside" if self._handler(step.handlers, error).do == "aside" else "next"
        if then == "next" and step.leave is not None and self._holds(step.leave[0]):
            return "end"
        return then

    def _at_work(self, step: Step) -> str:
        whose = object()
        self.inside.append((step.id, whose))
        try:
            with self._bounded(step.deadline, whose):
                self._items(step)
        except Withdrawn as cut:
            if cut.whose is not whose:
                raise
            named = any(one.type == "Cancelled" for one in step.handlers)
            if not cut.how:
                raise Error("Deadline") from None
            if cut.how == "failed" or (cut.how == "cancelled" and named):
                raise Error("Cancelled") from None
            return "end" if cut.how == "cancelled" else "next"
        finally:
            self.inside.pop()
        return "next"

    @contextmanager
    def _bounded(self, limit: int, whose: object) -> Iterator[None]:
        if not limit:
            yield
            return
        bound = (self.now + limit, whose)
        self.bounds.append(bound)
        try:
            yield
        finally:
            self.bounds.remove(bound)

    def _sleep(self, span: int) -> None:
        first = min(self.bounds, key=lambda bound: bound[0], default=None)
        if first is not None and first[0] < self.now + span:
            self.now = first[0]
            raise Withdrawn(first[1])
        assert span < FOR_EVER
        self.now += span

    def _items(self, step: Step) -> None:
        if not step.items:
            self._rounds(step)
        failed = False
        for _ in range(step.items):
            try:
                self._rounds(step)
            except Error:
                failed = True
                if step.stops:
                    break
        if failed and step.stops:
            raise Error("MapFailed")

    def _rounds(self, step: Step) -> None:
        if not step.rounds:
            self._attempts(step)
        for _ in range(step.rounds):
            self._attempts(step)
            if step.until is not None and self._holds(step.until):
                return
        if step.rounds:
            raise Error("LoopLimit")

    def _attempts(self, step: Step) -> None:
        tried = 0
        while True:
            tried += 1
            try:
                self._attempt(step)
            except Error as error:
                again = error.type == step.only if step.only else error.retryable
                if tried >= step.attempts or not again or error.type == "Cancelled":
                    raise
                self._sleep(1000)
            else:
                return

    def _attempt(self, step: Step) -> None:
        whose = object()
        try:
            with self._bounded(step.timeout, whose):
                self._act(step)
        except Withdrawn as cut:
            if cut.whose is not whose:
                raise
            raise Error("Timeout", retryable=True) from None
        self._set(step.sets)

    def _act(self, step: Step) -> None:
        if step.kind == "write":
            self.log.append(step.id)
        elif step.kind == "fail":
            raise Error(step.type, step.retryable)
        elif step.kind == "cancel":
            whose = next(one for name, one in reversed(self.inside) if name == step.target)
            raise Withdrawn(whose, step.how)
        elif step.kind == "hang":
            self._sleep(FOR_EVER)
        elif step.kind == "pause":
            self._sleep(step.after)
        elif step.kind == "flow":
            self._subflow(step)
        else:
            try:
                self._body(step.steps, step.aside)
                if step.kind in ("race", "end_all"):
                    self._sleep(step.after)
                self._body(step.final if step.kind in ("race", "both") else [], [])
            finally:
                if step.kind == "group":
                    self._body(step.final, [])

    def _subflow(self, step: Step) -> None:
        outside = self.state, self.log, self.inside
        self.state, self.log, self.inside = dict.fromkeys(KEYS, 0), [], []
        try:
            given = self._flow(self.flow.flows[step.target])["k0"]
        finally:
            self.state, self.log, self.inside = outside
        self.state["k0"] = given

    def _holds(self, test: Test) -> bool:
        return self.state[test.key] % test.modulo == test.rest

    def _set(self, sets: Sets) -> None:
        before = dict(self.state)
        for key, value in sets.items():
            self.state[key] = (before[value.key] * value.times + value.plus) % 97


# Flow file data


def written(flow: Flow) -> dict[str, Any]:
    """Return a flow as the data of a flow file, without its head."""
    file = _flow(flow)
    file["signals"] = {"never": {}}
    if flow.flows:
        file["flows"] = {name: _flow(one) for name, one in flow.flows.items()}
    return file


def _flow(flow: Flow) -> dict[str, Any]:
    state: dict[str, Any] = {key: {"type": "integer", "default": 0} for key in KEYS}
    state["log"] = {"type": "array", "default": [], "reducer": "append"}
    file = {"state": state, **_body(flow.steps, flow.aside, "steps")}
    file["outputs"] = {"k0": "${{ state.k0 }}"}
    if flow.handlers:
        file["on_error"] = [_handler(one, flow.aside, {"k0": -1}) for one in flow.handlers]
    if flow.final:
        file["finally"] = _steps(flow.final)
    return file


def _body(steps: list[Step], aside: list[Step], word: str) -> dict[str, Any]:
    main = _steps(steps, aside)
    if aside:
        main[-1].setdefault("next", "end")
    return {word: [*main, *_steps(aside)]}


def _steps(steps: list[Step], aside: list[Step] | None = None) -> list[dict[str, Any]]:
    followers = [*(step.id for step in steps), "end"][1:]
    return [
        {**_step(one, aside or []), **_leave(one, then)}
        for one, then in zip(steps, followers, strict=False)
    ]


def _leave(step: Step, then: str) -> dict[str, Any]:
    if step.leave is None:
        return {}
    test, to = step.leave
    return {"next": {"first": [{"when": _test(test), "to": to}, {"else": then}]}}


def _step(step: Step, aside: list[Step]) -> dict[str, Any]:
    one: dict[str, Any] = {"id": step.id, **_action(step)}
    if step.when is not None:
        one["when"] = _test(step.when)
    sets: dict[str, Any] = _sets(step.sets)
    if step.kind == "write":
        sets["log"] = step.id
    if step.kind == "flow":
        sets["k0"] = "${{ output.k0 }}"
    if sets:
        one["set"] = sets
    if step.handlers:
        one["on_error"] = [_handler(handler, aside, 1) for handler in step.handlers]
        if step.handlers[0].do == "continue":
            one["on_error"] = "continue"
    if step.timeout:
        one["timeout"] = f"{step.timeout}ms"
    if step.deadline:
        one["deadline"] = f"{step.deadline}ms"
    if step.attempts:
        only = {"only": [step.only]} if step.only else {}
        one["retry"] = {"attempts": step.attempts, "delay": "1s", "backoff": 1, "jitter": "none"}
        one["retry"] |= only
    if step.until is not None:
        one["loop"] = {"until": _test(step.until), "max": step.rounds}
    if step.items:
        more = {} if step.stops else {"on_item_error": "continue"}
        one["map"] = {"over": step.items, "concurrency": 1, **more}
    return one


def _action(step: Step) -> dict[str, Any]:
    if step.kind == "fail":
        return {"fail": {"type": step.type, "message": "drawn", "retryable": step.retryable}}
    if step.kind == "cancel":
        return {"cancel": {"targets": [step.target], "as": step.how}}
    if step.kind == "hang":
        return {"wait": {"signal": "never"}}
    if step.kind == "pause":
        return {"wait": {"for": f"{step.after}ms"}}
    if step.kind == "flow":
        return {"flow": step.target}
    if step.kind == "group":
        final = {"finally": _steps(step.final)} if step.final else {}
        return {**_body(step.steps, step.aside, "group"), **final}
    return {"group": _branches(step)} if step.kind != "write" else {}


def _branches(step: Step) -> list[dict[str, Any]]:
    fork, one, two, join = (f"{step.id}{word}" for word in ("_s", "_1", "_2", "_j"))
    hang = {"id": f"{step.id}_h", "wait": {"signal": "never"}}
    loses = step.kind != "both"
    to = "end" if step.kind == "end_all" else join
    branches: list[dict[str, Any]] = [
        {"id": fork, "next": {"all": [one, two]}},
        {"id": one, "group": [*_steps(step.steps), *([hang] if loses else [])], "next": to},
        {"id": two, "next": "end_all" if step.kind == "end_all" else join},
    ]
    if loses:
        branches[2]["wait"] = {"for": f"{step.after}ms"}
    if step.kind == "end_all":
        return branches
    kind: Any = "all" if step.kind == "both" else {"need": 1, "late": "cancel"}
    follower = step.final[0].id
    return [*branches, {"id": join, "join": kind, "next": follower}, *_steps(step.final)]


def _handler(handler: Handler, aside: list[Step], output: Any) -> dict[str, Any]:
    one: dict[str, Any] = {} if handler.type is None else {"type": handler.type}
    if handler.sets:
        one["set"] = _sets(handler.sets)
    if handler.do == "fail":
        one["fail"] = {"type": "Other", "message": "raised by a handler"}
    elif handler.do == "aside":
        one["next"] = aside[0].id
    elif handler.do == "output":
        one["output"] = output
    return one


def _sets(sets: Sets) -> dict[str, Any]:
    return {
        key: f"${{{{ (state.{one.key} * {one.times} + {one.plus}) % 97 }}}}"
        for key, one in sets.items()
    }


def _test(test: Test) -> str:
    return f"${{{{ state.{test.key} % {test.modulo} == {test.rest} }}}}"


# Random flows


def draw_flow(seed: int) -> Flow:
    """Return a random sequential flow."""
    return _Draws(random.Random(seed)).flow()


class _Draws:
    def __init__(self, draws: random.Random) -> None:
        self.random = draws
        self.count = 0
        self.flows: dict[str, Flow] = {}
        self.calm = False
        """Whether the steps of the inner flow must not wait."""

    def flow(self) -> Flow:
        if self.chance(0.4):
            self.calm = self.chance(0.5)
            self.flows["f"] = self.whole(depth=1, still=self.calm)
        main = self.whole(depth=3)
        main.flows = self.flows
        return main

    def whole(self, depth: int, *, still: bool = False) -> Flow:
        flow = Flow(self.steps(depth, [], still))
        flow.aside = self.asides(flow.steps)
        if self.chance(0.3):
            flow.final = self.writes()
        if self.chance(0.4):
            flow.handlers = [Handler(self.random.choice(["output", "fail"]), None)]
            flow.handlers[0].sets = self.sets()
            if flow.aside or self.chance(0.5):
                flow.handlers[0].do = "aside"
                flow.aside = flow.aside or self.writes()
        return flow

    def chance(self, likely: float) -> bool:
        return self.random.random() < likely

    def name(self) -> str:
        self.count += 1
        return f"s{self.count}"

    def number(self) -> int:
        """Return a time that differs from all others."""
        self.count += 1
        return self.random.randrange(1, 9000) * 1009 + self.count

    def test(self) -> Test:
        modulo = self.random.randint(2, 3)
        return Test(self.random.choice(KEYS), modulo, self.random.randrange(modulo))

    def sets(self) -> Sets:
        keys = self.random.sample(KEYS, self.random.randint(1, 2))
        drawn = self.random
        return {
            key: Value(drawn.choice(KEYS), drawn.randint(0, 3), drawn.randrange(9)) for key in keys
        }

    def writes(self) -> list[Step]:
        count = self.random.randint(1, 2)
        return [Step(self.name(), "write", sets=self.sets()) for _ in range(count)]

    def steps(self, depth: int, around: list[Step], still: bool = False) -> list[Step]:
        """Return the steps of a scope. `around` are the steps that contain it, in its own flow."""
        found = [self.step(depth, around, still) for _ in range(self.random.randint(1, 4))]
        for step in found:
            if self.chance(0.1):
                step.leave = (self.test(), self.random.choice(["end", "end_all"]))
        return found

    def asides(self, steps: list[Step]) -> list[Step]:
        """Return the steps that handlers may jump to, if any."""
        led = [h for step in steps for h in step.handlers if h.do == "aside"]
        return self.writes() if led else []

    def step(self, depth: int, around: list[Step], still: bool) -> Step:
        bounded = any(step.timeout or step.deadline for step in around)
        kinds = ["write"] * 4 + ["fail"] * 2 + ["cancel"] * bool(around)
        kinds += (
            ["group"] * 4 * (depth > 0)
            + ["flow"] * (bool(self.flows) and (self.calm or not still))
            + ["both"]
        )
        kinds += ["race", "end_all", "pause", *["hang"] * 2 * bounded] if not still else []
        step = Step(self.name(), self.random.choice(kinds))
        if self.chance(0.2) or step.kind in ("fail", "cancel", "hang"):
            step.when = self.test()
        if step.kind in ("write", "both", "race", "group", "pause"):
            step.sets = self.sets() if step.kind == "write" or self.chance(0.3) else {}
        if step.kind == "fail":
            step.type = self.random.choice(["Oops", "Nope"])
            step.retryable = self.chance(0.5)
        elif step.kind == "cancel":
            step.target = self.random.choice(around).id
            step.how = self.random.choice(["cancelled", "failed", "succeeded"])
        elif step.kind == "flow":
            step.target = "f"
        elif step.kind == "group":
            self.group(step, depth, around, still)
        elif step.kind in ("race", "end_all", "both"):
            step.steps, step.final = self.writes(), self.writes()
        step.after = self.number() // 1000
        self.handle(step)
        return step

    def group(self, step: Step, depth: int, around: list[Step], still: bool) -> None:
        if self.chance(0.3):
            step.items = self.random.randint(1, 3)
            step.stops = self.chance(0.5)
            still = True  # an item that waits lets the next one start
        if self.chance(0.3):
            step.attempts = self.random.randint(2, 3)
            step.only = self.random.choice([None, "Oops", "Timeout"])
            if step.only == "Timeout" and still:
                step.only = None
        if self.chance(0.3):
            step.until, step.rounds = self.test(), self.random.randint(1, 3)
        if self.chance(0.4):
            step.timeout = self.number()
        if self.chance(0.2):
            step.deadline = self.number()
        step.steps = self.steps(depth - 1, [*around, step], still)
        step.aside = self.asides(step.steps)
        if self.chance(0.4):
            step.final = self.writes()

    def handle(self, step: Step) -> None:
        if step.kind in ("write", "pause", "hang", "cancel", "end_all") or self.chance(0.5):
            return
        do = self.random.choice(["continue", "output", "aside", "fail"])
        if do == "continue" or (step.rounds and do == "output"):
            step.handlers = [Handler("continue")]
            return
        types = [None, None, "Oops", "Cancelled"] if step.kind == "group" else [None]
        handler = Handler(do, None if step.items else self.random.choice(types))
        handler.sets = self.sets() if self.chance(0.5) else {}
        step.handlers = [handler]
