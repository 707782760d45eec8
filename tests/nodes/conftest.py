"""A single attempt of a step, run like in an engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flowengine.engines.attempts.outcome import AttemptFailed
from flowengine.engines.attempts.runner import TaskRunner
from flowengine.kernel.commands import Run
from flowengine.kernel.events import ErrorData
from flowengine.kernel.graph.compiled import SecretText
from flowengine.kernel.graph.specs import CompiledFlow, StepSpec
from flowengine.sdk import ExecutionContext
from tests.nodes.kept import Kept


class Bench:
    """Runs single steps.

    Attributes:
        workdir: The working folder.
        kept: The artifacts of the execution.
        said: Output of steps, each with its address.
    """

    def __init__(self, tmp_path: Path) -> None:
        self.workdir = tmp_path / "work"
        self.workdir.mkdir()
        self.kept = Kept(tmp_path / "kept")
        self.said: list[str] = []
        self.execution = ExecutionContext(
            "01k8exec",
            "flow",
            "1",
            str(self.workdir),
            self.kept,
            lambda address, text: self.said.append(f"{address}: {text}"),
            identity="01k8identity",
        )

    def runner(
        self, kind: str, task: dict[str, Any], input: dict[str, Any], secrets: dict[str, Any]
    ) -> TaskRunner:
        step: StepSpec = {"id": "s", "action": "task", "kind": kind, "task": task}
        step["input"] = _compiled(input)
        flow: CompiledFlow = {"id": "flow", "steps": [step], "secrets": secrets}
        return TaskRunner(flow)

    def do(
        self,
        kind: str,
        task: dict[str, Any] | None = None,
        input: dict[str, Any] | None = None,
        *,
        args: Any = None,
        secrets: dict[str, Any] | None = None,
        key: str | None = None,
    ) -> Any:
        """Run one attempt, directly if the step permits it, and return its value."""
        input = input or {}
        runner = self.runner(kind, task or {}, input, secrets or {})
        run = Run(3, 1, 0, "place/s", args, input, key)
        quick = runner.quick(0)
        if quick is not None:
            return quick(self.execution, run).value
        return asyncio.run(runner.attempt(self.execution, run)).value

    def fail(self, *args: Any, **kwargs: Any) -> ErrorData:
        """Run one attempt that fails, and return the error."""
        with pytest.raises(AttemptFailed) as failed:
            self.do(*args, **kwargs)
        return failed.value.error


def _compiled(value: Any) -> list[Any]:
    """Return a value in compiled form, which marks the positions of secrets."""
    match value:
        case SecretText():
            return ["secret", value.parts]
        case dict():
            return ["map", {key: _compiled(item) for key, item in value.items()}]
        case list():
            return ["list", [_compiled(item) for item in value]]
    return ["const", value]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def module(tmp_path: Path) -> Callable[..., str]:
    """Writes modules next to a flow file, and returns the folder."""
    folder = tmp_path / "flows"

    def write(_folder: str = "", **sources: str) -> str:
        place = folder / _folder
        place.mkdir(parents=True, exist_ok=True)
        for name, source in sources.items():
            (place / f"{name}.py").write_text(source)
        return str(place)

    return write
