# Shows E93
"""Forks, loops and the end of the interpreter (E17, E93, S90)."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import EnvironmentClosed
from tests.execution_environment.toy import Toy

ROOT = Path(__file__).parents[2]


def run(program: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    start = """
        import asyncio, os, sys, threading
        from tests.execution_environment.toy import *
        from flowengine.execution_environment import *
        from flowengine.sdk import *
        toy = Toy()
        register_provider(toy)
        m = EnvironmentManager(sys.argv[1])
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(start) + textwrap.dedent(program), str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )


FORK = """
    handle = m.ensure(SPEC)
    resource = handle.resource
    pid = os.fork()
    if pid == 0:
        for use in (
            lambda: m.ensure(SPEC),
            lambda: m.release(handle),
            lambda: handle.resource,
            lambda: resource.echo("x"),
        ):
            try:
                use()
            except EnvironmentClosed as error:
                print(error)
            else:
                print("no error")
        own = EnvironmentManager(sys.argv[1])
        print(own.ensure(SPEC).resource.echo("child"), flush=True)
        sys.exit(0)
    os.waitpid(pid, 0)
    print(handle.resource.echo("parent"), toy.releases)
"""


@pytest.mark.endurance
# Shows S90
def test_the_child_of_a_fork_is_told_and_releases_nothing(tmp_path: Path) -> None:
    done = run(FORK, tmp_path)

    lines = done.stdout.splitlines()
    assert done.stderr == ""
    assert len(lines) == 6
    assert all("belongs to process" in line for line in lines[:4])
    assert lines[4:] == ["child", "parent 0"]


@pytest.mark.parametrize(
    "end",
    [
        "raise ZeroDivisionError",
        *(
            pytest.param(end, marks=pytest.mark.endurance)
            for end in ("", "sys.exit(3)", "asyncio.run(m.async_ensure({'kind': 'toy'}))")
        ),
    ],
)
# Shows E17
def test_the_interpreters_end_releases_everything_quietly(tmp_path: Path, end: str) -> None:
    program = f"""
        async def close(thing):
            await asyncio.to_thread(print, 'released', thing.request.spec.resource_key, flush=True)
        toy.close = close
        m.ensure({{**SPEC, 'scope': 'global', 'resource_key': 'a'}})
        m.ensure({{**SPEC, 'scope': 'global', 'resource_key': 'b'}})
        manager().ensure(SPEC)
        {end}
    """
    done = run(program, tmp_path)

    released = done.stdout.splitlines()
    assert [line for line in released if line[-1] in "ab"] == ["released b", "released a"]
    assert "released toy" in released
    assert "ZeroDivisionError" in done.stderr if "Zero" in end else done.stderr == ""


# Shows S90
def test_a_closed_resource_says_whose_it_was(manager: EnvironmentManager, toy: Toy) -> None:
    handle = manager.ensure({"kind": "toy", "owner_id": "01k8exec", "resource_key": "box"})
    resource = handle.resource
    manager.release_scope("execution", "01k8exec")

    with pytest.raises(EnvironmentClosed, match=r"'box'.*01k8exec"):
        resource.echo("x")
    with pytest.raises(EnvironmentClosed, match=r"'box'.*01k8exec"):
        handle.resource  # noqa: B018
    assert toy.opens == 1
