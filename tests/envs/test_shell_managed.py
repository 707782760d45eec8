# Shows E12b
"""The kind `shell` under the manager: the public suite, scopes, and loss."""

from __future__ import annotations

import pytest

from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import EnvironmentLost
from flowengine.testing.environment_conformance import CHECKS, Check, ProviderCase
from flowengine_envs.kinds.shell.provider import ShellProvider
from flowengine_envs.kinds.shell.session import Shell
from flowengine_envs.sandboxes.processes import has
from tests.envs.test_shell_in_sandboxes import live

pytestmark = pytest.mark.skipif(not has("tmux"), reason="no tmux: apt-get install tmux")

SPEC = {"kind": "shell", "provider": "host", "scope": "session", "owner_id": "ana"}


def use(shell: Shell) -> None:
    assert shell.run("echo hi").output == "hi\n"


@pytest.mark.endurance
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_conforms(check: Check) -> None:
    check(ProviderCase(ShellProvider, {"kind": "shell", "provider": "host"}, use))


def test_a_lost_terminal_is_replaced_and_files_stay(manager: EnvironmentManager) -> None:
    first = manager.ensure(SPEC)
    first.resource.run("X=1; touch kept")
    assert manager.ensure(SPEC).resource is first.resource
    end = f"cd {live(first.resource)} && tmux -S socket kill-server; sleep 20"
    assert first.resource.run(end).status == "lost"
    with pytest.raises(EnvironmentLost):
        first.resource.run("true")

    renewed = manager.ensure(SPEC)

    assert renewed.generation == 2
    assert renewed.resource.run("echo [$X]; ls").output == "[]\nkept\n"


def test_it_is_kept_while_its_execution_waits(manager: EnvironmentManager) -> None:
    spec = {**SPEC, "scope": "execution", "owner_id": "e1"}
    manager.ensure(spec).resource.run("X=1")
    manager.suspend_scope("execution", "e1")
    kept = manager.ensure(spec)
    assert (kept.generation, kept.resource.run("echo $X").output) == (1, "1\n")

    manager.release_scope("execution", "e1")

    again = manager.ensure(spec)
    assert again.resource.run("echo [$X]").output == "[]\n"
