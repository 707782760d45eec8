# Shows S86
"""Sandbox parametrization, and resources shared by the tests of a file."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine.execution_environment import EnvironmentManager, TimeBounds
from flowengine.sdk.environments import Sandbox
from flowengine_envs.kinds import python as python_kind
from flowengine_envs.kinds import supervised
from flowengine_envs.kinds.bash import Bash, BashProvider
from flowengine_envs.kinds.node import NodeProvider, NodeSandbox
from flowengine_envs.kinds.python import Python, PythonSandbox
from flowengine_envs.kinds.shell import session as shell_session
from flowengine_envs.kinds.shell.provider import ShellProvider
from flowengine_envs.kinds.shell.session import Shell
from flowengine_envs.sandboxes.docker.sandbox import Docker
from flowengine_envs.sandboxes.host import HostSandbox
from flowengine_envs.sandboxes.namespace import Namespace
from flowengine_envs.sandboxes.processes import has
from tests.envs.containers import skip_without_docker
from tests.envs.opening import opened

SANDBOXES: dict[str, type[Sandbox]] = {
    "namespace": Namespace,
    "docker": Docker,
    "host": HostSandbox,
}
LEFT_OUT: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("left_out.toml").read_text()
)
"""Sandbox → test → reason why the test does not apply there."""


@pytest.fixture(params=SANDBOXES, scope="module")
def sandbox(request: pytest.FixtureRequest) -> type[Sandbox]:
    if request.param == "namespace" and not has("bwrap"):
        pytest.skip("no bubblewrap: apt-get install bubblewrap")
    if request.param == "docker":
        skip_without_docker()
    return SANDBOXES[request.param]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests listed in `left_out.toml`. They are not skipped: nothing is missing."""
    left = {item for item in items if _is_left_out(item)}
    if left:
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]


def _sandbox_of(item: pytest.Item) -> str:
    callspec = getattr(item, "callspec", None)
    return str(callspec.params.get("sandbox")) if callspec else ""


def _is_left_out(item: pytest.Item) -> bool:
    return getattr(item, "originalname", None) in LEFT_OUT.get(_sandbox_of(item), {})


@pytest.fixture
def little_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the grace period for programs that ignore interrupts, to save test time."""
    for module in (supervised, python_kind, shell_session):
        monkeypatch.setattr(module, "GRACE", 0.5)  # time for a second interrupt


@pytest.fixture(scope="module")
def python(
    sandbox: type[Sandbox], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PythonSandbox]:
    limits = {"time": 60, "output": "100kB"}
    with opened(Python(), sandbox, tmp_path_factory.mktemp("python"), limits=limits) as resource:
        yield resource


@pytest.fixture(scope="module")
def bash(sandbox: type[Sandbox], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bash]:
    asked: dict[str, Any] = {
        "config": {"env": {"DECLARED": "yes"}},
        "limits": {"time": 60, "output": "100kB"},
    }
    with opened(BashProvider(), sandbox, tmp_path_factory.mktemp("bash"), **asked) as resource:
        yield resource


@pytest.fixture(scope="module")
def node(sandbox: type[Sandbox], tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeSandbox]:
    if not has("node"):
        pytest.skip("no Node.js: apt-get install nodejs")
    limits = {"time": 60, "output": "100kB", "memory": "512MiB"}
    with opened(NodeProvider(), sandbox, tmp_path_factory.mktemp("node"), limits=limits) as node:
        yield node


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[EnvironmentManager]:
    """A manager whose environments end with the test."""
    bounds = TimeBounds(use=0.5)  # calls that do not end are aborted soon
    with EnvironmentManager(tmp_path / "environments", bounds=bounds) as made:
        yield made


@pytest.fixture(scope="module")
def shell(sandbox: type[Sandbox], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    if not has("tmux"):
        pytest.skip("no tmux: apt-get install tmux")
    asked = {"config": {"env": {"DECLARED": "yes"}}}
    with opened(ShellProvider(), sandbox, tmp_path_factory.mktemp("shell"), **asked) as resource:
        yield resource
