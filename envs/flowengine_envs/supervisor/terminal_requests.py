"""What the engine asks of the terminal of a sandbox."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Optional

from flowengine_envs.supervisor.programs import Programs
from flowengine_envs.supervisor.terminal import Terminal
from flowengine_envs.supervisor.terminal_command import Gone, Plan, Task

Say = Callable[..., None]


class TerminalRequests:
    """Takes the requests that are for the terminal; there is one at most.

    Args:
        programs: Starts it.
        say: Called with the number of a request, a header, and bytes.
        begun: Called when a command begins.
    """

    def __init__(self, programs: Programs, say: Say, begun: Callable[[], None]) -> None:
        self._programs = programs
        self._say = say
        self._begun = begun
        self._terminal: Optional[Terminal] = None  # noqa: UP045
        self.requests = {
            "terminal": self._open,
            "type": self._type,
            "await": self._await,
            "send": self._send,
            "press": self._press,
            "interrupt": self._interrupt,
            "screen": self._screen,
        }

    @property
    def busy(self) -> bool:
        """Whether a command runs."""
        return self._terminal is not None and self._terminal.busy

    def stop(self, why: str) -> None:
        """End the command that runs."""
        if self._terminal is not None:
            self._terminal.stop(why)

    def forget(self, request: int) -> bool:
        """Withdraw a request; returns whether there was one."""
        return self._terminal is not None and self._terminal.forget(request)

    def _open(self, id: int, header: dict[str, Any], _payload: bytes) -> None:
        if self._terminal is not None:
            raise ValueError("there is a terminal already")
        secrets = [text.encode() for text in header["secrets"]]
        plan = Plan(header["env"], header["cwd"], header["limits"], header["folder"], secrets)

        def opened(failed: Optional[str]) -> None:  # noqa: UP045
            if failed is None:
                self._done(id)
            else:
                fault = {"kind": "failed", "message": failed}
                self._say(id, {"done": True, "fault": fault})

        self._terminal = Terminal(self._programs, plan, opened)

    def _type(self, id: int, header: dict[str, Any], payload: bytes) -> None:
        task = Task(payload, header["timeout"], header["grace"], header["kept"])
        self._its().run(id, task, header["wait"], partial(self._say, id))
        self._begun()

    def _await(self, id: int, header: dict[str, Any], _payload: bytes) -> None:
        self._its().wait(id, header["wait"], partial(self._say, id))

    def _send(self, id: int, _header: dict[str, Any], payload: bytes) -> None:
        self._its().send(payload, partial(self._done, id))

    def _press(self, id: int, header: dict[str, Any], _payload: bytes) -> None:
        self._its().press(header["keys"], lambda well: self._done(id, known=well))

    def _interrupt(self, id: int, _header: dict[str, Any], _payload: bytes) -> None:
        self._done(id, found=self._its().interrupt())

    def _screen(self, id: int, _header: dict[str, Any], _payload: bytes) -> None:
        self._its().screen(lambda text: self._say(id, {"done": True}, text))

    def _its(self) -> Terminal:
        if self._terminal is None or not self._terminal.alive:
            raise Gone
        return self._terminal

    def _done(self, id: int, **answer: Any) -> None:
        self._say(id, {"done": True, **answer})
