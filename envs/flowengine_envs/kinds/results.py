"""Results of calls: the outcome of code, and of a command."""

from __future__ import annotations

import codecs
import errno
import logging
import signal
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

OnOutput = Callable[[str, str], None]
"""Called during a call with `stdout` or `stderr` and the next piece of output."""


LimitMet = Literal["time", "memory", "disk"]
_REFUSED_SIZE = (
    f"[Errno {errno.EFBIG}] ",  # Python
    "EFBIG: ",  # Node
    "SIGXFSZ: file size limit exceeded",  # Go
    "File too large (os error 27)",  # Rust
    "java.io.IOException: File too large",
)
"""Texts of errors, by interpreter or language. The plain "File too large" may be anything."""
_CONTINUATION = bytes(range(0x80, 0xC0))
"""Bytes of a character in UTF-8 after its first one."""
_SEARCHED = 4000


def limit_met(
    stopped: str | None, *, out_of_memory: bool, file_is_full: bool = False
) -> LimitMet | None:
    """Return the limit that made a call fail.

    Args:
        stopped: Why it was stopped, if it was.
        out_of_memory: Whether a process was killed because memory was at its limit.
        file_is_full: Whether it failed because a file was at its maximum size.
    """
    if stopped == "timeout":
        return "time"
    if stopped == "disk" or (file_is_full and stopped is None):
        return "disk"
    return "memory" if out_of_memory and stopped is None else None


def names_refused_size(exit_code: int | None, output: str) -> bool:
    """Return whether a command reports that the kernel refused to extend a file.

    The kernel ends most programs with a signal. Interpreters ignore it and raise an error, whose
    text is that of no other error.

    Args:
        exit_code: As in shells, 128 plus the signal number if a signal ended it.
        output: The text with its errors. Its end is searched.
    """
    end = output[-_SEARCHED:]
    return exit_code == 128 + signal.SIGXFSZ or any(text in end for text in _REFUSED_SIZE)


def in_file(place: str) -> str:
    """Return the part of a truncated output that names the place of the whole."""
    return f"all is in {place}"


class CodeError(NamedTuple):
    """The error that ended the code."""

    type: str
    """The exception's name, or `Timeout`, `Cancelled`, `Crashed` or `LimitExceeded`."""
    message: str
    line: int | None = None
    """Line of the code."""
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class CodeResult(NamedTuple):
    """The result of code."""

    stdout: str
    stderr: str
    """Beginning and end, with a line between them that reports how much is missing."""
    value: Any
    """`_result`, the last expression or the return value if that is plain data, else None."""
    text: str
    """The value as text, also if it is not plain data. Empty if there is none."""
    error: CodeError | None
    exit_code: int
    """0, or 1 after an error. If the process ended itself, its code, or 128 plus the signal."""
    duration: float
    """Seconds."""
    truncated: bool = False
    """Whether part of the output is only in a file."""
    stdout_file: str | None = None
    stderr_file: str | None = None
    """Path in the sandbox of the complete output, if it is too large for the result."""
    files: Sequence[str] = ()
    """Files of the workspace that were created or changed, as relative paths."""
    left: Sequence[str] = ()
    """Processes that still run although the call was ended."""
    call: int = 0
    """Number of the call."""
    namespace: int = 0
    """Number of the namespace it ran in. Names set under a lower number are lost."""
    namespace_lost: bool = False
    """Whether the call ended the process, so that all names are lost."""
    limit: LimitMet | None = None
    """The limit of the environment that ended the code."""


class CommandResult(NamedTuple):
    """The result of a command."""

    exit_code: int
    """As in shells, 128 plus the signal number if a signal ended it."""
    stdout: str
    stderr: str
    """Beginning and end, with a line between them that reports how much is missing."""
    timed_out: bool
    truncated: bool
    """Whether part of the output is only in a file."""
    duration: float
    """Seconds."""
    signal: int | None = None
    stopped: str | None = None
    """`timeout`, `cancelled` or `disk`, if it was stopped."""
    stdout_file: str | None = None
    stderr_file: str | None = None
    """Path in the sandbox of the complete output, if it is too large for the result."""
    limit: LimitMet | None = None
    """The limit of the environment that made it fail."""
    outputs: Sequence[str] = ()
    """Of kind `docker`: files of the workspace that it created or changed, as relative paths."""
    image: str = ""
    """Of kind `docker`: digest of the image that ran."""


class OutputStreams:
    """Collects the output of one call as it arrives.

    Args:
        on_output: Called with each piece of text.
    """

    def __init__(self, on_output: OnOutput | None = None) -> None:
        self._on_output = on_output
        self._heads = {"stdout": bytearray(), "stderr": bytearray()}
        self._tails = {"stdout": b"", "stderr": b""}
        self._decoders = {
            name: codecs.getincrementaldecoder("utf-8")("replace") for name in self._heads
        }

    def feed(self, header: dict[str, Any], payload: bytes) -> None:
        """Process a piece of output that a supervisor sends during the call."""
        name = header.get("stream")
        if name not in self._heads:
            return
        if header.get("tail"):
            self._tails[name] = payload
        else:
            self._heads[name] += payload
        if self._on_output is not None:
            text = self._decoders[name].decode(payload)
            if text:
                self._notify(name, text)

    def _notify(self, name: str, text: str) -> None:
        """Call the listener. A listener that raises is not called again."""
        assert self._on_output is not None
        try:
            self._on_output(name, text)
        except Exception:
            self._on_output = None
            logging.getLogger("flowengine.environments").exception("on_output failed")

    def text(self, name: str, captured: dict[str, Any]) -> str:
        """Return a stream as text. Invalid bytes are replaced visibly.

        Args:
            name: `stdout` or `stderr`.
            captured: Its description in the final answer.
        """
        head, tail = bytes(self._heads[name]), self._tails[name]
        left_out = captured.get("left_out", 0)
        if not left_out:
            return (head + tail).decode(errors="replace")
        # Characters that are cut apart are left out.
        whole = codecs.getincrementaldecoder("utf-8")("replace")
        missing = f" except {captured['missing']} bytes" if captured["missing"] else ""
        return (
            f"{whole.decode(head)}\n"
            f"... {left_out} bytes left out (limits.output), "
            f"{in_file(captured['file'])}{missing} ...\n"
            f"{tail.lstrip(_CONTINUATION).decode(errors='replace')}"
        )


def last_line(result: CommandResult) -> str:
    """Return the last line that a failed program printed, or how it ended."""
    lines = result.stderr.strip().splitlines()
    return lines[-1][:500] if lines else f"it ended with exit code {result.exit_code}"
