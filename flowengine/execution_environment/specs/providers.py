"""The available providers and sandboxes: registered ones, then installed ones."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from pydantic import BaseModel

from flowengine import registry
from flowengine.errors import FlowEngineError, UsageError
from flowengine.sdk.environments import REQUIRED, Provider, Sandbox
from flowengine.sdk.environments.sandboxes import with_sandboxes

_lock = threading.Lock()
_Models = tuple["type[BaseModel]", "type[BaseModel]"]
_models: WeakKeyDictionary[Provider[Any], dict[tuple[str, ...], _Models]] = WeakKeyDictionary()
_whole: WeakSet[Provider[Any]] = WeakSet()
"""Providers that have been checked and are complete."""
_sandboxes: dict[str, type[Sandbox]] = {}


def register_provider(provider: Provider[Any]) -> None:
    """Register a provider in this process, in addition to those of installed packages.

    Args:
        provider: The provider. Specs refer to it by its `kind`.

    Raises:
        UsageError: A method is missing, or the kind has a provider already.
    """
    check_provider(provider)
    with _lock:
        if provider.kind in registry.environment_names():
            raise UsageError(
                f"the kind '{provider.kind}' already has a provider, which cannot be replaced",
                hint="give yours another kind",
            )
        registry.registered_providers[provider.kind] = provider


def unregister_provider(kind: str) -> None:
    """Unregister a provider of `register_provider`, without closing its environments."""
    with _lock:
        registry.registered_providers.pop(kind, None)


def check_provider(provider: Provider[Any]) -> None:
    """Reject an incomplete provider.

    Args:
        provider: An object of a class derived from `flowengine.sdk.environments.Provider`, or with
            all of its methods.

    Raises:
        UsageError: An attribute or method is missing. The message names it.
    """
    name = type(provider).__name__
    kind = getattr(provider, "kind", None)
    if not isinstance(kind, str) or not kind:
        raise UsageError(f"provider {name} has no 'kind'", hint="kind = 'my_kind'")
    for method in REQUIRED:
        own = getattr(type(provider), method, None)
        if own is None or own is getattr(Provider, method):
            raise UsageError(f"provider {name} of kind '{kind}' is missing the method '{method}'")
    if not isinstance(provider, Provider):
        raise UsageError(
            f"provider {name} is not derived from flowengine.sdk.environments.Provider",
            hint="it provides the defaults",
        )


def kinds() -> list[str]:
    """Return all kinds that have a provider, sorted."""
    # `in: host` runs commands on the machine itself, without opening an environment.
    return [name for name in registry.environment_names() if name != "host"]


def find_provider(kind: str) -> Provider[Any]:
    """Return the provider of a kind.

    Args:
        kind: The kind.

    Returns:
        The single provider object.

    Raises:
        UnknownKind: It does not exist, or cannot be imported.
        UsageError: It is incomplete.
    """
    provider = registry.provider(kind)
    if provider not in _whole:
        check_provider(provider)
        _whole.add(provider)
    return provider


def models_of(provider: Provider[Any], places: tuple[str, ...]) -> _Models:
    """Return the models of configuration and policy, which are created once.

    Args:
        provider: Defines both models.
        places: The sandboxes that it may run in, which extend the configuration.

    Returns:
        The two models.
    """
    known = _models.setdefault(provider, {})
    cls = known.get(places)
    if cls is None:
        used = [sandbox_of(provider, each) for each in places]
        config = with_sandboxes(provider.config_model(), filter(None, used))
        cls = known[places] = (config, provider.policy_model())
    return cls


def find_sandbox(name: str) -> type[Sandbox]:
    """Return the class of a sandbox.

    Args:
        name: The value of `provider:`.

    Returns:
        The class.

    Raises:
        UnknownKind: It does not exist, or cannot be imported.
    """
    return _sandboxes.get(name) or registry.sandbox_class(name)


def sandbox_of(provider: Provider[Any], name: str) -> type[Sandbox] | None:
    """Return the class of the sandbox that a spec of a kind names.

    Args:
        provider: Provider of the kind.
        name: The value of `provider:`.

    Returns:
        The class. None: it is opened without a sandbox.

    Raises:
        UnknownKind: The sandbox does not exist, or cannot be imported.
    """
    if provider.sandbox is None or (name == provider.kind and name not in sandboxes()):
        return None
    return find_sandbox(name)


def register_sandbox(sandbox: type[Sandbox]) -> None:
    """Register a sandbox in this process, in addition to those of installed packages.

    Args:
        sandbox: A class whose `name` is the value of `provider:`.

    Raises:
        UsageError: The name is taken.
    """
    with _lock:
        if sandbox.name in _sandboxes or sandbox.name in registry.sandbox_names():
            raise UsageError(f"the sandbox '{sandbox.name}' exists already and cannot be replaced")
        _sandboxes[sandbox.name] = sandbox


def unregister_sandbox(name: str) -> None:
    """Unregister a sandbox of `register_sandbox`."""
    with _lock:
        _sandboxes.pop(name, None)


def sweepers() -> list[Callable[[Any], Awaitable[None]]]:
    """Return the functions of all providers and sandboxes that search for labels of dead owners."""
    releases: list[Callable[[Any], Awaitable[None]]] = []
    for kind in kinds():
        try:
            provider = find_provider(kind)
        except FlowEngineError:
            continue
        if type(provider).sweep is not Provider.sweep:
            releases.append(provider.sweep)
    for name in sandboxes():
        try:
            sandbox = find_sandbox(name)
        except FlowEngineError:
            continue
        if sandbox.sweep.__func__ is not Sandbox.sweep.__func__:  # type: ignore[attr-defined]
            releases.append(sandbox.sweep)
    return releases


def sandboxes() -> list[str]:
    """Return the names of all sandboxes, sorted."""
    return sorted({*_sandboxes, *registry.sandbox_names()})


def sandboxes_of(provider: Provider[Any]) -> list[str]:
    """Return the sandboxes for a kind. For a kind without a sandbox, return the kind itself."""
    if provider.sandbox is None:
        return [provider.kind]
    return [name for name in sandboxes() if not provider.only_in or name in provider.only_in]
