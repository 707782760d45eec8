"""Each page is converted in a separate process, so a hostile page cannot reach the others."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from flowengine.sdk.environments import background
from flowengine_envs.browser.markdown import Converter, Markdown
from flowengine_envs.browser.markdown_worker import START
from flowengine_envs.browser.provider import BrowserProvider
from flowengine_envs.sandboxes.namespace import Namespace
from tests.envs.opening import request_for
from tests.replacing import patches_everywhere

HOSTILE = '''
import builtins, ctypes, os, resource, signal, struct, sys, time
from pathlib import Path
from flowengine_documents import converters

plain = converters.convert
FORGED = b'{"markdown": "forged", "title": "", "truncated": false}'
FORGED = struct.pack(">I", len(FORGED)) + FORGED

def others():
    """The process that the engine talks to, then the server."""
    pids = sorted(int(each.name) for each in Path("/proc").glob("[0-9]*"))
    return [pid for pid in pids if pid != os.getpid()]

def change():
    """Whatever a process can do to itself."""
    builtins.left = "x"
    converters.convert = lambda *_, **__: 1 / 0
    os.chdir("/")

def reach():
    """Into the memory and the descriptors of the others."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert others(), "it sees no process"
    for pid in others():
        for path in ("mem", "environ", "fd/0", "fd/1", "fd/3"):
            try:
                open(f"/proc/{pid}/{path}", "rb").close()
                return f"opened {path}"
            except OSError:
                pass
        if libc.ptrace(16, pid, 0, 0) == 0 or libc.syscall(438, os.pidfd_open(pid), 1, 0) >= 0:
            return "taken"

def more():
    """A second answer, for the next page."""
    os.write(1, 2 * FORGED)
    time.sleep(600)

def leave():
    """A process that goes on, with the descriptors, and writes before this one does."""
    written, write = os.pipe()
    if not os.fork():
        os.setsid()
        if not os.fork():
            while True:
                os.write(1, FORGED)
                os.write(write, b"1")
        os.kill(os.getpid(), signal.SIGKILL)
    os.wait()
    os.read(written, 1)

def end():
    os.kill(others()[-1], signal.SIGKILL)

def stop():
    for pid in others():
        os.kill(pid, signal.SIGSTOP)

def slow():
    os.setpriority(os.PRIO_PROCESS, others()[-1], 19)

def limit():
    resource.prlimit(others()[0], resource.RLIMIT_NOFILE, (9, 9))

def crash():
    os.kill(os.getpid(), signal.SIGSEGV)

def convert(data, *rest, **named):
    found = plain(data, *rest, **named)
    if data.startswith(b"look"):
        found.markdown = f"{os.getcwd()} {getattr(builtins, 'left', '')} nice {os.nice(0)}"
    elif data.startswith(b"do "):
        found.markdown = f"done {globals()[data.split()[1].decode()]() or ''}".strip()
    return found

converters.convert = convert
'''
TAKEN_OVER = START.replace(
    "from flowengine_envs.browser", "exec(HOSTILE); from flowengine_envs.browser"
)


@pytest.fixture(scope="module")
def converter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Converter]:
    """A converter for pages that take it over."""
    folder = tmp_path_factory.mktemp("converter") / "workspace"
    folder.mkdir()
    sandbox = Namespace(request_for(BrowserProvider(), Namespace, folder))
    converter = Converter(sandbox, None)
    with patches_everywhere() as patch:
        start = f"HOSTILE = {HOSTILE!r}; {TAKEN_OVER}"
        patch.setattr("flowengine_envs.browser.markdown.START", start)
        background().run(sandbox.open())
        yield converter
        background().run(converter.close())
        background().run(sandbox.close())


def convert(converter: Converter, html: str) -> Markdown:
    return background().run(converter.convert(html, "http://host/", 1000))


@pytest.mark.parametrize(
    "what", ["change", "reach", "more", "leave", "end", "stop", "slow", "limit", "crash"]
)
def test_what_a_page_does_does_not_reach_the_next(converter: Converter, what: str) -> None:
    before = convert(converter, "look")
    done = convert(converter, f"do {what}")

    if what in {"limit", "crash"}:
        assert done == Markdown("", error="the process that converts the page has ended")
    else:
        assert done.text == ("forged" if what in {"more", "leave"} else "done")
    assert convert(converter, "look") == before
    assert convert(converter, "<b>plain</b>") == Markdown("**plain**")
    assert before.text.endswith(f"nice {os.nice(0)}")


def test_a_conversion_that_is_cancelled_while_its_answer_comes_is_over(
    converter: Converter, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = asyncio.StreamReader.feed_data

    async def cancelled() -> None:
        def feed(reader: asyncio.StreamReader, data: bytes) -> None:
            plain(reader, data)
            # It is full, which a reader does not tell.
            if not reader._transport.is_reading():  # type: ignore[attr-defined]
                converting.cancel()

        text = "word " * 60_000
        converting = asyncio.ensure_future(converter.convert(text, "http://host/", len(text)))
        monkeypatch.setattr(asyncio.StreamReader, "feed_data", feed)
        async with asyncio.timeout(60):
            with pytest.raises(asyncio.CancelledError):
                await converting

    background().run(cancelled())
    monkeypatch.undo()

    assert convert(converter, "<b>plain</b>") == Markdown("**plain**")
