"""`flowengine run` for its user: output streams and exit codes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine, steady

LOUD = """
import os, subprocess, sys, threading

print("imported")
early = sys.stdout


def speak(text):
    print(text, "print")
    early.write(f"{text} write without an end")
    sys.__stdout__.write(f"{text} original\\n")
    sys.stdout.buffer.write(f"{text} bytes\\n".encode())
    os.write(1, f"{text} descriptor\\n".encode())
    subprocess.run(["echo", text, "child"])
    thread = threading.Thread(target=print, args=[text, "thread"])
    thread.start()
    thread.join()
    return text


async def speak_later(text):
    return speak(text)


def add(old, new):
    print("reducer")
    return old + new
"""
TALK = """\
flowengine: 1
id: talk
state:
  sum: {type: integer, default: 0, reducer: {python: "loud:add"}}
steps:
  - {id: one, python: "loud:speak", with: {text: thread}, set: {sum: 1}}
  - {id: ask, approval: {title: More?}}
  - {id: two, python: "loud:speak_later", with: {text: loop}, set: {sum: 2}}
outputs: {said: "${{ steps.two.output }}"}
"""
WAYS = ("print", "write without an end", "original", "bytes", "descriptor", "child", "thread")


@pytest.mark.endurance
def test_what_functions_print_does_not_stand_among_results(flowengine: CommandLine) -> None:
    flowengine.write("loud.py", LOUD)
    flowengine.write("talk.yaml", TALK)

    def run(*words: str) -> tuple[str, str]:
        return flowengine.spawn(*words).communicate(timeout=60)

    out, heard = run("run", "talk.yaml", "--json")
    waiting = json.loads(out)
    assert all(f"thread {way}" in heard for way in WAYS)
    assert "imported" in heard
    out, heard = run("--json", "approve", waiting["waits"][0]["id"])
    assert json.loads(out)["executions"][0]["outputs"] == {"said": "loop"}
    assert all(f"loop {way}" in heard for way in WAYS)
    assert "reducer" in heard
    run("run", "talk.yaml", "--json", "--id", "x")
    flowengine("--json", "approve", "--all", "--execution", "x", "--no-resume")
    assert run("resume", "x", "-q")[0] == "said: loop\n"


def test_it_stays_for_a_wait_that_is_due_soon_and_else_says_when_to_go_on(
    flowengine: CommandLine, time_is: Callable[[float], None]
) -> None:
    text = "flowengine: 1\nid: nap\nsteps: [{id: nap, wait: 50ms}]\noutputs: {done: true}\n"
    flow = flowengine.write("nap.yaml", text)
    long = flowengine.write("long.yaml", text.replace("50ms", "1h"))

    stayed = flowengine("run", flow)
    left = flowengine("run", long, "--linger", "0s", code=4)
    time_is(time.time() + 3_700)

    assert stayed.out == "done: true\n"
    assert "  nap            waiting     until TIME\nwaiting for time\n" in steady(left.err)
    assert steady(left.err).endswith(
        "saved as EXECUTION; to resume after TIME: flowengine resume EXECUTION\n"
    )
    assert flowengine("resume", flowengine.newest()).out == "done: true\n"


HELD = """
flowengine: 1
id: held
concurrency: {max: 1, then: THEN}
steps: [{id: sure, approval: Sure?}]
"""


@pytest.mark.endurance
@pytest.mark.parametrize("then", ["queue", "cancel"])
# Shows F92
def test_it_does_not_stay_for_ever_for_executions_that_nobody_drives(
    flowengine: CommandLine, then: str
) -> None:
    """After `--linger`, waits are left to others, but requested cancellations are carried out."""
    file = str(flowengine.write("held.yaml", HELD.replace("THEN", then)))
    flowengine("run", file, "--id", "e1", code=4)
    linger = {"queue": "1ms", "cancel": "1h"}[then]

    process = flowengine.spawn("run", file, "--id", "e2", "--linger", linger)
    try:
        process.communicate(timeout=60)
    finally:
        process.kill()

    assert process.returncode == 4
    found = {one["execution"]: one for one in flowengine("--json", "list").json()}
    assert found["e1"]["status"] == {"queue": "waiting", "cancel": "cancelled"}[then]
    [wait] = flowengine("--json", "approvals", "list").json()
    assert wait["execution"] == {"queue": "e1", "cancel": "e2"}[then]


def test_what_a_run_leaves_is_private_whatever_the_umask(flowengine: CommandLine) -> None:
    flow = flowengine.write(
        "keep.yaml",
        "flowengine: 1\nid: keep\nsteps:\n"
        "  - {id: a, run: {script: 'echo hi > out.txt', files: {out: out.txt}}}\n",
    )
    before = os.umask(0)
    try:
        flowengine("run", flow)
    finally:
        os.umask(before)

    store = flowengine.folder / ".flowengine"
    kept = [store, *store.rglob("*")]
    assert len(kept) > 4
    assert [one for one in kept if one.stat().st_mode & 0o077] == []


def test_short_ids_tell_executions_of_one_moment_apart(
    flowengine: CommandLine, hello: Path
) -> None:
    shown = [flowengine("run", hello).err.split()[1] for _ in range(3)]

    assert all(len(short) >= 12 for short in shown)
    for short in shown:  # including those shown before the others existed
        assert flowengine("--json", "show", short).json()["execution"].startswith(short)
