# Shows V38
"""A user whose commands use a server where they can, over the store that the others drive."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flowengine import Client, Engine
from flowengine.cli.parsing.command_table import SERVED, STORE_OPTIONS
from tests.cli.conftest import CommandLine
from tests.command_line import Done
from tests.server.api import LOCAL, Api
from tests.server.transport import Transport

URL = "https://testserver"
DRIVING = {"approve", "reject", "decide", "signal", "cancel"}
"""Commands that also drive executions, unless they have `--no-resume`."""
SENT = SERVED - {"run", "resume", "retry", "fork", "upgrade"}
"""Commands that are sent to the server."""


class BesideServer(CommandLine):
    """Sends commands that read or record to a server. Those that drive steps use its store."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.sent: list[str] = []
        """The commands that were sent."""
        self._api: Api | None = None

    def run(
        self, *words: str | Path, typed: str | None = None, env: Mapping[str, str] | None = None
    ) -> Done:
        command = self._served([str(word) for word in words])
        if command and "FLOWENGINE_STORE" not in (env or {}):
            self.sent.append(command)
            env = {"FLOWENGINE_SERVER": URL, **(env or {})}
        return super().run(*words, typed=typed, env=env)

    def connect(self, url: str) -> Client:
        """Return a client of the server."""
        if self._api is None:
            engine = Engine(self.folder / ".flowengine")
            self._api = Api(self.folder / "server", (), engine)
        return Client(url, LOCAL, transport=Transport(self._api))

    def close(self) -> None:
        """Close the server."""
        if self._api is not None:
            self._api.close()

    def _served(self, words: list[str]) -> str:
        """Return the command that can be sent. Empty: it cannot."""
        if not (self.folder / ".flowengine").exists() or "--store" in words:
            return ""
        names = [word for word in words if not word.startswith("-")]
        command = next((one for one in (" ".join(names[:2]), *names[:1]) if one in SENT), "")
        options = {f"{command} {word}" for word in words} | {*words}
        driven = command in DRIVING and "--no-resume" not in words
        driven |= command == "flows schedule" and not {"--now", "--since"}.isdisjoint(words)
        driven |= command == "deploy" and "--remove" not in words
        return "" if driven or options & STORE_OPTIONS.keys() else command
