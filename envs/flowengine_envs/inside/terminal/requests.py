"""The engine's requests for the terminals of a sandbox."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Optional

from flowengine_envs.inside.programs import ProgramStarter
from flowengine_envs.inside.terminal.command import Gone, TerminalPlan, TypedCommand
from flowengine_envs.inside.terminal.terminal import Terminal

Say = Callable[..., None]
NEEDED = ("tmux", "bash")


class TerminalRequests:
    """Handles the requests for terminals, which each request names by number.

    Args:
        programs: Starts terminals.
        say: Called with the number of a request, a header, and bytes.
        begins: Called before a command begins.
        full: Returns whether earlier answers are still unread by the engine.
    """

    def __init__(
        self,
        programs: ProgramStarter,
        say: Say,
        begins: Callable[[], None],
        full: Callable[[], bool],
    ) -> None:
        self._programs = programs
        self._say = say
        self._begins = begins
        self._full = full
        self._terminals: dict[int, Terminal] = {}
        self.requests = {
            "terminal": self._open,
            "type": self._type,
            "await": self._await,
            "send": self._send,
            "press": self._press,
            "interrupt": self._interrupt,
            "screen": self._screen,
            "resize": self._resize,
            "watch": self._watch,
            "hang_up": self._hang_up,
        }

    @property
    def busy(self) -> bool:
        """Whether a command runs."""
        return any(each.busy for each in self._terminals.values())

    @property
    def own(self) -> set[int]:
        """The terminals' processes that no command has started."""
        return {pid for each in self._terminals.values() for pid in each.own}

    def stop(self, why: str) -> None:
        """End the running commands."""
        for each in self._terminals.values():
            each.stop(why)

    def forget(self, request: int) -> bool:
        """Cancel a request. Return whether it existed."""
        return any(each.forget(request) for each in self._terminals.values())

    def _open(self, id: int, header: dict[str, Any], _payload: bytes) -> None:
        # Most supervisors have no terminal, and every import delays their start.
        from shutil import which

        number = int(header["terminal"])
        if number in self._terminals:
            raise ValueError(f"there is a terminal {number} already")
        secrets = [text.encode() for text in header["secrets"]]
        folder, live = header["folder"], header["live"]
        plan = TerminalPlan(header["env"], header["cwd"], header["limits"], folder, live, secrets)

        def opened(failed: Optional[str]) -> None:  # noqa: UP045
            if failed is None:
                self._done(id)
            else:
                fault = {"kind": "failed", "message": failed}
                self._say(id, {"done": True, "fault": fault})

        lacking = [each for each in NEEDED if not which(each, path=plan.env.get("PATH"))]
        if lacking:
            opened(f"there is no {' and no '.join(lacking)} in PATH")
        else:
            self._terminals[number] = Terminal(self._programs, plan, opened, self._full)

    def _type(self, id: int, header: dict[str, Any], payload: bytes) -> None:
        task = TypedCommand(
            payload, *(header[each] for each in ("timeout", "grace", "kept", "follow"))
        )
        terminal = self._its(header)
        self._begins()
        terminal.run(id, task, header["wait"], partial(self._say, id))

    def _await(self, id: int, header: dict[str, Any], _payload: bytes) -> None:
        self._its(header).wait(id, header["wait"], partial(self._say, id))

    def _send(self, id: int, header: dict[str, Any], payload: bytes) -> None:
        self._its(header).send(payload, partial(self._done, id))

    def _press(self, id: int, header: dict[str, Any], _payload: bytes) -> None:
        self._its(header).press(header["keys"], lambda well: self._done(id, known=well))

    def _interrupt(self, id: int, header: dict[str, Any], _payload: bytes) -> None:
        self._done(id, found=self._its(header).interrupt())

    def _screen(self, id: int, header: dict[str, Any], _payload: bytes) -> None:
        self._its(header).screen(lambda text: self._say(id, {"done": True}, text))

    def _resize(self, id: int, header: dict[str, Any], _payload: bytes) -> None:
        self._its(header).resize(header["columns"], header["rows"], partial(self._done, id))

    def _watch(self, id: int, header: dict[str, Any], _payload: bytes) -> None:
        self._its(header).watch(id, partial(self._say, id))

    def _hang_up(self, id: int, header: dict[str, Any], _payload: bytes) -> None:
        terminal = self._terminals.pop(int(header["terminal"]), None)
        if terminal is None:
            self._done(id)
        else:
            terminal.close(partial(self._done, id))

    def _its(self, header: dict[str, Any]) -> Terminal:
        terminal = self._terminals.get(int(header["terminal"]))
        if terminal is None or not terminal.alive:
            raise Gone
        return terminal

    def _done(self, id: int, **answer: Any) -> None:
        self._say(id, {"done": True, **answer})
