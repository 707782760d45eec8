"""Plays cases whose outside is a list of operations on engines, as a program does them.

An operation is a public method of `Engine`, such as `signal: [paid, 3]`, with its keywords beside
it, or one of `Operated.ACTS`, such as `write: {FILE: TEXT}`. A wait is named by its address.
`tests.cases.matching` reads what is expected.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from flowengine.engines.engine import Engine
from flowengine.engines.executions.linked_flows import read
from flowengine.engines.results import ExecutionResult
from flowengine.engines.snapshots import state_at
from flowengine.errors import Conflict
from flowengine.execution_environment import register_provider, unregister_provider
from flowengine.sdk import import_module_of
from tests.cases.form import HEAD, Played, filled, places, text_of
from tests.cases.matching import Map, Tag, differences, plain
from tests.endurance import some_of
from tests.engines import world
from tests.execution_environment.toy import Thing, Toy
from tests.stored_data import stored_in
from tests.testing.faulty_store import Fault, FaultyStore, ProcessDied

WAITS = {"approve", "reject", "respond", "decide", "claim", "release", "delegate", "wait"}
"""Methods whose first argument is a wait."""
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Unlike(AssertionError):
    """An operation that does not show what is expected."""

    def __init__(self, line: int, faults: Sequence[str]) -> None:
        super().__init__("\n  ".join(faults))
        self.line = line


def operated(played: Played, patch: pytest.MonkeyPatch) -> None:
    """Play a case in engines with a directory as their store, or in Temporal."""
    Operated(played, patch).run()


def operated_with_crashes(played: Played, patch: pytest.MonkeyPatch, tenth: int | None) -> None:
    """Play a case with a crash at each write, before or after it, in turn, or at some of them.

    The next process does the operation again.
    """
    begun = Path.cwd()
    files = {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()}
    places = [-1]
    for write in places:
        for path in begun.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        fault: Fault = "die before" if write % 2 else "die after"
        store = FaultyStore(faults={write: fault})
        try:
            with patch.context() as inner:
                Operated(played, inner, store).run()
        except Exception as error:
            error.add_note(f"with a crash at write {write}: {fault}")
            raise
        if write < 0:
            places += some_of(played.id, store.writes, tenth)


class Operated:
    """One play of a case, in the current directory.

    Args:
        played: The case.
        patch: Sets variables of the environment.
        store: The store that crashes. Default: a directory.
    """

    ACTS = ("write", "remove", "change", "env", "pass", "engine", "read", "lines", "calls", "cli",
            "settle", "sparse", "stored", "opened", "replay", "toy", "subscribe", "updates",
            "logged", "listed", "environments")  # fmt: skip
    """Operations beside the methods of `Engine`."""
    TOLD = ("expect", "raises", "where", "of", "save", "in", "until")
    """Keys of an operation that are no keywords of a method."""

    def __init__(
        self, played: Played, patch: pytest.MonkeyPatch, store: FaultyStore | None = None
    ) -> None:
        self._told = filled({**played.told}, places(Path.cwd()))
        self._patch = patch
        self._store = store
        self._clock = world.Clock()
        self._provider = Toy()
        self._heard: list[Any] = []
        self._records: list[logging.LogRecord] = []
        self._open = ExitStack()
        self._engines: dict[str, Engine] = {}
        self._options: dict[str, Mapping[str, Any]] = {}
        self._saved: dict[str, Any] = {}
        self._begun: dict[str, None] = {}
        """The executions that were begun."""
        self._asked: dict[str, str] = {}
        """The last open wait that was found by a name."""

    def run(self) -> None:
        """Play it.

        Raises:
            Unlike: It is different from what is expected.
        """
        self._prepare()
        register_provider(self._provider)
        handler = logging.Handler(logging.WARNING)
        handler.emit = self._records.append  # type: ignore[assignment,method-assign]
        logging.getLogger("flowengine").addHandler(handler)
        try:
            self._play()
        finally:
            logging.getLogger("flowengine").removeHandler(handler)
            unregister_provider("toy")

    def _play(self) -> None:
        with self._open:
            for name, options in {
                "": self._told.get("engine", {}),
                **self._told.get("engines", {}),
            }.items():
                self._begin(name, options)
            for one in self._told["do"]:
                faults = list(self._done(one))
                if faults:
                    raise Unlike(one.line, faults)
            if self._store is not None:
                self._store.faults.clear()

    def _prepare(self) -> None:
        config = Path("config/flowengine")
        config.mkdir(parents=True, exist_ok=True)
        self._env(self._told.get("env", {}))
        for name in ("settings", "rules"):
            if name in self._told:
                (config / f"{name}.yaml").write_text(text_of(self._told[name]))
        self._write(self._told["files"])
        self._change(self._told.get("change", {}))

    def _begin(self, name: str, options: Mapping[str, Any]) -> None:
        """Open an engine under a name, in place of the one that has it."""
        if name in self._engines:
            self._engines[name].close()
        self._options[name] = options
        given = {"store": "store", "durability": "process", **self._meant(options)}
        if given.pop("clock", False):
            given["clock"] = self._clock
        if given["store"] is None or self._store is not None:
            del given["durability"]
        if self._store is not None:
            given["store"] = self._store
        self._engines[name] = self._open.enter_context(Engine(**given))

    def _crash(self) -> None:
        """Begin the next process."""
        assert self._store is not None
        self._store.die()
        for engine in self._engines.values():
            with suppress(BaseException):
                engine.close()
        self._open.pop_all()
        self._engines.clear()
        self._store.restart()
        for name, options in self._options.items():
            self._begin(name, options)

    def _done(self, one: Map) -> Iterator[str]:
        """Do an operation, and yield what differs from what is expected."""
        what, *_ = one
        raises = one.get("raises")
        try:
            found = self._repeated(one, what)
        except Exception as error:
            if raises is None:
                raise
            yield from self._unlike(error, raises)
            return
        if raises is not None:
            yield f"expected {raises}, and there was no error but {str(plain(found))[:2000]}"
        found = self._viewed(plain(found), one)
        if "until" in one:
            end = time.monotonic() + 60
            while faults := [*differences(self._meant(one["until"]), found, "")]:
                if time.monotonic() > end:
                    yield from faults
                    return
                time.sleep(0.005)
                found = self._viewed(plain(self._repeated(one, what)), one)
        if "save" in one:
            self._saved[one["save"]] = found
        if "expect" in one:
            expected = self._meant(one["expect"])
            if self._store is not None and isinstance(expected, Mapping):
                expected = {key: expected[key] for key in expected if key != "first"}
            yield from differences(expected, found, "")

    def _repeated(self, one: Map, what: str) -> Any:
        """Do an operation, again if the process has died meanwhile."""
        crashed = False
        while True:
            engine = self._engines[one.get("in", "")]
            more = {
                name: bare(self._meant(value))
                for name, value in one.items()
                if name not in (what, *self.TOLD)
            }
            try:
                found = self._do(engine, what, bare(self._meant(one[what])), more)
            except ProcessDied:
                self._crash()
                crashed = True
                continue
            except Conflict:
                if not crashed or what not in ("retry", "fork", "cancel") or "raises" in one:
                    raise
                found = engine.resume(more.get("id", one[what]))  # it was done before the crash
            leaves_rest = more.get("resume") is False  # also what the crash left undone
            return self._made_up_for(engine, found) if crashed and not leaves_rest else found

    def _made_up_for(self, engine: Engine, found: Any) -> Any:
        """Return a result once all that the crash left undone is done, as workers do it."""
        resumed = dict[str, None]()
        while due := engine.due():
            engine.resume(due[0].execution)
            resumed[due[0].execution] = None
        result = getattr(found, "result", found)
        if not isinstance(result, ExecutionResult):
            for execution in resumed:
                self._settle(execution, engine)
            return found
        now = engine.executions.result(result.execution) if resumed else result
        if any(wait["kind"] == "question" for wait in now.waits):
            return self._settle(result.execution, engine)
        return engine.executions.result(result.execution) if result is found else found

    def _do(self, engine: Engine, what: str, given: Any, more: dict[str, Any]) -> Any:
        if what in self.ACTS:
            return getattr(self, f"_{what}")(given, **more)
        if what in ("run", "start", "run_async"):
            self._begun[more.setdefault("id", "it")] = None
            found = getattr(engine, what)(more.pop("flow", "flow.yaml"), given, **more)
            return asyncio.run(found) if what == "run_async" else found
        if isinstance(given, Mapping) and what not in WAITS:
            return _operation(engine, what)(**given, **more)
        words = given if isinstance(given, list) else [given] if given is not None else []
        if what in WAITS:
            words = [self._wait(engine, words[0]), *words[1:]]
        if what == "waits" and words:
            return engine.approvals.list(execution=words[0], **more)
        if what == "upgrade":
            words = words or ["flow.yaml"]
        if what == "load":
            return {**plain(flow := engine.load(*words)), "on_host": flow.on_host}
        return _operation(engine, what)(*words, **more)

    def _wait(self, engine: Engine, named: str) -> str:
        """Return the ID of the wait at an address, `EXECUTION:ADDRESS` or a beginning of an ID."""
        execution, _, address = named.rpartition(":")
        for wait in engine.approvals.list(execution=execution or None).items:
            if wait["address"] == address:
                self._asked[named] = wait["id"]
                return wait["id"]
        for id in [execution] if execution else [*self._begun] if named not in self._asked else ():
            for wait in reversed(engine.approvals.list(execution=id, status="closed").items):
                if wait["address"] == address:
                    return str(wait["id"])
        return self._asked.get(named, named)

    def _viewed(self, found: Any, one: Map) -> Any:
        """Return the part of a view that an operation speaks of."""
        if "where" in one:
            found = [each for each in found if not [*differences(one["where"], each, "")]]
        of = one.get("of")
        if of is None:
            return found
        if not isinstance(of, list):
            return [reached(each, of) for each in found] if isinstance(found, list) else (
                reached(found, of))  # fmt: skip
        rows = found if isinstance(found, list) else [found]
        return [[reached(each, name) for name in of] for each in rows]

    def _meant(self, value: Any) -> Any:
        """Return a value with what was saved in the place of `$NAME.KEY`."""
        if isinstance(value, str) and value.startswith("$") and not value.startswith("${{"):
            name, _, keys = value[1:].partition(".")
            return reached(self._saved[name], keys)
        if isinstance(value, Map):
            done = Map({key: self._meant(one) for key, one in value.items()})
            done.line = value.line
            return done
        if isinstance(value, Tag):
            return _object(value.value) if value.name == "object" else Tag(
                value.name, self._meant(value.value))  # fmt: skip
        return [self._meant(one) for one in value] if isinstance(value, list) else value

    def _unlike(self, error: Exception, raises: Any) -> Iterator[str]:
        """Yield how an error differs from `TYPE`, or `{TYPE: PART, ATTRIBUTE: VALUE}`."""
        told = dict(raises) if isinstance(raises, Mapping) else {raises: ""}
        type_, *attributes = told
        if type_ not in [one.__name__ for one in type(error).__mro__]:
            yield f"expected {type_}, not {error!r}"
            raise error
        parts = told[type_]
        for part in parts if isinstance(parts, list) else [parts]:
            if part not in str(error):
                yield f"expected {type_} with {part!r}, not {error}"
        for name in attributes:
            yield from differences(told[name], plain(getattr(error, name)), name)

    # Operations beside those of engines

    def _write(self, files: Mapping[str, Any]) -> None:
        for name, text in files.items():
            path = Path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            is_flow = path.suffix == ".yaml" and not name.startswith(("config", ".flowengine"))
            has_head = not is_flow or text.lstrip().startswith("flowengine:")
            path.write_text(("" if has_head else HEAD.replace("flow\n", f"{path.stem}\n")) + text)

    def _remove(self, name: str) -> None:
        path = Path(name)
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _change(self, changes: Mapping[str, str], file: str = "flow.yaml") -> None:
        text = Path(file).read_text()
        for old, new in changes.items():
            assert old in text, f"{old!r} is not in {file}"
            text = text.replace(old, new)
        Path(file).write_text(text)

    def _env(self, values: Mapping[str, str | None]) -> None:
        for name, value in values.items():
            if value is None:
                self._patch.delenv(name, raising=False)
            else:
                self._patch.setenv(name, value)

    def _pass(self, time: str) -> None:
        number, unit = re.fullmatch(r"(-?\d+)(\w+)", time).groups()  # type: ignore[union-attr]
        self._clock.time += int(number) * _UNITS[unit]

    def _engine(self, options: Mapping[str, Any] | None, name: str = "") -> None:
        self._begin(name, options or self._told.get("engine", {}))

    def _read(self, file: str) -> str:
        path = Path(file)
        return path.read_text() if path.exists() else ""

    def _stored(self, _: None) -> str:
        return b"".join(stored_in("store").values()).decode("latin1")

    def _listed(self, folder: str) -> list[str]:
        return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*"))

    def _sparse(self, file: str, size: int) -> None:
        with Path(file).open("wb") as new:
            new.truncate(size)

    def _lines(self, file: str) -> list[Any]:
        return [json.loads(line) for line in self._read(file).splitlines()]

    def _settle(self, execution: str, engine: Engine | None = None) -> Any:
        """Answer questions about calls that were cut off, as `effects.txt` has it."""
        engine = engine or self._engines[""]
        while asked := [
            w for w in engine.executions.result(execution).waits if w["kind"] == "question"
        ]:
            world.answer(engine, asked[0], Path())
            engine.resume(execution)
        return engine.executions.result(execution)

    def _calls(self, _: None) -> list[Any]:
        done = {
            (address, key) if self._store else number: {"address": address, "result": result}
            for number, (address, key, result) in enumerate(world.effects(Path()))
        }  # after a crash, a call may have been made again under its key
        return list(done.values())

    def _replay(self, execution: str) -> None:
        """Check that the journal alone leads to the current state."""
        engine = self._engines[""]
        found, journal = world.host_of(engine).stored(execution, 0), read(engine.store, execution)
        state = state_at(world.host_of(engine).flows, found.linked.hash, journal, len(journal))[1]
        assert state == found.state
        assert engine.executions.show(execution)["status"] == state["status"]

    def _opened(self, _: None) -> dict[str, Any]:
        toy = self._provider
        return {
            "opens": toy.opens, "releases": toy.releases, "suspended": len(toy.suspended),
            "checks": toy.checks, "tries": toy.tries, "log": [*toy.log],
            "things": [seen(one) for one in toy.things],
        }  # fmt: skip

    def _toy(self, behavior: Mapping[str, Any] | None) -> None:
        """Let the toy behave in another way, or as at first."""
        self._provider.behave()
        for name, value in (behavior or {}).items():
            setattr(self._provider, name, value)

    def _subscribe(self, beside: Callable[[Any], object] | None) -> None:
        """Record all updates of the engine, and call a function with each."""
        toy = self._provider

        def told(update: Any) -> None:
            now = {"opens": toy.opens, "releases": toy.releases}
            self._heard.append({**plain(update), "opened": now})
            if beside is not None:
                beside(update)

        self._engines[""].subscribe(told)

    def _environments(self, chosen: Mapping[str, Any]) -> Any:
        return self._engines[""].environments.list(**chosen)

    def _updates(self, _: None) -> list[Any]:
        return [*self._heard]

    def _logged(self, _: None) -> list[dict[str, str]]:
        return [{"name": r.name, "level": r.levelname, "text": r.getMessage(),
                 "error": repr(r.exc_info[1]) if r.exc_info else ""}
                for r in self._records]  # fmt: skip

    def _cli(self, words: str | Sequence[str], **options: Any) -> Any:
        from tests.command_line import flowengine

        return flowengine(*(words.split() if isinstance(words, str) else words), **options)


_IN_GROUPS = {
    "executions": "executions.list",
    "waits": "approvals.list",
    "wait": "approvals.show",
    "pause_schedules": "flows.pause",
    "resume_schedules": "flows.resume",
}
"""Methods that cases call by a name of their own."""


def _operation(engine: Engine, name: str) -> Callable[..., Any]:
    """Return a method of an engine or of one of its groups."""
    if name in _IN_GROUPS:
        return attrgetter(_IN_GROUPS[name])(engine)  # type: ignore[no-any-return]
    places = (engine, engine.executions, engine.approvals, engine.flows)
    method: Callable[..., Any] = next(getattr(of, name) for of in places if hasattr(of, name))
    return method


def seen(thing: Thing) -> dict[str, Any]:
    """Return what a case sees of an open toy."""
    spec, config = thing.request.spec, thing.request.config
    return {
        "id": thing.request.id, "key": spec.resource_key, "scope": spec.scope,
        "owner": spec.owner_id, "image": config.image, "closed": thing.closed,
        "token": config.token and config.token.reveal(),
        "has_workspace": thing.request.workspace.exists(),
        "allow": thing.request.policy and thing.request.policy.allow,
    }  # fmt: skip


def _object(named: str) -> Any:
    """Return what a module of the case has under a name, `MODULE:NAME`."""
    return getattr(import_module_of(named, str(Path.cwd())), named.partition(":")[2])


def reached(value: Any, keys: str) -> Any:
    """Return what stands in a value under keys with points between them. Nothing: None."""
    for key in filter(None, keys.split(".")):
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(value, list):
            value = (
                value[int(key)] if key.lstrip("-").isdigit() else [reached(v, key) for v in value]
            )
        else:
            return None
    return value


def bare(value: Any) -> Any:
    """Return a value without the lines of its mappings."""
    if isinstance(value, Mapping):
        return {key: bare(one) for key, one in value.items()}
    return [bare(one) for one in value] if isinstance(value, list) else value
