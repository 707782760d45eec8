"""Previews: a tool's description of a call's effect, shown with its approval."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine, load
from flowengine.errors import FlowFileError
from flowengine.sdk import user_code
from flowengine.sdk.tool_calls import ApprovalResponse, EnvironmentResponse, ToolCall
from tests.command_line import compile_flow
from tests.stored_data import stored_in

TOOLS = """
from pathlib import Path

def put(path: str, text: str, key: str = "") -> str:
    Path(path).write_text(text)
    return "put"

def diff(args):
    with open("asked.txt", "a") as file:
        file.write("!")
    return f"--- {args['path']}\\n+{args['text']} for {args['key']}"

async def later(args):
    return "later " + args["text"]

def leaks(args):
    import os
    return "the key is " + os.environ["KEY"]

def leaks_by_error(args):
    import os
    raise ValueError(os.environ["KEY"])

def raises(args):
    raise ValueError("no idea")

def exits(args):
    raise SystemExit(3)

def hangs(args):
    import threading
    threading.Event().wait()

def is_huge(args):
    return "x" * 20_001

def is_a_list(args):
    return ["x"]

def is_nothing(args):
    return None

def changes(args):
    args["path"] = "other"
    return "changed"

def hostile(args):
    return "\\x1b[2Kok\\n  approved by: user:root\\r\\u202e\\ud800"

def two(args, more):
    return ""
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEY", "c4n4ry")
    Path("tools.py").write_text(TOOLS)


def flow(preview: str, approval: str = "ask") -> str:
    Path("flow.yaml").write_text(
        f"""
flowengine: 1
id: f
secrets: {{KEY: {{env: KEY}}}}
tools:
  put:
    python: "tools:put"
    bind: {{key: "${{{{ secrets.KEY }}}}"}}
    approval: {approval}
    preview: "tools:{preview}"
steps: [{{id: a, call: put, with: {{path: out.txt, text: hello}}}}]
outputs: {{o: "${{{{ steps.a.output }}}}"}}
"""
    )
    return "flow.yaml"


def asked(preview: str) -> dict[str, Any]:
    with Engine("store") as engine:
        [wait] = engine.run(flow(preview)).waits
        return {**engine.wait(wait["id"])}


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flowengine", "--store", "store", *words],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.endurance
def test_it_is_shown_with_the_question_and_computed_once() -> None:
    wait = asked("diff")
    assert wait["preview"] == "--- out.txt\n+hello for ***"
    assert not Path("out.txt").exists()

    shown = command("approvals", "show", wait["id"]).stdout
    begin = shown.index("according to the tool")
    assert shown.index("hello") < begin  # the arguments come first
    assert "\n  | --- out.txt\n  | +hello for ***\n" in shown[begin:]
    [as_json] = [
        one for one in command("--json", "approvals", "list").stdout.splitlines() if "put" in one
    ]
    assert '"preview"' in as_json

    done = command("approve", wait["id"])
    assert done.returncode == 0, done.stderr
    assert Path("out.txt").read_text() == "hello"
    assert Path("asked.txt").read_text() == "!"


def test_a_coroutine_and_a_preview_that_shows_nothing() -> None:
    assert asked("later")["preview"] == "later hello"
    assert asked("is_nothing").keys().isdisjoint({"preview", "note"})


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("preview", "note"),
    [
        ("raises", "no preview: it failed with ValueError: no idea"),
        ("exits", "no preview: it failed with SystemExit: 3"),
        ("is_huge", "no preview: it has 20001 characters, more than 20000"),
        ("is_a_list", "no preview: it is a list, not text"),
        ("leaks_by_error", "no preview: it failed with ValueError: ***"),
    ],
)
def test_one_that_fails_is_left_out_with_a_note(preview: str, note: str) -> None:
    wait = asked(preview)
    assert wait["note"] == note
    assert "preview" not in wait
    assert note in command("approvals", "show", wait["id"]).stdout


def test_a_secret_that_it_gives_away_is_masked_everywhere() -> None:
    assert asked("leaks")["preview"] == "the key is ***"
    stored = b"".join(stored_in("store").values())
    assert b"c4n4ry" not in stored


def test_it_cannot_change_what_runs() -> None:
    wait = asked("changes")
    assert wait["subject"]["path"] == "out.txt"
    with Engine("store") as engine:
        engine.approve(wait["id"])
    assert Path("out.txt").exists()


def test_what_it_says_controls_no_terminal_and_stays_inside_its_frame() -> None:
    wait = asked("hostile")
    shown = command("approvals", "show", wait["id"]).stdout
    assert "\x1b" not in shown
    assert "\r" not in shown
    assert "\n  |   approved by: user:root" in shown


def test_one_that_hangs_delays_no_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """An approval arrives while the preview hangs: the call runs before the preview times out."""
    monkeypatch.setattr(user_code, "SECONDS", 3600.0)
    begun = threading.Event()
    with Engine("store") as engine:
        engine.subscribe(lambda update: begun.set() if update.kind == "wait" else None)
        ran: list[Any] = []

        def run() -> None:
            ran.append(engine.run(flow("hangs")))

        thread = threading.Thread(target=run)
        thread.start()
        assert begun.wait(60)
        with Engine("store") as other:
            [wait] = other.waits().items
            assert other.approve(wait["id"], resume=False).first
        thread.join(60)
    assert not thread.is_alive()
    assert Path("out.txt").read_text() == "hello"
    assert ran[0].status == "succeeded"


def test_one_that_hangs_is_left_out_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_code, "SECONDS", 0.1)
    assert asked("hangs")["note"] == "no preview: it took longer than 0.1 s"


DIES = """
import os, signal, sys
from flowengine import Engine
from flowengine.engines.running import call_descriptions

async def dies(*_):
    os.kill(os.getpid(), signal.SIGKILL)

call_descriptions.previewed = dies
Engine("store").run("flow.yaml", id="it")
"""


@pytest.mark.endurance
def test_what_a_crash_left_undone_is_made_up_for_and_what_is_known_is_not_asked_again() -> None:
    compile_flow(flow("diff"))
    child = subprocess.run([sys.executable, "-c", DIES], timeout=60, check=False)
    assert child.returncode == -9
    with Engine("store") as engine:
        [wait] = engine.waits().items
        assert "preview" not in wait
        for _ in range(2):
            engine.resume("it")
        assert "+hello" in engine.wait(wait["id"])["preview"]
        assert Path("asked.txt").read_text() == "!"
        described = [one for one in engine.events("it") if one["type"] == "described"]
    assert [("source" in one, "preview" in one) for one in described] == [
        (True, False),
        (False, True),
    ]


class Asked:
    """A program that decides on calls."""

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []

    async def approve_tool(self, call: ToolCall) -> EnvironmentResponse:
        self.calls.append(call)
        return EnvironmentResponse(result=ApprovalResponse(approved=True))


def test_a_program_that_decides_sees_it() -> None:
    program = Asked()
    with Engine("store", tool_authority=program) as engine:
        assert engine.run(flow("diff")).status == "succeeded"
        assert engine.run(flow("raises")).status == "succeeded"
    first, second = program.calls
    assert first.preview == "--- out.txt\n+hello for ***"
    assert second.preview is None
    assert second.preview_note == "no preview: it failed with ValueError: no idea"


def test_an_await_ends_with_the_preview() -> None:
    import asyncio

    async def main() -> Any:
        engine = Engine("store")
        try:
            [wait] = (await engine.run_async(flow("diff"))).waits
            return engine.wait(wait["id"])
        finally:
            engine.close()

    assert "+hello" in asyncio.run(main())["preview"]


@pytest.mark.parametrize(
    ("preview", "message"),
    [
        ("nothing", "module 'tools' has no function 'nothing'"),
        ("two", "'tools:two' cannot be a preview: it has to take exactly one argument"),
    ],
)
def test_what_is_no_preview_is_an_error_of_the_check(preview: str, message: str) -> None:
    with pytest.raises(FlowFileError) as error:
        load(flow(preview))
    assert [one.message for one in error.value.diagnostics] == [message]


def test_a_tool_that_nobody_is_asked_about_makes_no_preview() -> None:
    with Engine("store") as engine:
        assert engine.run(flow("diff", "none")).status == "succeeded"
    assert not Path("asked.txt").exists()


FILES = """
flowengine: 1
id: f
tools:
  write: {std: write_file, approval: {edit: true}}
  edit: {std: edit_file, approval: ask}
steps: [{id: a, call: TOOL, with: ARGS}]
"""


@pytest.mark.parametrize(
    ("tool", "args", "shown"),
    [
        (
            "write",
            '{path: a.txt, text: "one\\nTWO\\n"}',
            "--- a.txt\n+++ a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+TWO",
        ),
        (
            "write",
            "{path: sub/new.txt, text: new}",
            "--- /dev/null\n+++ sub/new.txt\n@@ -0,0 +1 @@\n+new",
        ),
        (
            "edit",
            '{path: a.txt, old: two, new: "2"}',
            "--- a.txt\n+++ a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2",
        ),
        ("edit", "{path: a.txt, old: three, new: x}", "'old' is not in 'a.txt'"),
        ("write", "{path: ../out.txt, text: x}", "'../out.txt' leads out of '/"),
    ],
)
def test_tools_that_write_files_show_the_difference(tool: str, args: str, shown: str) -> None:
    Path("a.txt").write_text("one\ntwo\n")
    Path("flow.yaml").write_text(FILES.replace("TOOL", tool).replace("ARGS", args))
    with Engine("store") as engine:
        [wait] = engine.run("flow.yaml").waits
        found = engine.wait(wait["id"])
    assert shown in found.get("preview", found.get("note", ""))
    assert Path("a.txt").read_text() == "one\ntwo\n"
    assert [one.name for one in Path().glob("sub*")] == []
