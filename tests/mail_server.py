"""A mail server that keeps what it receives."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any, ClassVar


class Mail(socketserver.StreamRequestHandler):
    """Speaks as much SMTP as a client needs (RFC 5321). `answers` replaces replies."""

    got: ClassVar[list[tuple[list[str], EmailMessage]]]
    answers: ClassVar[dict[str, str]]

    def handle(self) -> None:
        self._say("220 here")
        recipients: list[str] = []
        while line := self.rfile.readline().decode().strip():
            word = line.partition(" ")[0].upper()
            if word == "RCPT":
                recipients.append(line)
            if word == "DATA" and "DATA" not in self.answers:
                self._say("354 go on")
                lines = iter(self.rfile.readline, b".\r\n")
                found: Any = message_from_bytes(b"".join(lines), policy=default)
                self.got.append((recipients, found))
            said = "221 bye" if word == "QUIT" else "250 ok"
            self._say(self.answers.get(word, said))
            if word == "QUIT":
                return

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


@contextmanager
def mail_server() -> Iterator[str]:
    """Run a mail server for the block, and return its address."""
    Mail.got, Mail.answers = [], {}
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Mail) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()
