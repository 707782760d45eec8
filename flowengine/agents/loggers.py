"""`LoggerManager`, which reports the work of agents on the console, as JSON lines and to functions.

A failing destination, such as a full disk or a function that raises, causes one warning. No run
fails because of it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from os import PathLike
from typing import IO, Any, ClassVar, Literal

from flowengine.kernel.graph.compiled import Plain
from flowengine.sdk.python.argument_checks import check_kinds, check_methods
from flowengine.sdk.python.user_code import UsersCode
from flowengine.sdk.texts.exception_text import describe
from flowengine.sdk.texts.visible_text import printable
from flowengine.secrets import mask_known

Kind = Literal[
    "tool_call", "agent_handoff", "llm_call", "retry", "termination", "context_clash", "note"
]

_SECRET_NAMES = re.compile(
    r"(authorization|cookie|password|passwd|secret|api[-_]?key|access[-_]?key|private[-_]?key|"
    r"(^|[-_])token$|credential)",
    re.IGNORECASE,
)
MASK = "***"
VARIABLE = "FLOWENGINE_LOG_LEVEL"
LEVELS = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "OFF": 100}

_log = logging.getLogger("flowengine.agents")
_LONGEST = 2000
"""Maximum characters of arguments on the console."""


@dataclass(frozen=True)
class LogEvent:
    """One event."""

    event: Kind
    text: str
    """A description without arguments."""
    agent: str = ""
    execution: str = ""
    step: str = ""
    """Address of the activation."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """`tool_call`: tool, arguments, status. `agent_handoff`: to. `llm_call`: model, input_tokens,
    output_tokens, cost_usd, estimated. `retry`: attempt, error. `termination`: termination, reason.
    `context_clash`: key, calls."""
    level: int = 20
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))


Sink = Callable[[LogEvent], None]


class LoggerManager:
    """Reports the work of agents.

    Args:
        level: `DEBUG`, `INFO`, `WARNING`, `ERROR` or `OFF`. Default: `$FLOWENGINE_LOG_LEVEL`,
            otherwise `INFO` for an explicit console stream and `OFF` for standard error. At
            `DEBUG`, arguments are shown.
        file: File to which all events are appended as JSON lines.
        console: The output stream. True: standard error. False: none.
        json_lines: Whether the console receives JSON lines, too.
    """

    _current: ClassVar[LoggerManager | None] = None

    def __init__(
        self,
        level: str | None = None,
        *,
        file: str | PathLike[str] | None = None,
        console: IO[str] | bool = True,
        json_lines: bool = False,
    ) -> None:
        check_kinds(str, level=level)
        check_kinds(PathLike, file=file)
        if not isinstance(console, bool):
            check_methods("console", console, "write")
        self._lock = threading.Lock()
        self._warned: set[str] = set()
        self.level = _level(level, "OFF" if isinstance(console, bool) else "INFO")
        self.file = None if file is None else os.fspath(file)
        self.sinks: list[Sink] = []
        """Functions that receive every event of any level."""
        self._console = console
        self._json_lines = json_lines

    @classmethod
    def get_logger(cls) -> LoggerManager:
        """Return the logger that runs use by default."""
        if cls._current is None:
            cls._current = cls()
        return cls._current

    @classmethod
    def set_logger(cls, logger: LoggerManager | None) -> None:
        """Set the logger that runs use by default.

        Args:
            logger: The logger. None: a new one, configured by environment variables.
        """
        cls._current = logger

    def log(self, event: LogEvent) -> None:
        """Report an event, with its secrets masked.

        Args:
            event: The event.
        """
        try:
            event = masked(event, mask_known)
        except Exception as error:
            self._warn("an event", error)
            return
        with self._lock:
            for name, write in self._destinations(event):
                try:
                    with UsersCode():
                        write(event)
                except Exception as error:
                    self._warn(name, error)

    def _destinations(self, event: LogEvent) -> Iterator[tuple[str, Sink]]:
        if self.file is not None:
            yield f"the log file {self.file}", self._append
        if self._console is not False and event.level >= self.level:
            yield "the console", self._show
        for sink in [*self.sinks]:
            yield f"the sink {sink!r}", sink

    def _warn(self, what: str, error: Exception) -> None:
        """Warn once about each failing destination."""
        if what not in self._warned:
            self._warned.add(what)
            _log.warning("%s takes no log events: %s", what, describe(error))

    def _append(self, event: LogEvent) -> None:
        assert self.file is not None
        with open(self.file, "a", encoding="utf-8") as file:
            file.write(_json(event) + "\n")

    def _show(self, event: LogEvent) -> None:
        stream = sys.stderr if isinstance(self._console, bool) else self._console
        stream.write((_json(event) if self._json_lines else self._line(event)) + "\n")
        stream.flush()

    def _line(self, event: LogEvent) -> str:
        parts = [event.time[11:19], event.agent, event.text]
        if self.level <= LEVELS["DEBUG"] and event.data.get("arguments"):
            parts.append(json.dumps(event.data["arguments"], ensure_ascii=False)[:_LONGEST])
        return " ".join(printable(part) for part in parts if part)


def _level(given: str | None, default: str) -> int:
    name = given or os.environ.get(VARIABLE) or default
    level = LEVELS.get(name.strip().upper())
    if level is None:
        where, known = "level" if given else VARIABLE, ", ".join(LEVELS)
        _log.warning("%s is %r, which is not one of %s. INFO is used", where, name, known)
        return LEVELS["INFO"]
    return level


def _json(event: LogEvent) -> str:
    return json.dumps(asdict(event), default=str)


def masked(event: LogEvent, mask: Callable[[Plain], Plain]) -> LogEvent:
    """Return an event without secrets.

    Args:
        event: The event.
        mask: Replaces the values of secrets that this process has read.
    """
    clean = mask([event.text, _plain(event.data)])
    return replace(event, text=clean[0], data=clean[1])


def _plain(value: Any, depth: int = 20) -> Any:
    """Return a value as JSON data, masking everything under the name of a secret."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if depth and isinstance(value, Mapping):
        return {
            _text(key): MASK if _SECRET_NAMES.search(_text(key)) else _plain(entry, depth - 1)
            for key, entry in value.items()
        }
    if depth and isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, depth - 1) for item in value]
    return f"<{type(value).__name__}>"  # an object: its repr could contain a secret


def _text(key: Any) -> str:
    return key if isinstance(key, str) else f"<{type(key).__name__}>"
