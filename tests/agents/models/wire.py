"""A server that answers with given bytes, and records the requests."""

from __future__ import annotations

import json
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from flowengine.agents.text_calls.marked_form import marked


@dataclass
class Answer:
    """The server's response to a request."""

    pieces: Iterable[bytes]
    """Pieces of the body, sent until they end or the client disconnects."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    then: Literal["end", "drop", "hold"] = "end"
    """`drop`: the connection breaks in between. `hold`: it stays open until the client closes it.
    """


@dataclass
class Sent:
    path: str
    headers: Mapping[str, str]
    body: Any


Answering = Callable[[Any], Answer]
"""Answers according to the body of the request."""


class Wire:
    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[Sent] = []
        self.answers: deque[Answer | Answering] = deque()
        self.closed = threading.Event()
        """Set when a client has closed a connection that was held."""

    def answer(self, *answers: Answer | Answering) -> None:
        self.answers.extend(answers)


@contextmanager
def serving() -> Iterator[Wire]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            body = json.loads(self.rfile.read(length))
            wire.requests.append(Sent(self.path, dict(self.headers), body))
            answer = wire.answers.popleft()
            self.give(answer(body) if callable(answer) else answer)

        def give(self, answer: Answer) -> None:
            self.close_connection = True
            if answer.then == "drop" and answer.pieces == ():
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Transfer-Encoding", "chunked")
            self.send_header("Connection", "close")  # the client must not send another one here
            self.end_headers()
            try:
                for piece in answer.pieces:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    self.wfile.flush()
                if answer.then == "end":
                    self.wfile.write(b"0\r\n\r\n")
                if answer.then == "hold" and self.rfile.read(1) == b"":
                    wire.closed.set()
            except ConnectionError:  # also from reading: a client may close before it has read all
                wire.closed.set()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    wire = Wire(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    try:
        yield wire
    finally:
        server.shutdown()
        server.server_close()


def written(body: Any, tool: str, **arguments: Any) -> str:
    """Return a call as text, as written by a model that received the instructions."""
    found = re.search(r"The mark (\w+) makes", body["messages"][0]["content"])
    assert found, "no call was shown"
    return marked(found[1]).write([(tool, arguments)])


def inside(result: str) -> str:
    """Return the text of a result without the lines around what others wrote."""
    return re.sub(r"<data (\d+)>\n(.*?)\n</\1>", r"\2", result, flags=re.DOTALL)


def failed(status: int, message: str = "no", **more: Any) -> Answer:
    """Return an error in OpenAI's format."""
    headers = more.pop("headers", {})
    body = {"error": {"message": message, "type": "some_error", "code": None} | more}
    return Answer(
        (json.dumps(body).encode(),), status, {"Content-Type": "application/json", **headers}
    )


def replied(text: Any = "Hello.", **more: Any) -> Answer:
    """Return a reply in OpenAI's format."""
    usage = more.pop("usage", {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12})
    message = {"role": "assistant", "content": text, **more.pop("message", {})}
    choice = {"index": 0, "message": message, "finish_reason": more.pop("finish", "stop")}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    if usage:
        body["usage"] = usage
    return Answer((json.dumps(body | more).encode(),), 200, {"Content-Type": "application/json"})


def streamed(
    *deltas: Mapping[str, Any],
    finish: str | None = "stop",
    usage: Mapping[str, Any] | None = None,
    then: Literal["end", "drop", "hold"] = "end",
) -> Answer:
    """Return a streamed reply in OpenAI's format."""
    events: list[dict[str, Any]] = [chunk([choice(delta)]) for delta in deltas]
    if finish:
        events.append(chunk([choice({}, finish)]))
    if usage:
        events.append(chunk([]) | {"usage": usage})
    pieces = [f"data: {json.dumps(event)}\n\n".encode() for event in events]
    if finish:
        pieces.append(b"data: [DONE]\n\n")
    return Answer(tuple(pieces), 200, {"Content-Type": "text/event-stream"}, then)


def choice(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": dict(delta), "finish_reason": finish}


def chunk(choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": "1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": choices,
    }


def call(index: int, arguments: str = "", *, id: str | None = None, name: str | None = None) -> Any:
    """Return a piece of a streamed call."""
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"index": index, "function": function} | ({"id": id, "type": "function"} if id else {})
