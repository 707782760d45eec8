"""The process that converts the HTML of pages to Markdown, each page in a separate process.

    python -I -c START OPTIONS

A page arrives in two parts, options as JSON and the HTML. The answer is one JSON part. Malicious
HTML may exhaust or compromise its parser, so a fork server that never reads a page forks a process
for each one. This process only forwards bytes: the page to the forked process, and an answer of
limited length back. Before it sends the answer, it kills the process and its descendants. If the
fork server has ended or was changed, this program starts again before the next page. If its own
limits were changed, it exits.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, BinaryIO, NamedTuple, NoReturn

from flowengine_documents.document import ConversionLimits, Unreadable
from flowengine_envs.documents.converting import convert
from flowengine_envs.inside import fork_servers, system
from flowengine_envs.inside.fork_servers import ForkServer, standing
from flowengine_envs.inside.killing import kill_everything, own_process_numbers
from flowengine_envs.link import parts

START = (
    "import sys, json; options = json.loads(sys.argv[1]); sys.path[:0] = options['search_path']; "
    "from flowengine_envs.browser.markdown_worker import main; main(options)"
)
LARGEST_ANSWER = 64 * 1024 * 1024
_USUAL = b"<title>A</title><main><h1>B</h1><p>C <a href='/'>D</a></p></main>"
"""A page with the elements that pages usually have."""


def main(options: Mapping[str, Any]) -> None:
    """Convert pages until standard input ends.

    Args:
        options: `memory`, in bytes.
    """
    system.become_unreadable()
    system.adopt_orphans()
    if os.getpid() == 1:
        own_process_numbers()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        _serve(theirs, options["memory"])
    theirs.close()
    server = ForkServer(None, pid, ours)
    given = standing()
    reader = _forked(server)
    if reader is None:  # Another attempt would fail again.
        os._exit(1)
    while (page := _page()) is not None:
        answer = reader.answer(page)
        alone = _end_all_but(server, reader.pid)
        if answer is None or standing() != given:
            os._exit(1)
        _write(sys.stdout.fileno(), answer)
        reader = _forked(server) if alone else None
        if reader is None:
            _begin_anew()
    kill_everything()


class _Reader(NamedTuple):
    """A process that waits for a page."""

    pid: int
    to: int
    """Descriptor for writing to it."""
    source: BinaryIO
    """Stream of its answer."""

    def answer(self, page: bytes) -> bytes | None:
        """Send it a page, and return its answer with the length. None: the answer is invalid."""
        try:
            with suppress(BrokenPipeError):  # It may have answered without reading everything.
                _write(self.to, page)
        finally:
            os.close(self.to)
        with self.source as source:
            try:
                answer = parts.read(source.read, largest=LARGEST_ANSWER)
            except parts.TooLong:
                return None
            return parts.part(answer) if answer else None


def _write(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def _page() -> bytes | None:
    """Return the two parts of the next page, or None at the end."""
    source = partial(os.read, sys.stdin.fileno())
    asked, html = parts.read(source), parts.read(source)
    return None if asked is None or html is None else parts.part(asked) + parts.part(html)


def _serve(channel: socket.socket, memory: int) -> NoReturn:
    """Run the fork server."""
    _convert_usual()
    os.dup2(channel.fileno(), fork_servers.CONTROL)
    fork_servers.close_all_but([0, 1, 2, fork_servers.CONTROL])
    try:
        fork_servers.serve(partial(_convert, memory))
    finally:
        os._exit(1)


def _convert_usual() -> None:
    """Preload: modules in the server, and private memory in a forked process."""
    convert(_USUAL, "page.html", "text/html; charset=utf-8")


def _forked(server: ForkServer) -> _Reader | None:
    """Fork a process for the next page. None: the server has ended or was changed."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    try:
        pid = server.fork([], {0: theirs_in, 1: theirs_out, 2: 2})
    except OSError:
        os._exit(1)
    finally:
        os.close(theirs_in)
        os.close(theirs_out)
    if pid in {0, server.pid}:
        return None
    return _Reader(pid, ours_out, open(ours_in, "rb"))


def _end_all_but(server: ForkServer, pid: int) -> bool:
    """End a process and its descendants. Return whether only the server is left."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    left = system.children()
    if left == [server.pid]:
        return True
    kill_everything()
    if system.children():
        os._exit(1)
    return False


def _begin_anew() -> NoReturn:
    """Execute the program again, so that its memory contains nothing of the pages."""
    kill_everything()
    os.execv(sys.executable, sys.orig_argv)


def _convert(memory: int) -> None:
    """Convert the page on standard input."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    soft = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    _convert_usual()
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    options, html = parts.read(source.read), parts.read(source.read)
    if options is None or html is None:
        return
    asked = json.loads(options)
    try:
        limits = ConversionLimits(characters=asked["characters"])
        converted = convert(
            html, "page.html", "text/html; charset=utf-8", limits, base=asked["base"]
        )
        answer: dict[str, Any] = {
            "markdown": converted.markdown,
            "title": converted.title,
            "truncated": converted.truncated,
        }
    except MemoryError:
        answer = {"error": "it takes more memory than it may"}
    except Unreadable as error:
        answer = {"error": str(error)}
    data = json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")
    sink.write(parts.part(data))
    sink.flush()
