"""Replacing functions of the product, where they are defined and where they are imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

Limits = Callable[..., None]
PRODUCT = ("flowengine", "flowengine_documents", "flowengine_envs", "flowengine_nodes")


def homes(name: str, value: object) -> list[ModuleType]:
    """Return the modules of the product in which a name means a value."""
    return [
        module
        for key, module in list(sys.modules.items())
        if key.partition(".")[0] in PRODUCT and vars(module).get(name) is value
    ]


@contextmanager
def patches_everywhere() -> Iterator[pytest.MonkeyPatch]:
    """Patches of what a module defines hold in the modules that have imported it, too."""
    with pytest.MonkeyPatch.context() as patches:
        one_place: Any = patches.setattr

        def everywhere(target: Any, name: Any, *value: Any, **options: Any) -> None:
            if isinstance(target, str) and target.rpartition(".")[0] in sys.modules:
                module, _, attribute = target.rpartition(".")
                target, name, value = sys.modules[module], attribute, (name,)
            if value and isinstance(target, ModuleType) and hasattr(target, name):
                old = getattr(target, name)
                if getattr(old, "__module__", target.__name__) == target.__name__:
                    for home in homes(name, old):
                        one_place(home, name, *value, **options)
            one_place(target, name, *value, **options)

        patches.setattr = everywhere  # type: ignore[method-assign]
        patches.context = patches_everywhere  # type: ignore[method-assign]
        yield patches


@pytest.fixture(name="monkeypatch")
def _monkeypatch() -> Iterator[pytest.MonkeyPatch]:
    with patches_everywhere() as patches:
        yield patches


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Limits:
    """Sets limits and pauses of a module that a test is to reach: `limits(streams, BATCH=8)`."""

    def set_limits(module: ModuleType, **values: object) -> None:
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)

    return set_limits
