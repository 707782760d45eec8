"""Previews that hang, and those of executions that are awaited (`previews.cases.yaml`)."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.sdk.python import user_code
from tests.replacing import Limits

TOOLS = """
from pathlib import Path

def put(path: str, text: str, key: str = "") -> str:
    Path(path).write_text(text)
    return "put"

def diff(args):
    return f"--- {args['path']}\\n+{args['text']} for {args['key']}"

def hangs(args):
    import threading
    threading.Event().wait()
"""
pytestmark = pytest.mark.usefixtures("folder")
FILES = {"tools.py": TOOLS}
VARIABLES = {"KEY": "c4n4ry"}


def flow(preview: str) -> str:
    Path("flow.yaml").write_text(
        f"""
flowengine: 1
id: f
secrets: {{KEY: {{env: KEY}}}}
tools:
  put:
    python: "tools:put"
    with: {{key: "${{{{ secrets.KEY }}}}"}}
    approval: ask
    preview: "tools:{preview}"
steps: [{{id: a, call: put, with: {{path: out.txt, text: hello}}}}]
outputs: {{o: "${{{{ steps.a.output }}}}"}}
"""
    )
    return "flow.yaml"


def asked(preview: str) -> dict[str, Any]:
    with Engine("store") as engine:
        [wait] = engine.run(flow(preview)).waits
        return {**engine.approvals.show(wait["id"])}


# Shows T50
def test_one_that_hangs_delays_no_decision(limits: Limits) -> None:
    """An approval arrives while the preview hangs: the call runs before the preview times out."""
    limits(user_code, SECONDS=3600.0)
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
            [wait] = other.approvals.list().items
            assert other.approvals.approve(wait["id"], resume=False).first
        thread.join(60)
    assert not thread.is_alive()
    assert Path("out.txt").read_text() == "hello"
    assert ran[0].status == "succeeded"


# Shows T50
def test_one_that_hangs_is_left_out_with_a_note(limits: Limits) -> None:
    limits(user_code, SECONDS=0.1)
    assert asked("hangs")["note"] == "no preview: it took longer than 0.1 s"


def test_an_await_ends_with_the_preview() -> None:
    import asyncio

    async def main() -> Any:
        engine = Engine("store")
        try:
            [wait] = (await engine.run_async(flow("diff"))).waits
            return engine.approvals.show(wait["id"])
        finally:
            engine.close()

    assert "+hello" in asyncio.run(main())["preview"]
