"""Commands sent to tmux, and when."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from flowengine_envs.inside.keepers import Launch
from flowengine_envs.inside.loop import EventLoop, close_quietly
from flowengine_envs.inside.programs import ProgramStarter
from flowengine_envs.inside.terminal.tmux import Tmux


class Started:
    """A fake of the program starter. The test acts as tmux at the other ends of the pipes."""

    led: Tmux

    def __init__(self) -> None:
        self.loop = EventLoop()

    def start(self, task: Launch, fds: Mapping[int, int], ended: Callable[..., None]) -> Any:
        self.source, self.sink = os.dup(fds[0]), os.dup(fds[1])
        return None

    def told(self) -> bytes:
        ready, _, _ = select.select([self.source], [], [], 0)
        return os.read(self.source, 1 << 16) if ready else b""

    def say(self, line: bytes) -> None:
        os.write(self.sink, line)
        self.led._read()


def test_tmux_is_told_nothing_before_it_has_a_window(tmp_path: Path) -> None:
    """tmux reads its input at once: a setting that arrived too early made tmux 3.3 exit."""
    tmux = Started()
    answers: list[bytes] = []
    ended: list[Any] = []
    led = tmux.led = Tmux(
        cast(ProgramStarter, tmux),
        str(tmp_path),
        {},
        "/",
        {},
        output=ended.append,
        ended=lambda *words: ended.append(words),
    )
    led.do("list-windows", reply=lambda done, text: answers.append(text))

    tmux.say(b"%begin 1 1 0\n")
    assert tmux.told() == b""
    tmux.say(b"%end 1 1 0\n")

    assert tmux.told() == b"set-option -w -t term window-size manual\nlist-windows\n"
    tmux.say(b"%begin 1 2 1\n%end 1 2 1\n%begin 1 3 1\none\n%end 1 3 1\n")
    assert (answers, ended) == ([b"one"], [])
    for fd in (tmux.source, tmux.sink, led._feed, led._reader):  # it closes them with its tmux only
        close_quietly(fd)
    tmux.loop.close()
