"""The conformance suite for environment providers: for the built-in ones and for yours.

Each check takes a `ProviderCase` and raises `AssertionError` if the provider breaks the rule that
the check's docstring states. With pytest:

    CASE = ProviderCase(MyProvider, {"kind": "mine"}, use=lambda resource: resource.ask("anything"))

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_provider_conforms(check):
        check(CASE)
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import io
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from flowengine.execution_environment import (
    EnvironmentManager,
    Handle,
    SpecInvalid,
    register_provider,
    unregister_provider,
)
from flowengine.execution_environment.specs.providers import check_provider, find_provider
from flowengine.registry import environment_names, registered_providers
from flowengine.sdk.environments import VARIABLE, Provider, background
from flowengine.sdk.processes import marked

BOUND = 60.0
"""Seconds after which an expected event counts as missing."""


class ProviderCase(NamedTuple):
    """A provider under test."""

    provider: Callable[[], Provider[Any]]
    """Makes it. For the check with a killed process it must be a class that can be imported."""
    spec: Mapping[str, Any]
    """A spec of its kind without scope and owner."""
    use: Callable[[Any], object]
    """Uses a resource, blocking, and raises an error if that fails."""


Check = Callable[[ProviderCase], None]


class Bench:
    """A manager for one check, in a separate directory."""

    def __init__(self, case: ProviderCase, folder: Path) -> None:
        self.case = case
        self.folder = folder
        self.manager = EnvironmentManager(folder)

    def spec(self, owner: str = "one") -> dict[str, Any]:
        """Return the spec for an owner."""
        return {**self.case.spec, "scope": "session", "owner_id": owner}

    def check_gone(self, handle: Handle) -> None:
        """Fail if a process or an entry of an environment remains."""
        results = [
            f"process {pid}"
            for pid, mark in marked(VARIABLE).items()
            if mark.startswith(f"{handle.id}@")
        ]
        entry = self.folder / "entries" / f"{handle.id}.json"
        results += [f"entry {entry.name}"] if entry.exists() else []
        assert results == [], f"left over: {', '.join(results)}"


@contextlib.contextmanager
def _bench(case: ProviderCase) -> Iterator[Bench]:
    provider = case.provider()
    installed = provider.kind in _installed_kinds()
    if not installed:
        register_provider(provider)
    try:
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(case, Path(folder, "environments"))
            with bench.manager:
                yield bench
    finally:
        if not installed:
            unregister_provider(provider.kind)


def _installed_kinds() -> list[str]:
    return [kind for kind in environment_names() if kind not in registered_providers]


def is_whole(case: ProviderCase) -> None:
    """A provider has a kind and every method, and its models refuse unknown fields."""
    provider = case.provider()
    check_provider(provider)
    assert provider.kind == case.spec["kind"], "the spec is of another kind"
    for model in (provider.config_model(), provider.policy_model()):
        assert model.model_json_schema()["type"] == "object"
    with _bench(case) as bench:
        for part in ("config", "policy"):
            wrong = {**bench.spec(), part: {**bench.spec().get(part, {}), "no_such_field_": 1}}
            paths: list[str] = []
            try:
                bench.manager.declare(wrong)
            except SpecInvalid as invalid:
                paths = [fault.path for fault in invalid.faults]
            assert paths == [f"{part}.no_such_field_"], f"{part} takes anything"


def opens_what_works(case: ProviderCase) -> None:
    """The result of `ensure` is healthy and can be used repeatedly."""
    with _bench(case) as bench:
        handle = bench.manager.ensure(bench.spec())
        assert handle.state == "ready"
        for _ in range(3):
            case.use(handle.resource)
        assert bench.manager.ensure(bench.spec()) == handle, "it is not healthy after use"


def owners_have_their_own(case: ProviderCase) -> None:
    """Two requests never receive the same object, and ending one leaves the other working."""
    with _bench(case) as bench:
        one, other = bench.manager.ensure(bench.spec()), bench.manager.ensure(bench.spec("other"))
        assert one.resource is not other.resource, "both got one object"
        bench.manager.release(one)
        case.use(other.resource)


def release_leaves_nothing(case: ProviderCase) -> None:
    """After `release`, no process is alive, the registry has no entry, and use is refused."""
    with _bench(case) as bench:
        handle = bench.manager.ensure(bench.spec())
        resource = handle.resource
        case.use(resource)
        report = bench.manager.release(handle)
        assert report.failed == [], f"release failed: {report.failed}"
        bench.check_gone(handle)
        try:
            case.use(resource)
        except Exception:
            return
        raise AssertionError("it can be used after release")


def released_twice_is_harmless(case: ProviderCase) -> None:
    """A second `release` raises nothing, because it may be called for a broken resource."""
    with _bench(case) as bench:
        handle = bench.manager.ensure(bench.spec())
        resource = handle.resource
        bench.manager.release(handle)
        provider = _provider(case)
        background().run(_bounded(provider.release(resource)))


def ended_is_not_healthy(case: ProviderCase) -> None:
    """The health check of a released resource returns False or raises, within its time limit."""
    with _bench(case) as bench:
        handle = bench.manager.ensure(bench.spec())
        resource = handle.resource
        bench.manager.release(handle)
        try:
            given = _provider(case).health_check(resource)
            healthy = given if isinstance(given, bool) else background().run(_bounded(given))
        except Exception:
            return
        assert not healthy, "a released resource reports that it is healthy"


def any_thread_and_loop_will_do(case: ProviderCase) -> None:
    """A resource is opened in one loop, used on another thread, and released in a third loop."""
    with _bench(case) as bench:
        handle = asyncio.run(bench.manager.async_ensure(bench.spec()))
        with ThreadPoolExecutor(1) as pool:
            pool.submit(case.use, handle.resource).result(BOUND)
        assert asyncio.run(bench.manager.async_release(handle)).failed == [], "release failed"
        bench.check_gone(handle)


def many_at_once_do_not_mix(case: ProviderCase) -> None:
    """Several resources are opened, used and released concurrently."""
    with _bench(case) as bench:

        def one(owner: str) -> Handle:
            handle = bench.manager.ensure(bench.spec(owner))
            for _ in range(3):
                case.use(handle.resource)
            bench.manager.release(handle)
            return handle

        with ThreadPoolExecutor(3) as pool:
            handles = list(pool.map(one, ["one", "two", "three"], timeout=BOUND * 2))
        for handle in handles:
            bench.check_gone(handle)


def withdrawn_opening_leaves_nothing(case: ProviderCase) -> None:
    """A cancelled `ensure` leaves no process behind, at any moment."""
    with _bench(case) as bench:
        for pause in (0.0, 0.001, 0.01, 0.05):
            asyncio.run(_cancelled(bench, pause))
        released = bench.manager.async_release_scope("session", "one")
        # The cancelled opening ends by itself, before any time limit.
        asyncio.run(asyncio.wait_for(released, BOUND))
        started = [
            mark for mark in marked(VARIABLE).values() if mark.startswith(f"{bench.manager.id}-")
        ]
        assert started == [], f"left over: {', '.join(started)}"
        case.use(bench.manager.ensure(bench.spec()).resource)


async def _cancelled(bench: Bench, pause: float) -> None:
    opening = asyncio.ensure_future(bench.manager.async_ensure(bench.spec()))
    await asyncio.sleep(pause)
    opening.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await bench.manager.async_release(await opening)


def comes_again_after_a_wait(case: ProviderCase) -> None:
    """After `suspend`, it is opened again, with a higher generation and the same files."""
    with _bench(case) as bench:
        spec = {**bench.spec(), "on_wait": "release"}
        handle = bench.manager.ensure(spec)
        if handle.workspace is not None:
            (handle.workspace / "kept").write_text("yes")
        bench.manager.suspend_scope("session", "one")
        bench.check_gone(handle)
        again = bench.manager.ensure(spec)
        assert again.generation == handle.generation + 1, "the generation did not rise"
        if again.workspace is not None:
            assert (again.workspace / "kept").read_text() == "yes", "the workspace is another"
        case.use(again.resource)


def what_is_asked_for_stays_as_it_is(case: ProviderCase) -> None:
    """The spec of the caller is not changed."""
    with _bench(case) as bench:
        spec = bench.spec()
        before = copy.deepcopy(spec)
        bench.manager.release(bench.manager.ensure(spec))
        assert spec == before, "the spec was changed"


def nothing_is_printed(case: ProviderCase) -> None:
    """Nothing is written to standard output, which belongs to the program."""
    output = io.StringIO()
    with _bench(case) as bench, contextlib.redirect_stdout(output):
        handle = bench.manager.ensure(bench.spec())
        case.use(handle.resource)
        bench.manager.release(handle)
    assert not output.getvalue(), f"it printed {output.getvalue()!r}"


def loop_stays_responsive(case: ProviderCase) -> None:
    """No coroutine of the provider blocks the background loop for longer than two seconds."""
    with _bench(case) as bench:
        longest = _Pulse()
        with longest:
            handle = bench.manager.ensure(bench.spec())
            case.use(handle.resource)
            bench.manager.release(handle)
        assert longest.seconds < 2, f"the loop stood still for {longest.seconds:.1f} s"


class _Pulse:
    """Measures the longest time for which the background loop is blocked.

    Time in which the machine runs other processes, although the loop is ready, does not count. So
    a second thread looks whether the one of the loop sleeps. What the kernel measures as waiting
    (`schedstat`) is not usable: Linux 6.18 now and then takes a whole sleep for it.
    """

    def __enter__(self) -> _Pulse:
        self.seconds = 0.0
        self._asleep = 0.0
        self._stop = threading.Event()
        self._future = background().submit(self._beat())
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._future.result(BOUND)

    async def _beat(self) -> None:
        loop, thread = asyncio.get_running_loop(), threading.get_native_id()
        threading.Thread(target=self._watch, args=(thread,), daemon=True).start()
        while not self._stop.is_set():
            began, worked, slept = loop.time(), time.thread_time(), self._asleep
            await asyncio.sleep(0.01)
            blocked = time.thread_time() - worked + self._asleep - slept
            self.seconds = max(self.seconds, min(loop.time() - began, blocked))

    def _watch(self, thread: int) -> None:
        last, slept = time.monotonic(), False
        while not self._stop.wait(0.02):
            now, sleeps = time.monotonic(), _sleeps(thread)
            if slept and sleeps:
                self._asleep += now - last
            last, slept = now, sleeps


def _sleeps(thread: int) -> bool:
    """Return whether a thread of this process neither runs nor waits for a processor."""
    try:
        return (
            Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()[0] in "SD"
        )
    except OSError:  # not Linux: time of other processes counts, too
        return True


_KILLED = """
import importlib, json, sys
from flowengine.execution_environment import EnvironmentManager, register_provider
module, name, installed, folder, spec = json.loads(sys.stdin.readline())
provider = getattr(importlib.import_module(module), name)()
if not installed:
    register_provider(provider)
handle = EnvironmentManager(folder).ensure(spec)
print(handle.id, flush=True)
sys.stdin.readline()
"""


def killed_process_is_reaped(case: ProviderCase) -> None:
    """Remains of a process killed with -9 are ended by the next process that reaps."""
    import json

    kind = case.provider
    if not isinstance(kind, type) or "<locals>" in kind.__qualname__:
        raise AssertionError("this check needs a class that can be imported")
    installed = case.spec["kind"] in _installed_kinds()
    with _bench(case) as bench:
        given = [kind.__module__, kind.__name__, installed, str(bench.folder), bench.spec()]
        process = subprocess.Popen(
            [sys.executable, "-c", _KILLED],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(given) + "\n")
        process.stdin.flush()
        id = process.stdout.readline().strip()
        process.kill()
        process.stdin.close()
        process.stdout.close()
        process.wait()
        assert id, "it could not be opened in another process"
        reaped = bench.manager.reap()
        assert not any("error" in each for each in reaped), f"could not be reaped: {reaped}"
        alive = [mark for mark in marked(VARIABLE).values() if mark.startswith(f"{id}@")]
        assert alive == [], f"left over: {', '.join(alive)}"
        assert not list(bench.folder.glob("entries/*")), "an entry is left in the registry"


def _provider(case: ProviderCase) -> Provider[Any]:
    return find_provider(case.spec["kind"])


async def _bounded(work: Any) -> Any:
    return await asyncio.wait_for(work, BOUND)


CHECKS: list[Check] = [
    is_whole,
    opens_what_works,
    owners_have_their_own,
    release_leaves_nothing,
    released_twice_is_harmless,
    ended_is_not_healthy,
    any_thread_and_loop_will_do,
    many_at_once_do_not_mix,
    withdrawn_opening_leaves_nothing,
    comes_again_after_a_wait,
    what_is_asked_for_stays_as_it_is,
    nothing_is_printed,
    loop_stays_responsive,
    killed_process_is_reaped,
]
