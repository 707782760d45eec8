# Shows G4
"""What the packages export: every name is listed, and every hint can be read."""

import inspect
import typing
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from tests.rows import each_row

PACKAGES = (
    "flowengine", "flowengine.execution_environment", "flowengine.sdk", "flowengine.telemetry",
    "flowengine.testing", "flowengine.tool_environment",
)  # fmt: skip


@each_row("package", PACKAGES)
def test_every_name_is_listed_and_every_hint_can_be_read(package: str) -> None:
    module = import_module(package)
    assert set(module.__all__) <= set(dir(module))
    assert {"Any", "TYPE_CHECKING", "annotations"}.isdisjoint(dir(module))
    for name in module.__all__:
        for path, public in public_functions(name, getattr(module, name)):
            assert isinstance(typing.get_type_hints(public), dict), path


def test_names_of_agents_programs_are_in_the_root() -> None:
    from flowengine import AgentRunFailed, Answering, TextPart, tool
    from flowengine.engines.results import Answering as Defined
    from flowengine.tool_environment import tool as decorated

    assert issubclass(AgentRunFailed, Exception)
    assert (Answering, tool) == (Defined, decorated)
    assert TextPart("a").text == "a"
    with pytest.raises(AttributeError, match=r"module 'flowengine' has no attribute 'Agnt'"):
        import_module("flowengine").Agnt  # noqa: B018 - it is looked up


def public_functions(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a class or function, and the public methods that this project defines."""
    if inspect.isfunction(value) or inspect.isclass(value):
        yield name, value
    for of in dir(value) if inspect.isclass(value) else ():
        member = inspect.getattr_static(value, of)
        member = getattr(member, "fget", None) or getattr(member, "__func__", member)
        is_ours = str(getattr(member, "__module__", "")).startswith("flowengine")
        if is_ours and inspect.isfunction(member) and (of == "__init__" or of[0] != "_"):
            yield f"{name}.{of}", member
