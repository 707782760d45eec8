# Shows E33
"""`run` steps with `in:`: inputs and files from other steps, values and files as results."""

from __future__ import annotations

import asyncio
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flowengine.sdk import Command, LimitExceeded, PathEscape, ValidationError
from flowengine.sdk.environments import Provider, Sandbox, background
from flowengine_envs.kinds.bash import BashProvider
from flowengine_envs.kinds.node import NodeProvider
from flowengine_envs.kinds.python import Python
from flowengine_envs.kinds.shell.provider import ShellProvider
from flowengine_envs.sandboxes.host import HostSandbox
from flowengine_envs.sandboxes.processes import has
from tests.envs.enough import enough
from tests.envs.on_disk import tmp_path_factory  # noqa: F401 - for all tests here
from tests.envs.opening import opened
from tests.nodes.kept import Kept


class Context:
    """The part of a step context that an environment uses."""

    idempotency_key = "key-1"

    def __init__(self, folder: Path) -> None:
        self.kept = Kept(folder)
        self.execution = SimpleNamespace(artifacts=self.kept)
        self.streams: dict[str, str] = {}

    async def on_thread(self, function: Callable[[], Any], *, settles: bool = False) -> Any:
        return await asyncio.to_thread(function)

    def printed(self, stream: str, text: str) -> None:
        self.streams = {**self.streams, stream: self.streams.get(stream, "") + text}


@pytest.fixture
def context(tmp_path: Path) -> Context:
    folder = tmp_path / "kept"
    folder.mkdir()
    return Context(folder)


def command(**given: Any) -> Command:
    fields: dict[str, Any] = {
        **{"script": None, "argv": None, "env": {}, "stdin": None, "cwd": None, "files": {}},
        **given,
    }
    return Command(**fields)


def run(provider: Provider[Any], resource: Any, context: Context, **given: Any) -> dict[str, Any]:
    async def ran() -> dict[str, Any]:
        return await provider.run(resource, context, command(**given))  # type: ignore[arg-type]

    return background().run(ran())


@pytest.mark.wherever
@pytest.mark.parametrize(
    ("provider", "code", "failing"),
    [
        (
            Python(),
            "print('hi'); open('r.csv', 'w').write(inputs['n'] * 'x'); inputs['n'] + 1",
            "1/0",
        ),
        (
            NodeProvider(),
            "console.log('hi'); require('fs').writeFileSync('r.csv', 'x'.repeat(inputs.n));"
            " return inputs.n + 1",
            "null.x",
        ),
    ],
    ids=["python", "node"],
)
def test_code_gets_inputs_and_gives_a_value_and_files(
    sandbox: type[Sandbox],
    tmp_path: Path,
    context: Context,
    provider: Provider[Any],
    code: str,
    failing: str,
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    with opened(provider, sandbox, work) as resource:
        told = run(provider, resource, context, script=code, env={"n": 3}, files={"r": "r.csv"})
        failed = run(provider, resource, context, script=failing, files={"r": "missing"})

    assert (told["exit_code"], told["stdout"], told["value"]) == (0, "hi\n", 4)
    assert Path(told["files"]["r"]["path"]).read_text() == "xxx"
    assert told["files"]["r"]["name"] == "r.csv"
    assert failed["exit_code"] == 1
    assert "Error" in failed["stderr"]
    assert failed["files"] == {}
    with pytest.raises(ValidationError, match="'command' belongs to bash"):
        run(provider, None, context, argv=["x"])


@pytest.mark.wherever
def test_a_command_gets_files_and_gives_json_and_globs(
    sandbox: type[Sandbox], tmp_path: Path, context: Context
) -> None:
    provider, work = BashProvider(), tmp_path / "work"
    work.mkdir()
    given = context.kept.put(b"content", "in put.txt")
    with opened(provider, sandbox, work) as bash:
        told = run(
            provider,
            bash,
            context,
            script="mkdir -p out/deep; touch out/a.txt; touch out/deep/b.txt; "
            'echo "{\\"n\\": $N, \\"m\\": $M}" > "$FLOW_OUTPUT";  '
            "echo $FLOW_IDEMPOTENCY_KEY; exit 3",
            env={"N": 5, "M": {"a": [1]}, "NONE": None},
            files={"flat": "out/*", "deep": "out/**/*.txt", "missing": "no"},
        )
        words = run(provider, bash, context, argv=["cat", given])
        stdin = run(provider, bash, context, script="cat", stdin={"f": given})
        with pytest.raises(ValidationError, match="no file 'no' to be kept"):
            run(provider, bash, context, script="true", files={"x": "no"})
        with pytest.raises(ValidationError, match="cannot be read as JSON"):
            run(provider, bash, context, script='echo "{" > "$FLOW_OUTPUT"')
        bash.run("ln -s /etc/hostname out/link")
        with pytest.raises(PathEscape):
            run(provider, bash, context, script="true", files={"x": "out/link"})
        shutil.rmtree(context.kept.folder)
        with pytest.raises(ValidationError, match=r"in put\.txt .* is no longer kept"):
            run(provider, bash, context, argv=["cat", given])

    assert (told["exit_code"], told["stdout"]) == (3, "key-1\n")
    assert told["value"] == {"n": 5, "m": {"a": [1]}}
    assert [file["name"] for file in told["files"]["deep"]] == ["a.txt", "b.txt"]
    assert [file["name"] for file in told["files"]["flat"]] == ["a.txt"]
    assert words["stdout"] == "content"
    assert "in put.txt" in stdin["stdout"]


@pytest.mark.wherever
def test_a_value_that_is_too_large_never_reaches_the_engines_memory(
    sandbox: type[Sandbox], tmp_path: Path, context: Context
) -> None:
    provider, work = BashProvider(), tmp_path / "work"
    work.mkdir()
    with opened(provider, sandbox, work) as bash:
        tracemalloc.start()
        try:
            with pytest.raises(ValidationError, match=r"is over 16 MiB: keep it as a file"):
                run(provider, bash, context, script='truncate -s 200M "$FLOW_OUTPUT"')
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        after = run(provider, bash, context, script='echo 1 > "$FLOW_OUTPUT"')

    assert peak < 16 * 1024 * 1024
    assert after["value"] == 1


@pytest.mark.wherever
def test_files_that_a_step_keeps_count_as_long_as_they_are(
    sandbox: type[Sandbox], tmp_path: Path, context: Context
) -> None:
    provider, work = BashProvider(), tmp_path / "work"
    work.mkdir()
    with (
        opened(provider, sandbox, work) as bash,
        pytest.raises(LimitExceeded, match=r"of at most 1 GiB.*1 GiB, the default"),
    ):
        run(provider, bash, context, script="truncate -s 2G x", files={"x": "x"})
    with opened(provider, sandbox, work, limits={"disk": "8MiB", "output": "1kB"}) as bash:
        two = "truncate -s 6M a.bin b.bin"
        with pytest.raises(LimitExceeded, match=r"as 'all':.*8 MiB \(limits.disk\)") as together:
            run(provider, bash, context, script=two, files={"all": "*.bin"})
        one = run(provider, bash, context, script="head -c 5000 /dev/zero", files={"one": "a.bin"})

    assert together.value.data == {"limit": "disk", "value": 8 * 1024 * 1024}
    assert one["files"]["one"]["size"] == 6 * 1024 * 1024
    told = "\n... 4000 bytes left out (limits.output), all is in the output's stdout_file ...\n"
    assert told in one["stdout"]


@pytest.mark.wherever
# Shows E12b
def test_steps_in_a_shell_keep_directory_and_variables(
    sandbox: type[Sandbox], tmp_path: Path, context: Context
) -> None:
    if not has("tmux"):
        pytest.skip("no tmux: apt-get install tmux")
    provider = ShellProvider()
    work = tmp_path / "work"
    work.mkdir()
    with opened(provider, sandbox, work) as resource:
        script = 'mkdir deep; cd deep; X=1; echo "$N"; echo \'{"a": 1}\' > $FLOW_OUTPUT'
        first = run(provider, resource, context, script=script, env={"N": "it's $HOME"})
        second = run(provider, resource, context, script="pwd; echo $X; echo hi > r.txt; (exit 3)")
        words = run(provider, resource, context, argv=["printf", "%s|", "a b", "$X"])
        asking = run(provider, resource, context, script="read -p 'name? ' x")
        kept = run(provider, resource, context, script="true", files={"r": "deep/r.txt"})
        with pytest.raises(ValidationError, match="stdin"):
            run(provider, resource, context, script="cat", stdin="x")
        deep = f"{resource.sandbox.workdir}/deep"

    assert (first["exit_code"], first["stdout"], first["value"]) == (0, "it's $HOME\n", {"a": 1})
    assert (second["exit_code"], second["stdout"]) == (3, f"{deep}\n1\n")
    assert words["stdout"] == "a b|$X|"
    assert asking["exit_code"] != 0
    assert "waiting_for_input" in asking["stderr"]
    assert Path(kept["files"]["r"]["path"]).read_text() == "hi\n"


@pytest.mark.endurance
@pytest.mark.wherever
@pytest.mark.parametrize("provider", [BashProvider(), ShellProvider()], ids=["bash", "shell"])
def test_a_command_that_takes_longer_than_it_asked_for_is_stopped(
    sandbox: type[Sandbox], tmp_path: Path, context: Context, provider: Provider[Any]
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    with opened(provider, sandbox, work) as resource:
        seconds = enough(lambda: run(provider, resource, context, script="echo a"))
        late = run(provider, resource, context, script="echo a; sleep 60; echo b", timeout=seconds)
        after = run(provider, resource, context, script="echo on", timeout=30)

    assert late["exit_code"] != 0
    assert late["stdout"].strip() == "a"
    assert f"it took longer than {seconds:g} s (its timeout) and was stopped" in late["stderr"]
    assert (after["exit_code"], after["stdout"], after["stderr"]) == (0, "on\n", "")


@pytest.mark.endurance
def test_a_program_without_a_network_learns_why(
    sandbox: type[Sandbox], tmp_path: Path, context: Context
) -> None:
    python = "python3 -c 'import socket; socket.getaddrinfo(\"nowhere.invalid\", 80)'"
    told: dict[str, str] = {}
    rules: list[dict[str, Any]] = [{}, {"network": ["api.invalid:443"]}]
    if sandbox is HostSandbox:
        rules = [{"network": "any"}]
    for policy in rules:
        work = tmp_path / f"work{len(told)}"
        work.mkdir()
        with opened(BashProvider(), sandbox, work, policy=policy) as resource:
            failed = run(BashProvider(), resource, context, script=python)
            other = run(BashProvider(), resource, context, script="echo no >&2; exit 3")
        told[str(policy.get("network"))] = failed["stderr"].splitlines()[-1]
        assert "socket.gaierror" in failed["stderr"]
        assert other["stderr"] == "no\n"

    if sandbox is HostSandbox:
        assert "gaierror" in told["any"]
        return
    assert told == {
        "None": "programs in this environment reach no network: allow hosts in policy.network",
        "['api.invalid:443']": (
            "programs in this environment reach only api.invalid:443: allow hosts in policy.network"
        ),
    }
