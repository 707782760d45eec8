"""Progress at a terminal: lines for ended steps, and the running steps below them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from flowengine.cli.driving.progress import STATUS_WIDTH, ProgressDisplay
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import Colours, is_terminal, rendered, results
from flowengine.sdk.texts.visible_text import printable

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text


PATIENCE = 0.3
"""Seconds after which a step is shown as running: most steps have ended by then, and loading Rich
would take longer than they do."""
MOST = 8
"""Maximum number of steps that are shown as running. The others are counted."""
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class LiveProgress(ProgressDisplay):
    """Progress on a terminal."""

    def __init__(self, session: CliSession) -> None:
        super().__init__(session)
        self._running: dict[str, float] = {}
        self._maps: dict[str, tuple[int, int]] = {}
        """Address of a map → how many of its items have ended, and how many it has."""
        self._of_running = threading.Lock()
        """Lock of the running steps: Rich renders with a lock that `line` waits for while it holds
        `_lock`, so that one cannot be taken for it."""
        self._lock = threading.RLock()
        self._live: Live | None = None
        self._held: list[str] | None = None
        self._over = threading.Event()
        self._watcher: threading.Thread | None = None

    def __exit__(self, *_: object) -> None:
        """Remove the running steps from the screen."""
        self._over.set()
        if self._watcher is not None:
            self._watcher.join()
        if self._live is not None:
            self._live.stop()

    def line(self, text: str) -> None:
        """Show a line above the running steps."""
        with self._lock:
            if self._held is not None:
                self._held.append(text)
                return
            if self._live is None:
                super().line(text)
                return
            from rich.text import Text

            self._live.console.print(Text.from_ansi(rendered(text)), soft_wrap=True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold back new lines, and remove the running steps from the screen."""
        with self._lock:
            self._held = []
            if self._live is not None:
                self._live.stop()
        try:
            yield
        finally:
            with self._lock:
                lines, self._held = self._held, None
                if self._live is not None and not self._over.is_set():
                    self._live.start()
                for line in lines:
                    self.line(line)

    def text(self, text: str) -> None:
        """Show text that a step prints."""
        with self._lock:
            if is_terminal(results()):
                for line in text.split("\n"):
                    self.line(line)
            else:
                super().text(text)

    def begin(self, address: str, at: int) -> None:
        """Note that a step runs. It is shown if it takes longer."""
        with self._of_running:
            self._running.setdefault(address, monotonic())
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, daemon=True)
            self._watcher.start()

    def end(self, address: str) -> None:
        """Stop showing it."""
        with self._of_running:
            self._running.pop(address, None)
            self._maps.pop(address, None)

    def count(self, address: str, ended: int, items: int) -> None:
        """Show how many items of a map have ended, above the running steps."""
        with self._of_running:
            self._maps[address] = ended, items

    def _watch(self) -> None:
        """Wait until a step takes longer, then show the running steps from then on."""
        while not self._over.wait(PATIENCE):
            with self._of_running:
                longest = min(self._running.values(), default=monotonic())
            with self._lock:
                if self._held is None and monotonic() - longest > PATIENCE:
                    self._start()
                    return

    def _start(self) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True, highlight=False, no_color=not Colours.allowed or None)
        self._live = Live(
            console=console,
            get_renderable=self._picture,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            refresh_per_second=8,
        )
        self._live.start()

    def _picture(self) -> Text:
        """Return the running steps as text."""
        from rich.text import Text

        with self._of_running:
            running, maps = list(self._running.items()), list(self._maps.items())
        now = monotonic()
        frame = FRAMES[int(now * 8) % len(FRAMES)]
        shown = Text(no_wrap=True, overflow="ellipsis")
        done = [(address, f"{ended}/{items}") for address, (ended, items) in maps[:MOST]]
        lasting = [(address, f"{now - since:.0f}s") for address, since in running[:MOST]]
        for address, state in (*done, *lasting):
            shown.append(f"{frame} {printable(address):{self._width}} ")
            shown.append(f"{'running':{STATUS_WIDTH}}", "cyan")
            shown.append(f" {state}\n")
        if len(running) > MOST:
            shown.append(f"  … and {len(running) - MOST} more\n")
        return shown
