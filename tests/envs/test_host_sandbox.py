# Shows S46
"""The sandbox `host`: used only on request, with a warning, and with accurate capabilities."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from flowengine.sdk import EnvironmentUnavailable
from flowengine.sdk.environments import background
from flowengine_envs.kinds.bash import BashProvider
from flowengine_envs.kinds.python import Python
from flowengine_envs.sandboxes.host import HostSandbox
from tests.envs.opening import opened, request_for


def test_it_warns_each_time_it_opens(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="flowengine.environments"):
        for _ in range(2):
            with opened(Python(), HostSandbox, tmp_path):
                pass

    told = [each.getMessage() for each in caplog.records if each.name == "flowengine.environments"]
    assert len(told) == 2
    assert all("LocalEnv" in text and "without a sandbox" in text for text in told)


def test_it_says_what_it_holds_and_holds_that(tmp_path: Path) -> None:
    held = HostSandbox.capabilities()

    assert held.isolation == "none"
    assert not {"filesystem", "network", "user"} & held.holds.keys()
    limits = {"disk": "1MiB", "memory": "256MiB"}
    with opened(BashProvider(), HostSandbox, tmp_path, limits=limits) as bash:
        assert bash.run("pwd").stdout == f"{tmp_path}\n"
        assert bash.run("head -c 2M /dev/zero > large").exit_code != 0
        assert (tmp_path / "large").stat().st_size <= 1 << 20
        bash.remove("large")  # it would use up the space of the next environment
        assert bash.run("grep NoNewPrivs /proc/self/status").stdout == "NoNewPrivs:\t1\n"
    with opened(Python(), HostSandbox, tmp_path, limits=limits) as python:
        assert "out of memory: limits.memory is 256 MiB" in str(
            python.run("b'x' * (1 << 30)").error
        )


def test_keeping_it_from_the_network_is_refused(tmp_path: Path) -> None:
    request = request_for(Python(), HostSandbox, tmp_path, policy={"network": "none"})

    with pytest.raises(EnvironmentUnavailable, match="provider: namespace or docker"):
        background().run(HostSandbox.probe(request.spec))


def test_the_kinds_that_run_programs_are_sandboxed_by_default() -> None:
    assert Python.sandbox == BashProvider.sandbox == "namespace"
