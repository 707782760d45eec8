"""A site of one page, which a script fills: `python3 harbour_site.py` serves it until Ctrl-C."""

from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer

PAGE = b"""<!doctype html>
<title>Harbour</title>
<h1>Departures</h1>
<form onsubmit="show(ship.value); return false"><input id="ship" aria-label="Ship"></form>
<ul id="found"></ul>
<script>
  const departures = [
    ["Ida", "06:40", "Bergen"],
    ["Nora", "09:15", "Hull"],
    ["Ida", "21:05", "Bergen"],
  ];
  function show(ship) {
    for (const [name, time, port] of departures) {
      if (name !== ship) continue;
      const line = document.createElement("li");
      line.textContent = `${name} sails to ${port} at ${time}`;
      document.getElementById("found").append(line);
    }
  }
</script>
"""


class Site(BaseHTTPRequestHandler):
    """Answers with the page."""

    def do_GET(self) -> None:  # the name is the library's
        """Send it."""
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


if __name__ == "__main__":
    with HTTPServer(("127.0.0.1", 18765), Site) as server:
        print(f"http://localhost:{server.server_port}/", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
