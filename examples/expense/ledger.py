"""A stand-in for the company's ledger, so that the example runs without one.

    python examples/expense/ledger.py 8765

It books each reimbursement once, even if it is sent several times with the same key, and appends
the bookings to `ledger.jsonl`.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar


class Ledger(BaseHTTPRequestHandler):
    """Answers `POST /v1/reimbursements`."""

    booked: ClassVar[dict[str, dict[str, object]]] = {}
    """Key of a request → its booking."""
    file = Path("ledger.jsonl")

    def do_POST(self) -> None:
        """Book a reimbursement, or return the earlier booking."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.headers.get("Authorization", "").startswith("Bearer "):
            return self.answer(401, {"error": "no token"})
        key = self.headers["Idempotency-Key"]
        if key not in self.booked:
            self.booked[key] = {"number": len(self.booked) + 1, **body}
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(self.booked[key]) + "\n")
        return self.answer(201, self.booked[key])

    def answer(self, status: int, value: dict[str, object]) -> None:
        """Send JSON."""
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def main(port: int) -> None:
    """Serve on this machine until interrupted.

    Args:
        port: The port to listen on. 0 picks a free one.
    """
    with HTTPServer(("127.0.0.1", port), Ledger) as server:
        print(f"ledger on http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8765)
