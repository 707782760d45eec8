# Shows E33, S86
"""Commands in every sandbox: separate process trees, bounded time and output."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from flowengine.sdk import EnvironmentUnavailable, Refused
from flowengine.sdk.environments import Sandbox, background
from flowengine_envs.kinds.bash import Bash, BashProvider
from tests.envs.opening import opened, processes_of, request_for


@pytest.mark.wherever
def test_words_reach_the_program_as_they_are(bash: Bash) -> None:
    result = bash.run(["printf", "%s|", "a b", "", "$HOME", "'\"", "-x", "né\n"])

    assert (result.stdout, result.exit_code) == ("a b||$HOME|'\"|-x|né\n|", 0)


def test_a_text_is_read_by_bash(bash: Bash) -> None:
    assert bash.run("exit 3").exit_code == 3
    assert bash.run("echo a; echo b >&2; false | true; echo ${PIPESTATUS[0]}").stdout == "a\n1\n"
    assert bash.run("kill -9 $$").exit_code == 137
    assert bash.run("kill -9 $$").signal == 9
    assert bash.run("cat", stdin="x").stdout == "x"
    assert bash.run("cat").stdout == ""
    assert bash.run("wc -c", stdin=b"\0" * 3_000_000).stdout.strip() == "3000000"
    assert bash.run("true", stdin=b"x" * 3_000_000).exit_code == 0


@pytest.mark.wherever
def test_a_program_that_is_not_there_is_what_shells_say(bash: Bash) -> None:
    (bash.workspace / "plain").write_text("x")

    assert bash.run(["no-such-program"]).exit_code == 127
    assert bash.run(["./plain"]).exit_code == 126
    assert "No such file" in bash.run(["no-such-program"]).stderr


@pytest.mark.wherever
def test_cwd_and_variables_are_of_one_call(bash: Bash) -> None:
    bash.run("mkdir -p deep/er")

    assert bash.run("pwd", cwd="deep/er").stdout == f"{bash.sandbox.workdir}/deep/er\n"
    assert bash.run("echo $A", env={"A": "1"}).stdout == "1\n"
    assert bash.run("echo $A").stdout == "\n"
    assert bash.run("true", cwd="missing").exit_code == 127


@pytest.mark.wherever
def test_calls_at_the_same_time_do_not_mix_and_one_can_be_cancelled(bash: Bash) -> None:
    async def many() -> list[str]:
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()

        def heard(*_: str) -> None:
            loop.call_soon_threadsafe(begun.set)

        endless = asyncio.ensure_future(bash.async_run("echo x; sleep 1099", on_output=heard))
        await asyncio.wait_for(begun.wait(), 60)
        calls = [asyncio.ensure_future(bash.async_run(f"echo {n}; echo {n}")) for n in range(20)]
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        return [result.stdout for result in await asyncio.gather(*calls)]

    assert asyncio.run(many()) == [f"{n}\n{n}\n" for n in range(20)]


def test_a_file_of_the_host_cannot_be_read(bash: Bash, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.write_text("canary of the host")

    result = bash.run(f"cat {canary}; cat /etc/shadow; ls -A /root /home /var 2>&1")

    assert "canary of the host" not in result.stdout
    assert "root:" not in result.stdout


# The policy


@pytest.mark.wherever
def test_only_allowed_commands_run(sandbox: type[Sandbox], tmp_path: Path) -> None:
    policy = {"allow": ["ls", "git log", "touch"]}
    with opened(BashProvider(), sandbox, tmp_path, policy=policy) as bash:
        assert bash.run('touch "a b;c"').exit_code == 0
        assert bash.run(["ls", "a b;c"]).stdout == "a b;c\n"
        for command in ("rm x", "ls; touch marker", "ls && touch marker", ["sh", "-c", "ls"]):
            with pytest.raises(Refused, match="box"):
                bash.run(command)
        with pytest.raises(Refused, match="variables"):
            bash.run("ls", env={"LD_PRELOAD": "x"})

    assert not (tmp_path / "marker").exists()


@pytest.mark.wherever
def test_cwd_stays_below_the_root(sandbox: type[Sandbox], tmp_path: Path) -> None:
    policy = {"root": "sub", "confine": "cwd"}
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    with opened(BashProvider(), sandbox, tmp_path, policy=policy) as bash:
        assert bash.run("pwd").stdout == f"{bash.sandbox.workdir}/sub\n"
        assert bash.run("pwd", cwd="deep").exit_code == 0
        for cwd in ("..", "/", "deep/../..", f"{bash.sandbox.workdir}/sub2"):
            with pytest.raises(Refused, match="outside the policy's root"):
                bash.run("pwd", cwd=cwd)
        assert bash.confined == "cwd"


@pytest.mark.wherever
def test_a_root_that_cannot_be_held_is_refused(sandbox: type[Sandbox], tmp_path: Path) -> None:
    request = request_for(BashProvider(), sandbox, tmp_path, policy={"root": "sub"})

    with pytest.raises(EnvironmentUnavailable, match="confine: cwd"):
        background().run(BashProvider().ensure(request))


@pytest.mark.endurance
def test_many_at_once_end_with_the_sandbox(sandbox: type[Sandbox], tmp_path: Path) -> None:
    with opened(BashProvider(), sandbox, tmp_path) as bash:
        result = bash.run("for n in $(seq 50); do setsid sleep 1066 & done; wait", timeout=0.5)
        assert result.timed_out
        [pid] = processes_of(bash)

    assert not Path(f"/proc/{pid}").exists()
