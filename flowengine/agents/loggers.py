"""`LoggerManager`: tells what agents do on the console, as JSON lines, and to sinks.

Whatever goes wrong with telling - a full disk, a sink that raises - costs one warning, and no run.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from os import PathLike
from typing import IO, TYPE_CHECKING, Any, ClassVar

from flowengine.agents.log_events import Kind, LogEvent, masked
from flowengine.printable import printable
from flowengine.secrets import mask_known

if TYPE_CHECKING:
    from rich.console import Console

VARIABLE = "FLOWENGINE_LOG_LEVEL"
LEVELS = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "OFF": 100}
Sink = Callable[[LogEvent], None]

_log = logging.getLogger("flowengine.agents")
_STYLES = {"tool_call": "cyan", "agent_handoff": "magenta", "retry": "yellow", "note": "dim"}
_LONGEST = 2000
"""Characters of the arguments on the console."""


class LoggerManager:
    """Tells what agents do.

    Args:
        level: `DEBUG`, `INFO`, `WARNING`, `ERROR` or `OFF`; default: `$FLOWENGINE_LOG_LEVEL`, else
            `INFO` for a console that is given, and `OFF` for standard error. Arguments are shown
            from `DEBUG` on.
        file: Where events are written as JSON lines, all of them.
        console: Where lines go: a stream, a Rich console, or None for nowhere; default: standard
            error.
        json_lines: Write JSON lines to the console, too.
    """

    _current: ClassVar[LoggerManager | None] = None

    def __init__(
        self,
        level: str | None = None,
        *,
        file: str | PathLike[str] | None = None,
        console: IO[str] | Console | bool = True,
        json_lines: bool = False,
    ) -> None:
        self._lock = threading.Lock()
        self._warned: set[str] = set()
        self.level = self._level(level, "OFF" if isinstance(console, bool) else "INFO")
        self.file = None if file is None else os.fspath(file)
        self.sinks: list[Sink] = []
        """Called with every event, whatever the level."""
        self._stream = console
        self._json_lines = json_lines
        self._console: Console | None = None

    @classmethod
    def get_logger(cls) -> LoggerManager:
        """Return the one that runs use unless they are given another."""
        if cls._current is None:
            cls._current = cls()
        return cls._current

    @classmethod
    def set_logger(cls, logger: LoggerManager | None) -> None:
        """Set the one that runs use from now on.

        Args:
            logger: The logger; None: a new one by the variables of the process.
        """
        cls._current = logger

    # Events

    def log_tool_call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        status: str = "started",
        **place: str,
    ) -> None:
        """Tell of a call of a tool.

        Args:
            tool: Its name.
            arguments: What it is given; shown at `DEBUG`.
            status: How the call stands: `started`, `succeeded`, `failed`; `rejected`, `expired`,
                `refused`: it was not made.
            **place: `agent`, `execution`, `step`.
        """
        data = {"tool": tool, "arguments": dict(arguments or {}), "status": status}
        self.log("tool_call", f"tool {tool} {status}", data, **place)

    def log_agent_handoff(self, source: str, target: str, **place: str) -> None:
        """Tell that an agent handed over to another.

        Args:
            source: Name of the agent that was active.
            target: Name of the one that is now.
            **place: `execution`, `step`.
        """
        text = f"hands over to {target}"
        self.log("agent_handoff", text, {"to": target}, agent=source, **place)

    def log_llm_call(
        self,
        model: str,
        usage: Mapping[str, Any] | None = None,
        *,
        instead_of: str = "",
        **place: str,
    ) -> None:
        """Tell of a call of a model.

        Args:
            model: `provider/model`.
            usage: What it used: `input_tokens`, `output_tokens`, `cost_usd`, `estimated`.
            instead_of: The agent's own model, where a fallback has answered.
            **place: `agent`, `execution`, `step`.
        """
        used = dict(usage or {})
        counts = f"{used.get('input_tokens', 0)} + {used.get('output_tokens', 0)} tokens"
        data = {"model": model, **used}
        if instead_of:
            data["instead_of"] = instead_of
        who = f"{model} instead of {instead_of}" if instead_of else model
        self.log("llm_call", f"{who}: {counts}", data, **place)

    def log_retry(self, attempt: int, error: str, **place: str) -> None:
        """Tell that a call of a model failed, and is made again.

        Args:
            attempt: Number of the attempt that failed.
            error: Type and message.
            **place: `agent`, `execution`, `step`.
        """
        data = {"attempt": attempt, "error": error}
        self.log("retry", f"attempt {attempt} failed: {error}", data, level="WARNING", **place)

    def log_termination(self, termination: str, reason: str = "", **place: str) -> None:
        """Tell how a run ended.

        Args:
            termination: As in `Response.termination`.
            reason: Why, if it did not end as `resolved`.
            **place: `agent`, `execution`, `step`.
        """
        text = f"ended: {termination}" + (f", {reason}" if reason else "")
        data = {"termination": termination, "reason": reason}
        self.log("termination", text, data, **place)

    def log(
        self,
        event: Kind,
        text: str,
        data: Mapping[str, Any] | None = None,
        *,
        level: str = "INFO",
        **place: str,
    ) -> None:
        """Tell of anything.

        Args:
            event: What kind of event it is.
            text: In words.
            data: Its fields.
            level: How much it matters.
            **place: `agent`, `execution`, `step`.
        """
        try:
            told = LogEvent(event, text, data=data or {}, level=LEVELS[level], **place)
            told = masked(told, mask_known)
        except Exception as error:
            self._warn("an event", error)
            return
        with self._lock:
            if self.file is not None:
                self._guarded(f"the log file {self.file}", self._append, told)
            if self._stream is not False and told.level >= self.level:
                self._guarded("the console", self._show, told)
            for sink in list(self.sinks):
                self._guarded(f"the sink {sink!r}", sink, told)

    # Where they go

    def _guarded(self, what: str, tell: Sink, event: LogEvent) -> None:
        try:
            tell(event)
        except Exception as error:
            self._warn(what, error)

    def _warn(self, what: str, error: Exception) -> None:
        """Warn once of each place that takes no events."""
        if what not in self._warned:
            self._warned.add(what)
            _log.warning("%s takes no log events: %s: %s", what, type(error).__name__, error)

    def _append(self, event: LogEvent) -> None:
        assert self.file is not None
        with open(self.file, "a", encoding="utf-8") as file:
            file.write(_json(event) + "\n")

    def _show(self, event: LogEvent) -> None:
        console = self._open_console()
        if self._json_lines:
            console.file.write(_json(event) + "\n")
            console.file.flush()
            return
        from rich.text import Text

        line = Text(f"{event.time[11:19]} ", style="dim")
        if event.agent:
            line.append(f"{printable(event.agent)} ", style="bold")
        style = "red" if event.level >= LEVELS["ERROR"] else _STYLES.get(event.event, "")
        line.append(printable(event.text), style=style)
        if self.level <= LEVELS["DEBUG"] and event.data.get("arguments"):
            said = json.dumps(event.data["arguments"], ensure_ascii=False)
            line.append(f" {printable(said[:_LONGEST])}", style="dim")
        console.print(line, soft_wrap=True)

    def _open_console(self) -> Console:
        if self._console is None:
            from rich.console import Console

            given = self._stream
            stream = sys.stderr if isinstance(given, bool) else given
            self._console = (
                stream
                if isinstance(stream, Console)
                else Console(file=stream, highlight=False, markup=False, emoji=False)
            )
        return self._console

    def _level(self, given: str | None, default: str) -> int:
        said = given or os.environ.get(VARIABLE) or default
        level = LEVELS.get(said.strip().upper())
        if level is None:
            where = "level" if given else VARIABLE
            known = ", ".join(LEVELS)
            _log.warning("%s is %r: say one of %s; INFO is taken", where, said, known)
            return LEVELS["INFO"]
        return level


def _json(event: LogEvent) -> str:
    return json.dumps(event.plain(), default=str)
