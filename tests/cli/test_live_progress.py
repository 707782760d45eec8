"""Progress on a terminal, and the thread that redraws it."""

from __future__ import annotations

import threading
from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import ConsoleRenderable, RenderHook

from flowengine.cli.driving import live_progress
from flowengine.cli.driving.live_progress import LiveProgress


class Drawing(RenderHook):
    """Redraws on another thread while a line is being written."""

    def __init__(self, progress: LiveProgress) -> None:
        live = progress._live
        assert live is not None
        self.thread = threading.Thread(target=live.refresh, daemon=True)
        self.ended = False
        live.console._render_hooks.insert(0, self)

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        if not self.thread.ident:
            self.thread.start()
            self.thread.join(30)
            self.ended = not self.thread.is_alive()
        return renderables


def test_what_runs_is_drawn_while_a_line_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both threads waited for each other, and the command hung."""
    monkeypatch.setattr(live_progress, "PATIENCE", 0.01)
    session: Any = SimpleNamespace(arguments=Namespace(quiet=False, verbose=False))
    with LiveProgress(session) as progress:
        progress.begin("slow", 0)
        assert progress._watcher is not None
        progress._watcher.join(60)
        drawing = Drawing(progress)
        progress.line("a line")
    assert drawing.ended
