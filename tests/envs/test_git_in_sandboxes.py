# Shows E39
"""The workspace contains only the user's files, so Git may add or clean all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.sdk.environments import Sandbox
from flowengine_envs.kinds.bash import BashProvider
from flowengine_envs.kinds.docker.provider import DockerProvider
from flowengine_envs.kinds.shell.provider import ShellProvider
from flowengine_envs.sandboxes.docker.sandbox import Docker
from flowengine_envs.sandboxes.processes import has
from tests.envs.containers import skip_without_docker
from tests.envs.on_disk import tmp_path_factory  # noqa: F401 - for all tests here
from tests.envs.opening import on_host, opened

BEGIN = "git init -q && echo '*.log' > .gitignore && touch a b.log"
ADD = "git add -A && git status --porcelain"
CLEAN = "git rm -qrf --cached . && git clean -qfdx && ls -A"
LARGE = {"limits": {"output": "10kB"}}
FLOOD = "head -c 100000 /dev/zero | tr '\\0' x"


@pytest.mark.endurance
def test_bash(sandbox: type[Sandbox], tmp_path: Path) -> None:
    with opened(BashProvider(), sandbox, tmp_path, **LARGE) as bash:
        bash.run(["sleep", "0"])
        before = bash.run(FLOOD)
        assert bash.run(BEGIN).exit_code == 0
        assert bash.run(ADD).stdout == "A  .gitignore\nA  a\n"

        assert bash.run(CLEAN).stdout == ".git\n"

        after = bash.run(FLOOD)
        for result in (before, after):
            assert bash.get(result.stdout_file) == b"x" * 100_000
            assert on_host(bash, result.stdout_file).stat().st_size == 100_000
            bash.remove(result.stdout_file)
        assert not on_host(bash, after.stdout_file).exists()


@pytest.mark.wherever
def test_shell(sandbox: type[Sandbox], tmp_path: Path) -> None:
    if not has("tmux"):
        pytest.skip("no tmux: apt-get install tmux")
    with opened(ShellProvider(), sandbox, tmp_path, **LARGE) as shell:
        assert shell.run(f"x=1; {BEGIN}").exit_code == 0
        assert shell.run(ADD).output == "A  .gitignore\nA  a\n"

        result = shell.run(CLEAN)

        assert (result.output, result.shell_restarted) == (".git\n", False)
        assert shell.run("echo $x").output == "1\n"
        assert shell.another().run("pwd").output == f"{shell.workdir}\n"
        assert b"git clean" in shell.get(f"{shell.records}/clean.log")


def test_docker(tmp_path: Path) -> None:
    skip_without_docker()
    with opened(DockerProvider(), Docker, tmp_path, **LARGE) as docker:
        before = docker.run(["sh", "-c", FLOOD])
        made = docker.run(["sh", "-c", BEGIN]).outputs
        assert {each.split("/")[0] for each in made} == {".git", ".gitignore", "a", "b.log"}
        assert docker.run(["sh", "-c", ADD]).stdout == "A  .gitignore\nA  a\n"

        assert docker.run(["sh", "-c", CLEAN]).stdout == ".git\n"

        assert docker.get(before.stdout_file) == b"x" * 100_000
        seen = docker.run(["wc", "-c", before.stdout_file])
        assert seen.stdout == f"100000 {before.stdout_file}\n"


@pytest.mark.endurance
def test_the_home_folder_lasts_as_long_as_the_workspace(
    sandbox: type[Sandbox], tmp_path: Path
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    with opened(BashProvider(), sandbox, inside) as bash:
        assert bash.run("cd && pwd && echo kept > ~/.rc").stdout == f"{bash.home}\n"
        assert bash.get(f"{bash.home}/.rc") == b"kept\n"
    with opened(BashProvider(), sandbox, inside) as bash:
        assert bash.run("cat ~/.rc; ls -A").stdout == "kept\n"
