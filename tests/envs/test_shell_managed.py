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


def test_what_is_not_kept_begins_anew_in_its_workspace(manager: EnvironmentManager) -> None:
    spec = {**SPEC, "scope": "execution", "owner_id": "e2", "on_wait": "release"}
    manager.ensure(spec).resource.run("X=1; touch kept")
    manager.suspend_scope("execution", "e2")

    again = manager.ensure(spec)

    assert again.generation == 2
    assert again.resource.run("echo [$X]; ls").output == "[]\nkept\n"


# Shows V56
def test_looking_at_a_busy_terminal_only_reads_it(
    manager: EnvironmentManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "SEKRET-4711")
    config = {"env": {"KEY": "secret:TOKEN"}}
    shell = manager.ensure({**SPEC, "resource_key": "box", "config": config}).resource
    asks = "printf '\\033[31mkey %s\\033[0m\\n' $KEY; read -r line; echo got $line"
    assert shell.run(asks, timeout=60, wait=None).status == "waiting_for_input"

    looks = [manager.look("box")[1].screen for _ in range(2)]

    assert looks[0] == looks[1]
    assert looks[0].text.splitlines()[-1] == "key ***"
    assert looks[0].picture == b""
    shell.send("it\n")
    done = shell.wait(60)
    assert (done.exit_code, done.output.splitlines()[-1]) == (0, "got it")
