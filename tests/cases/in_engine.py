"""Plays cases in an engine with a virtual clock, without and with a crash at each write."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flowengine import Engine, ExecutionResult, LoadedFlow, StepContext, StepError
from flowengine.errors import Conflict
from flowengine.flow.cases import as_data
from flowengine.flow.models.cases import Answer, Case
from flowengine.kernel.commands import Run
from flowengine.kernel.notation.times import parse_duration, parse_time
from flowengine.kernel.view import DECIDABLE
from flowengine.sdk.python.imported_modules import import_function
from flowengine.settings import Settings
from flowengine.testing.player import _error_of
from flowengine.testing.scripts import CaseFailed
from tests.cases.form import Follow, Played
from tests.cases.memory_with_rows import MemoryWithRows, check_rows
from tests.cases.plays import Differs, Outside, compared
from tests.endurance import some_of
from tests.engines import world
from tests.language.stage import Clock, Loop
from tests.testing.faulty_store import Fault, FaultyStore, ProcessDied

ID = "it"
FOREVER = 1e8
"""Virtual seconds after which nothing is expected to happen."""
TURNS = 2_000
"""Maximum number of turns of a play in the engine."""


class World:
    """What happens outside of an engine, which survives its crashes.

    Args:
        case: The case.
        flow: The compiled flow.
        passed: Returns the milliseconds since the beginning.
    """

    def __init__(self, case: Case, flow: LoadedFlow, passed: Callable[[], int]) -> None:
        self.case = case
        self.flow = flow
        self.scripts = Outside(case, flow.compiled, passed)
        self.keys: dict[str, set[str]] = {}
        """Address → idempotency keys of its calls."""
        self.given: dict[tuple[str, int], list[Answer]] = {}
        """(address, attempt) → its answers in this process. A repeated group has several."""
        self.told = Counter[tuple[str, int]]()
        """(address, attempt) → number of its outcomes in the journal when the process began."""
        self.again: dict[str, list[Answer]] = {}
        """Address → answers that were lost in a crash."""
        self.busy: list[str] = []
        """Addresses of the calls at work."""
        self.crashed = asyncio.Event()
        self.failure: CaseFailed | None = None
        self.draws = random.Random(1)
        self.pauses = True

    async def act(self, context: StepContext, value: Any) -> Any:
        """Return the answer to a call, as the case has it."""
        address = context.address
        self.keys.setdefault(address, set()).add(context.idempotency_key)
        try:
            answer = self._answer(context, value)
        except CaseFailed as failure:
            self.failure = failure
            self.crashed.set()
            raise StepError(failure.message) from failure
        pause = self.draws.random() * 0.0009 if self.pauses else 0.0
        self.busy.append(address)
        try:
            await asyncio.sleep(parse_duration(answer.after) / 1000 + pause)
            if answer.crash:
                self.crashed.set()
            if answer.crash or answer.never:
                await asyncio.Event().wait()
        finally:
            self.busy.remove(address)
        error = _error_of(answer)
        if error is None:
            return as_data(answer.return_)
        after = error.get("retry_after")
        raise StepError(
            error["message"],
            type=error["type"],
            data=error["data"],
            retryable=error.get("retryable"),
            retry_after=None if after is None else after / 1000,
        )

    def _answer(self, context: StepContext, value: Any) -> Answer:
        address, attempt = context.address, context.attempt
        if self.again.get(address):
            self.scripts.began(address)
            answer = self.again[address].pop(0)
        else:
            name = address.split("/")[-1].split("[")[0].split("@")[0].split("#")[0]
            undoes = name == "compensate"
            if undoes:
                name = address.split("/")[-2].split("[")[0].split("@")[0].split("#")[0]
            steps = self.flow.compiled["steps"]
            number = next(
                n for n, step in enumerate(steps)
                if step["id"] == name and (step["body"] < 0) == undoes
            )  # fmt: skip
            run = Run(0, attempt, number, address, {"value": value}, {}, None)
            answer = self.scripts.answer(run)
        self.given.setdefault((address, attempt), []).append(answer)
        return answer

    def lost(self, events: list[dict[str, Any]]) -> dict[str, Answer]:
        """Give the answers again whose outcomes are not in the journal. Return them by address."""
        told = Counter(
            (event["address"], event["attempt"])
            for event in events
            if event["type"] in ("succeeded", "failed")
        )
        left = {
            key[0]: answers[-1]
            for key, answers in self.given.items()
            if len(answers) > told[key] - self.told[key]
        }
        self.given.clear()
        self.told = told
        for address, answer in left.items():
            if not answer.crash:
                self.again.setdefault(address, []).append(answer)
        return left


class Enacted:
    """One play of a case in engines, each the next process after a crash.

    Args:
        played: The case.
        flow: Its flow.
        folder: The project folder, with `tools.py`.
        faults: Number of a write → what happens there.
    """

    def __init__(
        self, played: Played, flow: LoadedFlow, folder: Path, faults: dict[int, Fault]
    ) -> None:
        self.played = played
        self.case = played.case
        self.flow = flow
        self.folder = folder
        self.world = World(played.case, flow, self._passed)
        self.store = FaultyStore(lambda is_dead: MemoryWithRows(is_dead=is_dead), faults=faults)
        self.crashes = 0
        self.began = parse_time(played.case.at)
        self.clock = Clock(self.began)
        self.engine: Engine
        self.id = ID
        self._agenda: list[tuple[int, Callable[[], Awaitable[object]]]] = []
        self._lost: dict[str, Answer] = {}
        self._deciding: Any = None
        """The wait on which a scripted decision is being made."""

    def play(self) -> None:
        """Play the case, and then what an operator does."""
        loop = Loop(self.clock)
        import_function("tools:use", str(self.folder))(self.world)
        try:
            loop.run_until_complete(self._play())
        finally:
            loop.close()

    def _passed(self) -> int:
        return self.clock.now() - self.began

    async def _play(self) -> None:
        first = partial(self._begun)
        self._plan(self.case)
        await self._enact(first)
        self._compare(self.played)
        for follow in self.played.then:
            await self._follow(follow)

    async def _follow(self, follow: Follow) -> None:
        """Retry or fork the execution."""
        self.world = World(follow.case, self.flow, self._passed)
        import_function("tools:use", str(self.folder))(self.world)
        self.case, before = follow.case, self.id
        self.began = self.clock.now()
        self._plan(follow.case)
        if follow.action == "fork":
            self.id = f"{before}-fork"

        async def go(engine: Engine) -> ExecutionResult:
            if follow.action == "retry":
                return await engine.executions.retry_async(before, step=follow.step)
            return await engine.executions.fork_async(
                before, from_step=follow.step or "", id=self.id
            )

        async def go_on(engine: Engine) -> ExecutionResult:
            try:
                return await go(engine)
            except Conflict:
                if self.crashes == 0:
                    raise
                return await engine.resume_async(self.id)  # it was done before the crash

        await self._enact(go_on)
        self._compare(self.played._replace(case=follow.case, calls=follow.calls))

    async def _begun(self, engine: Engine) -> ExecutionResult:
        case = self.case
        return await engine.run_async(
            self.flow, as_data(case.inputs), id=self.id, labels=case.labels
        )

    async def _enact(self, go: Callable[[Engine], Awaitable[ExecutionResult]]) -> None:
        """Go on with engine after engine until one is not interrupted."""
        while True:
            self.engine = engine = Engine(
                self.store, clock=self.clock, workdir=self.folder, ttl=1e6, user=self.case.by
            )
            world.host_of(engine).settings = Settings(
                groups={name: frozenset(users) for name, users in self.case.groups.items()}
            )
            self.world.crashed.clear()
            try:
                await self._drive(go)
                if self._deciding is not None:
                    self.world.scripts.made(self._deciding)
                await engine.__aexit__()
                return
            except ProcessDied:
                self.crashes += 1
                self.store.die()
                with suppress(BaseException):
                    await engine.__aexit__()
                for task in asyncio.all_tasks() - {asyncio.current_task()}:
                    task.cancel()
                    with suppress(BaseException):
                        await task
                self.store.restart()
                if self.world.failure is not None:
                    raise self.world.failure from None
                self._lost |= self._looked_up()

    def _looked_up(self) -> dict[str, Answer]:
        reader = Engine(self.store, clock=self.clock, workdir=self.folder)
        try:
            events = list(reader.executions.events(self.id))
        except Exception:
            events = []
        finally:
            reader.close()
        return self.world.lost(events)

    async def _drive(self, go: Callable[[Engine], Awaitable[ExecutionResult]]) -> None:
        crash = asyncio.create_task(self._die_with_the_world())
        planned: dict[str, int] = {}
        try:
            result = await self._attend(asyncio.ensure_future(go(self.engine)), crash, planned)
            for _ in range(TURNS):
                if result is not None and result.ended:
                    assert not self.world.busy, f"not withdrawn: {self.world.busy}"
                if result is None or result.ended or not await self._rest(planned, result):
                    return
                work = asyncio.ensure_future(self.engine.resume_async(self.id))
                result = await self._attend(work, crash, planned)
            raise CaseFailed(f"the execution does not come to rest in {TURNS} turns")
        finally:
            crash.cancel()

    async def _die_with_the_world(self) -> ExecutionResult:
        await self.world.crashed.wait()
        raise ProcessDied

    async def _attend(
        self,
        work: asyncio.Future[ExecutionResult],
        crash: asyncio.Future[ExecutionResult],
        planned: dict[str, int],
    ) -> ExecutionResult | None:
        """Do what is due outside while the engine works. None: the time of the case is over."""
        pause = 0.001
        while True:
            pause = min(pause * 2, self._wait(planned) or 1e9)
            await asyncio.wait({work, crash}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            if crash.done():
                crash.result()
            if work.done():
                return work.result()
            if self._is_over():
                work.cancel()
                return None
            if self.clock.seconds > FOREVER:
                raise CaseFailed(f"nothing ends {self.world.busy}")
            if await self._outside(planned):
                pause = 0.001

    async def _rest(self, planned: dict[str, int], result: ExecutionResult) -> bool:
        """Let time pass until something happens. Return whether anything does."""
        if await self._outside(planned):
            return True
        next_at = self._next(planned, result)
        if next_at is None:
            return False
        await asyncio.sleep(max(0, next_at - self.clock.now()) / 1000)
        await self._outside(planned)
        return True

    def _next(self, planned: dict[str, int], result: ExecutionResult) -> int | None:
        """Return when something happens next, while the execution waits."""
        moments = [at for at, _ in self._agenda[:1]] + list(planned.values())
        until = self._until
        passes = until is not None or moments or self.case.expected_status != "waiting"
        if result.due is not None and passes:
            moments.append(result.due)
        first = min(moments, default=None)
        return None if first is None or (until is not None and first > until) else first

    def _wait(self, planned: dict[str, int]) -> float | None:
        moments = [at for at, _ in self._agenda[:1]] + list(planned.values())
        left = min(moments if self._until is None else [*moments, self._until], default=None)
        return None if left is None else max(0.0, left - self.clock.now()) / 1000

    @property
    def _until(self) -> int | None:
        until = self.case.until
        return None if until is None else self.began + parse_duration(until)

    def _is_over(self) -> bool:
        return self._until is not None and self.clock.now() >= self._until

    # The outside

    def _plan(self, case: Case) -> None:
        for number, sending in enumerate(case.signals):

            async def send(sending: Any = sending, number: int = number) -> None:
                key = as_data(sending.key)
                to: Any = {"execution": self.id} if key is None else {"key": key}
                await self.engine.signal_async(
                    sending.name, as_data(sending.data), id=f"m{number}", by=sending.by,
                    resume=False, **to,
                )  # fmt: skip

            self._agenda.append((self.began + parse_duration(sending.at), send))
        if case.cancel is not None:
            asked = case.cancel

            async def cancel() -> None:
                await self.engine.executions.cancel_async(
                    self.id, reason=asked.reason, now=asked.now, by=asked.by, resume=False
                )

            self._agenda.append((self.began + parse_duration(asked.at), cancel))
        self._agenda.sort(key=lambda one: one[0])

    async def _outside(self, planned: dict[str, int]) -> bool:
        """Do what is due outside. Return whether anything was."""
        acted = False
        while self._agenda and self._agenda[0][0] <= self.clock.now():
            if not self._exists():
                return acted
            await self._agenda[0][1]()
            del self._agenda[0]
            acted = True
        waits = self.engine.approvals.list().items if self._exists() else []
        if self._deciding is not None:
            if all(wait["id"] != self._deciding["id"] for wait in waits):
                self.world.scripts.made(self._deciding)  # before the crash
            self._deciding = None
        for wait in waits:
            if wait["execution"] != self.id or wait["kind"] not in DECIDABLE:
                continue
            if wait["id"] not in planned:
                decided = self.world.scripts.decision(wait)
                if decided is None and not self._is_lost(wait):
                    continue
                after = 0 if decided is None else parse_duration(decided.after)
                planned[wait["id"]] = parse_time(wait["since"]) + after
            if planned[wait["id"]] <= self.clock.now():
                del planned[wait["id"]]
                await self._decide(wait)
                acted = True
        open_now = {wait["id"] for wait in self.engine.approvals.list().items} if planned else set()
        for gone in set(planned) - open_now:
            del planned[gone]
        return acted

    def _exists(self) -> bool:
        try:
            return bool(self.engine.executions.result(self.id))
        except Exception:
            return False

    def _is_lost(self, wait: Any) -> bool:
        """Return whether a question is about a call that a crash of this play has cut off."""
        return wait["kind"] == "question" and self.crashes > 0

    async def _decide(self, wait: Any) -> None:
        scripts = self.world.scripts
        decided = scripts.decision(wait)
        if decided is None:
            await self._settle(wait)
            return
        choices = [choice["id"] for choice in wait.get("choices") or ()]
        answer: Any = {
            name: as_data(value)
            for name, value in (
                ("form", decided.form), ("edit", decided.edit), ("comment", decided.comment),
            )
            if value is not None
        }  # fmt: skip
        if decided.has("value"):
            answer["value"] = as_data(decided.value)
        by = decided.by or self._assignee(wait)
        self._deciding = wait
        try:
            await self.engine.approvals.decide_async(
                wait["id"], decided.choice or choices[0], by=by, resume=False, **answer
            )
        except Exception as error:
            if not decided.refused:
                message = f"the decision on '{wait['address']}' is refused: {error}"
                raise CaseFailed(message, decided.loc) from error
        else:
            if decided.refused:
                message = f"the decision on '{wait['address']}' is not refused"
                raise CaseFailed(message, decided.loc)
        self._deciding = None
        scripts.made(wait)

    async def _settle(self, wait: Any) -> None:
        """Say how a call ended whose end the crash has lost."""
        answer = self._lost.get(wait["address"])
        acted = answer is not None and not (answer.raise_ or answer.never or answer.crash)
        if not acted or answer is None:
            await self.engine.approvals.decide_async(wait["id"], "retry", resume=False)
            return
        self.world.again.get(wait["address"], []).clear()
        value = as_data(answer.return_)
        await self.engine.approvals.decide_async(wait["id"], "result", value=value, resume=False)

    def _assignee(self, wait: Any) -> str:
        excluded = wait.get("exclude") or []
        settings = world.host_of(self.engine).settings
        for name in wait.get("assignees") or ["user:test"]:
            users = sorted(settings.groups.get(name[6:], ())) if name[:6] == "group:" else [name]
            for user in users:
                if settings.excluding(user, excluded) is None:
                    return str(user)
        return "user:test"

    # What came of it

    def _compare(self, played: Played) -> None:
        reader = Engine(self.store, clock=self.clock, workdir=self.folder)
        try:
            shown: Any = reader.executions.show(self.id)
            cells: Any = world.host_of(reader).stored(self.id, 0).state["vars"]
            check_rows(world.host_of(reader), self.id)
        finally:
            reader.close()
        numbers = {step["id"]: n for n, step in enumerate(self.flow.compiled["steps"])}
        seen = [
            SimpleNamespace(**{**step, "step": numbers.get(step["step"], 0)})
            for step in shown["steps"]
        ]
        state = {
            "status": "running" if shown["status"] == "interrupted" else shown["status"],
            "outputs": shown["outputs"], "error": shown["error"],
            "vars": cells,
        }  # fmt: skip
        waits = {wait["id"]: wait for wait in shown["waits"]}
        found = SimpleNamespace(
            problem=None,
            execution=SimpleNamespace(state=state, waits=waits),
            observations=seen,
            flow=SimpleNamespace(compiled=self.flow.compiled),
            scripts=self.world.scripts,
            at_work=list,
        )
        try:
            compared(played, found, self.world.scripts.calls, exact=not self.crashes)
            double = {where: keys for where, keys in self.world.keys.items() if len(keys) > 1}
            assert not double, f"calls with several idempotency keys: {double}"
        except (Differs, AssertionError) as error:
            error.add_note(f"in the engine, {self.crashes} crashes")
            raise


def in_engine(played: Played, flow: LoadedFlow, folder: Path) -> None:
    """Play a case in an engine with a virtual clock."""
    Enacted(played, flow, folder, {}).play()


def with_crashes(played: Played, flow: LoadedFlow, folder: Path, tenth: int | None) -> None:
    """Play a case with a crash at each write, before or after it, in turn, or at some of them."""
    calm = Enacted(played, flow, folder, {})
    calm.play()
    for write in some_of(played.id, calm.store.writes, tenth):
        fault: Fault = "die before" if write % 2 else "die after"
        enacted = Enacted(played, flow, folder, {write: fault})
        try:
            enacted.play()
        except Exception as error:
            error.add_note(f"with a crash at write {write}: {fault}")
            raise
