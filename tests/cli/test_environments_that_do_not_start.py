# Shows S84
"""`flowengine run` with an unavailable environment, or one whose start is interrupted (S84)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowengine_envs.inside.system import descendants
from flowengine_envs.sandboxes.docker.daemon import connect
from tests.cli.conftest import CommandLine
from tests.envs.containers import skip_without_docker
from tests.envs.images import image_of
from tests.own_environments import environments_in

FLOW = """\
flowengine: 1
id: built
environments:
  box: {ENVIRONMENT}
steps:
  - id: a
    in: box
    run: echo hi
"""
IMAGE = f"flowengine-test-{os.getpid()}:silent"


@pytest.fixture
def silent() -> Iterator[str]:
    """An image in which a supervisor never answers."""
    skip_without_docker()
    script = "#!/bin/sh\nexec sleep 1000\n"
    with image_of(IMAGE, ["sh", "sleep"], {"/bin/python3": script}):
        yield IMAGE


def left(folder: Path) -> list[object]:
    """Return everything left of environments: entries, workspaces, processes."""
    kept = environments_in(folder / ".flowengine")
    return [*kept.glob("entries/*"), *kept.glob("workspaces/*/*/*")]


@pytest.mark.parametrize(
    ("environment", "choice"),
    [
        ("{kind: bash, provider: docker}", "Or use provider: namespace, or provider: host for"),
        ("{kind: docker}", "Or use kind: bash, which also runs commands in other sandboxes"),
    ],
)
def test_without_a_daemon(
    flowengine: CommandLine, monkeypatch: pytest.MonkeyPatch, environment: str, choice: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{flowengine.folder}/nobody.sock")
    before = set(descendants(os.getpid()))
    flow = flowengine.write("built.yaml", FLOW.replace("{ENVIRONMENT}", environment))

    done = flowengine("run", flow, code=1)

    assert "EnvironmentUnavailable at a: environment 'box' (" in done.err
    assert "no Docker daemon at unix://" in done.err
    assert "sudo systemctl start docker" in done.err
    assert choice in done.err
    assert "Traceback" not in done.err
    assert left(flowengine.folder) == []
    assert set(descendants(os.getpid())) <= before


@pytest.mark.endurance
def test_interrupted_while_it_starts(flowengine: CommandLine, silent: str) -> None:
    environment = f"{{kind: bash, provider: docker, config: {{image: {silent!r}}}}}"
    flow = flowengine.write("built.yaml", FLOW.replace("{ENVIRONMENT}", environment))
    api = connect().api
    process = flowengine.spawn("run", str(flow), start_new_session=True)
    while not api.containers(filters={"ancestor": silent}):
        assert process.poll() is None
        time.sleep(0.2)

    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "Traceback" not in err
    assert "interrupted; saved as" in err
    assert api.containers(all=True, filters={"ancestor": silent}) == []
    assert list(environments_in(flowengine.folder / ".flowengine").glob("entries/*")) == []
