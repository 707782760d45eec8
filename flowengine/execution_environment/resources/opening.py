"""Opening of a resource: the order of attempts, and the records written before it starts.

Only sandboxes named in the spec are used. Those of `provider:` are tried in order, and the next one
is tried only if this machine *cannot provide* the one before. A failed start is an error.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from flowengine.errors import FlowEngineError
from flowengine.execution_environment.bookkeeping.instances import Instance, Provision
from flowengine.execution_environment.clock import PluginFailed, TimerClock, TookTooLong, within
from flowengine.execution_environment.registry.entries import Registry, RegistryEntry, make_own
from flowengine.execution_environment.registry.screens import Window
from flowengine.execution_environment.registry.workspaces import Workspaces, home_of
from flowengine.execution_environment.specs import providers
from flowengine.execution_environment.specs.spec import EnvironmentSpec
from flowengine.sdk.environments import (
    ISOLATIONS,
    Capabilities,
    Changes,
    ProcessIdentity,
    Provider,
    Request,
    Spec,
    background,
)
from flowengine.sdk.errors import EnvironmentStartFailed, EnvironmentUnavailable, StepError
from flowengine.sdk.steps.step_log import MaskedLog
from flowengine.sdk.texts.exception_text import describe
from flowengine.secrets import Secrets, mask_known


class TimeBounds(NamedTuple):
    """Time limits of plug-ins, in seconds."""

    start: float = 120.0
    """Until it is ready, including probing."""
    prepare: float = 3600.0
    """For preparations of a sandbox before the start, such as building or pulling an image."""
    check: float = 5.0
    """For a health check that is not a plain function."""
    use: float = 5.0
    """For running calls to end when it is released."""
    release: float = 30.0
    drain: float = 600.0
    """For holders of an unhealthy environment to finish."""
    retries: tuple[float, ...] = (1.0, 5.0, 30.0, 120.0)
    """Seconds between attempts to close an environment."""
    sweep: float = 5.0
    """For the search for leftovers to end when a manager is closed."""


class ManagerServices(NamedTuple):
    """Objects shared by all openings of one manager."""

    manager: str
    owner: ProcessIdentity
    clock: TimerClock
    bounds: TimeBounds
    registry: Registry
    workspaces: Workspaces
    guarded: Sequence[Path]


async def choose(declared: EnvironmentSpec, around: ManagerServices) -> Provision:
    """Return the first of the spec's sandboxes that this machine can provide.

    Args:
        declared: The spec.
        around: Clock and time limits.

    Returns:
        The choice.

    Raises:
        EnvironmentUnavailable: No sandbox is available. The message contains the reason for each.
    """
    provider = providers.find_provider(declared.kind)
    reasons: list[tuple[str, StepError]] = []
    for name in declared.providers:
        spec, held = declared.for_provider(name), Capabilities()
        try:
            sandbox = providers.sandbox_of(provider, name)
            if sandbox is not None:
                await within(around.clock, around.bounds.start, sandbox.probe(spec))
                held = sandbox.capabilities_of(spec)
            held = provider.capabilities(held)
            unenforced = _check_held(declared, held, name, spec.policy)
            probing = _call(partial(provider.probe, spec))
            await within(around.clock, around.bounds.start, probing)
            return Provision(provider, name, sandbox, held, unenforced)
        except EnvironmentUnavailable as error:
            reasons.append((name, error))
            continue
        except (StepError, FlowEngineError) as error:
            why = f"{declared} cannot be provided by '{name}': {error}"
        except (TookTooLong, PluginFailed) as error:
            why = f"{declared}: probing '{name}' failed: {error}"
        except Exception as error:
            why = f"{declared}: probing '{name}' raised {describe(error)}"
        reasons.append((name, EnvironmentUnavailable(why)))
    if len(reasons) == 1:
        raise reasons[0][1]
    message = "; ".join(f"{name}: {error.message}" for name, error in reasons)
    raise EnvironmentUnavailable(f"{declared} cannot be opened by any of its providers: {message}")


def _check_held(declared: EnvironmentSpec, held: Capabilities, name: str, policy: Any) -> list[str]:
    """Reject unenforceable requirements and rules, and return the limits that are not enforced."""
    for axis, wanted in declared.needs.items():
        if axis == "isolation":
            if ISOLATIONS.index(held.isolation) < ISOLATIONS.index(wanted):
                raise EnvironmentUnavailable(
                    f"{declared} requires isolation '{wanted}', and '{name}' gives "
                    f"'{held.isolation}' here"
                )
        elif axis not in held.holds:
            raise EnvironmentUnavailable(
                f"{declared} requires that '{axis}' is enforced, and '{name}' cannot do that here"
            )
    network = getattr(policy, "network", None)
    open_to_all = isinstance(network, str | None) and network in {None, "any"}
    if not open_to_all and "network" not in held.holds:
        raise EnvironmentUnavailable(
            f"{declared}: policy.network cannot be enforced by '{name}' here"
        )
    if getattr(policy, "deny_network", None) and "network" not in held.holds:
        raise EnvironmentUnavailable(
            f"{declared}: policy.deny_network cannot be enforced by '{name}' here: it takes a "
            "network that the engine leads out, such as network: public"
        )
    if getattr(policy, "writable", None) is not None and "filesystem" not in held.holds:
        raise EnvironmentUnavailable(
            f"{declared}: policy.writable cannot be enforced by '{name}' here"
        )
    limits = declared.limits
    open_ones = [
        limit
        for limit, value in limits
        if limit != "best_effort" and value is not None and limit not in held.holds
    ]
    if open_ones and not limits.best_effort:
        raise EnvironmentUnavailable(
            f"{declared}: limits.{open_ones[0]} cannot be enforced by '{name}' here. "
            "'best_effort: true' next to it opens it anyway"
        )
    return open_ones


class Mounted(NamedTuple):
    """A directory of another environment."""

    folder: Path
    writable: bool


async def open_resource(
    instance: Instance,
    around: ManagerServices,
    mounts: Mapping[str, Mounted],
    late: Callable[[Any], Awaitable[object]],
    changed: Changes,
) -> Provision:
    """Open the resource of an instance.

    Args:
        instance: The opening, without a result yet.
        around: Objects shared by all openings.
        mounts: Directories of other environments.
        late: Receives a resource that arrives without a waiting caller.
        changed: Called when its offer changes.

    Returns:
        The resource, and how it is enforced.

    Raises:
        StepError: It is not available, or did not start.
        EnvironmentStartFailed: It was not ready in time, or is unusable.
    """
    declared = instance.record.spec
    secrets = Secrets(declared.sources)
    instance.mask = secrets.mask
    choice = await choose(declared, around)
    revealed = declared.revealed(secrets.reveal)
    prepared = await _prepared(declared, choice, around)
    start = around.clock.monotonic()
    _prepare(instance, choice, around)
    spec = declared.for_provider(choice.choice)
    request = _request(instance, spec, choice, around, mounts)._replace(
        config=spec.config if revealed is None else revealed, changed=changed, prepared=prepared
    )
    try:
        resource = await within(
            around.clock, around.bounds.start, _call(lambda: choice.provider.ensure(request)), late
        )
    except TookTooLong:
        raise EnvironmentStartFailed(
            f"{declared}: provider '{choice.choice}' was not ready within {around.bounds.start:g} s"
        ) from None
    except PluginFailed as error:
        raise EnvironmentStartFailed(f"{declared}: provider '{choice.choice}': {error}") from None
    _check_resource(resource, declared, choice.choice)
    instance.opened_at = max(start, around.clock.monotonic())
    return choice._replace(resource=resource)


async def _prepared(
    declared: EnvironmentSpec, choice: Provision, around: ManagerServices
) -> object:
    """Return the preparations of the sandbox, whose time does not count as part of the start."""
    if choice.sandbox is None:
        return None
    spec = declared.for_provider(choice.choice)
    bound = around.bounds.prepare
    try:
        return await within(around.clock, bound, choice.sandbox.prepare(spec))
    except TookTooLong:
        raise EnvironmentStartFailed(
            f"{declared}: '{choice.choice}' was not prepared (its image built or fetched) within "
            f"{bound:g} s"
        ) from None
    except PluginFailed as error:
        raise EnvironmentStartFailed(f"{declared}: '{choice.choice}': {error}") from None


def _prepare(instance: Instance, choice: Provision, around: ManagerServices) -> None:
    """Record the environment before its start, and create its directory."""
    record = instance.record
    spec = record.spec
    data = {
        "id": instance.id,
        **spec.named,
        "provider": choice.choice,
        "generation": instance.generation,
        "manager": around.manager,
        "owner": list(around.owner),
        "mark": mark_of(instance.id, around.owner, around.registry),
        "state": "ensuring",
        "at": around.clock.now(),
    }
    recorded = choice.provider.leaves_traces and spec.registry == "disk"
    path, generation = _workspace(instance, around, needed=recorded)
    instance.workspace = path
    # Another process may have opened it before.
    record.generation = instance.generation = data["generation"] = generation
    data["workspace"] = str(path)
    if recorded:
        instance.entry = around.registry.add(data)
    else:
        instance.entry = RegistryEntry(around.registry, {**data, "facts": {}}, recorded=False)


def _workspace(instance: Instance, around: ManagerServices, *, needed: bool) -> tuple[Path, int]:
    """Return the directory of an opening, and the actual number of the opening."""
    spec = instance.record.spec
    if spec.registry == "none":
        return around.workspaces.temporary(), instance.generation
    try:
        return around.workspaces.claim(spec.scope, spec.owner_id, spec.id, instance.generation)
    except OSError as error:
        if needed:
            raise around.registry.unusable(error) from None
        return around.workspaces.temporary(), instance.generation


def mark_of(id: str, owner: ProcessIdentity, registry: Registry) -> str:
    """Return the mark of an environment's processes, which names their owner."""
    return f"{id}@{owner.pid}.{owner.started}.{registry.name}.{owner.boot}"


def owner_of(mark: str, around: ManagerServices) -> ProcessIdentity | None:
    """Return the owner in a mark, or None if it is not a mark of this registry."""
    try:
        pid, began, name, boot = mark.partition("@")[2].split(".", 3)
        owner = ProcessIdentity(int(pid), int(began), boot, around.owner.host)
    except ValueError:
        return None
    return owner if name == around.registry.name else None


def _request(
    instance: Instance,
    spec: Spec,
    choice: Provision,
    around: ManagerServices,
    mounts: Mapping[str, Mounted],
) -> Request:
    """Return the request, without the values of secrets."""
    entry = instance.entry
    assert entry is not None
    extra: dict[str, object] = {"environment": instance.id}
    workspace = Path(entry.data["workspace"])
    return Request(
        spec,
        instance.id,
        instance.generation,
        spec.config,
        spec.policy,
        spec.limits,
        workspace,
        home_of(workspace),
        choice.sandbox,
        {inside: each.folder for inside, each in mounts.items()},
        around.owner,
        around.manager,
        entry.data["mark"],
        entry.trace,
        background().loop.time() + around.bounds.start,
        MaskedLog("flowengine.environments", str(instance.record.spec), extra, instance.mask),
        read_only=frozenset(inside for inside, each in mounts.items() if not each.writable),
        mask=instance.mask,
        guarded=around.guarded,
    )


def _check_resource(resource: Any, declared: EnvironmentSpec, name: str) -> None:
    if resource is None:
        raise EnvironmentStartFailed(f"{declared}: provider '{name}' returned no resource")
    if inspect.isawaitable(resource):
        if inspect.iscoroutine(resource):
            resource.close()
        raise EnvironmentStartFailed(
            f"{declared}: provider '{name}' returned an awaitable instead of a resource"
        )


async def _call(work: Callable[[], Any]) -> Any:
    """Call a plug-in function that should be a coroutine function, but possibly is not."""
    given = work()
    return await given if inspect.iscoroutine(given) else given


def failure_of(error: BaseException, instance: Instance) -> StepError:
    """Return the error of a failed opening for callers, with secrets masked.

    Args:
        error: The original error.
        instance: The opening.

    Returns:
        A step error.
    """
    declared = instance.record.spec
    if not isinstance(error, StepError):
        kind = declared.kind
        text = f"{declared}: provider of kind '{kind}' raised {describe(error)}"
        masked = str(instance.mask(text))
        failed = EnvironmentStartFailed(masked)
        failed.__cause__ = error if masked == text else None
        return failed
    message = str(instance.mask(error.message))
    if message != error.message:
        error = copy(error)
        error.args, error.message, error.data = (message,), message, instance.mask(error.data)
        error.__cause__ = None
    return error


# Opening of the window through which other processes look into an environment.

_log = logging.getLogger("flowengine.environments")


def window_of(instance: Instance, around: ManagerServices) -> Window | None:
    """Return a window for an environment that has just been opened. Call it on its loop.

    Args:
        instance: The opening, with its resource and its entry.
        around: Provides the registry.

    Returns:
        None if its kind has no screen, if it is not recorded, or if there can be no socket. The
        environment works without it.
    """
    opened, entry = instance.opened, instance.entry
    assert opened is not None
    assert entry is not None
    provider, resource = opened.provider, opened.resource
    if not entry.recorded or type(provider).screen is Provider.screen:
        return None

    try:
        make_own(around.registry.folder, "screens")
        return Window(
            entry.screen,
            lambda: provider.screen(resource),
            # Steps may have brought in secrets that its configuration does not name.
            lambda value: mask_known(instance.mask(value)),
        )
    except OSError as error:
        _log.warning("%s cannot be looked into: %s", instance.record.spec, error)
        return None
