"""A list of lights, which a script searches: `python3 light_list.py` serves it until Ctrl-C."""

from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer

PAGE = b"""<!doctype html>
<title>List of lights</title>
<h1>List of lights</h1>
<form onsubmit="show(light.value); return false"><input id="light" aria-label="Light"></form>
<p id="found"></p>
<script>
  const lights = {
    Eddystone: "two white flashes every 10 seconds, 17 miles",
    Fastnet: "a white flash every 5 seconds, 27 miles",
    Kullen: "a white flash every 5 seconds, 25 miles",
  };
  function show(light) {
    const found = document.getElementById("found");
    found.textContent = light in lights ? `${light}: ${lights[light]}` : "not in the list";
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
    with HTTPServer(("127.0.0.1", 18766), Site) as server:
        print(f"http://localhost:{server.server_port}/", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
