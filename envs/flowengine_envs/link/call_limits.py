"""What holds for each call: its time, how much of its output is kept, what a breach is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flowengine.sdk import LimitExceeded, Plain, ValidationError
from flowengine_envs.link import plain
from flowengine_envs.workspaces import disk_usage

if TYPE_CHECKING:
    from flowengine.sdk.environments import Sandbox
    from flowengine.sdk.models import Limits

OUTPUT = 100_000
"""Bytes kept of each stream of a call, where the spec says nothing."""
FILE = 256 * 1024 * 1024
"""Bytes of output that a file of the workspace may have."""
MEMORY = 2 * 1024**3
PROCESSES = 512
"""What a sandbox may have, where the spec says nothing and it can be held."""
TAKEN_OUT = 1024**3
"""Bytes of files that a step keeps from a workspace, where the spec sets no `limits.disk`."""
DISK = 10 * 1024**3
"""Bytes that a workspace may take, where the spec says nothing."""
TIMEOUT = 30.0
"""Seconds of a call, where neither the spec nor the caller says anything."""
UNBOUNDED = float("inf")
"""As a timeout: no bound but the spec's. Steps have a `timeout` of their own."""
LARGEST_CODE = 16 * 1024 * 1024
"""Characters of code."""
GRACE = 2.0
"""Seconds between being told to end and being killed."""


def asked(timeout: float | None) -> float:
    """Return the timeout of a step's call: what its command asks for, else no bound of its own."""
    return UNBOUNDED if timeout is None else timeout


class Counted:
    """What a sandbox's kernel has counted since a call began.

    Args:
        sandbox: The sandbox.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._kills = sandbox.memory_kills()
        self._refused = sandbox.refused_processes()

    @property
    def killed(self) -> bool:
        """Whether a process was killed because memory was at its limit."""
        return self._sandbox.memory_kills() > self._kills

    @property
    def refused(self) -> bool:
        """Whether a process could not be started because there were as many as may be."""
        return self._sandbox.refused_processes() > self._refused


class CallLimits:
    """The limits of an environment, as far as they are about its calls.

    Args:
        name: Names the environment in messages.
        limits: What the spec says.
    """

    def __init__(self, name: str, limits: Limits) -> None:
        self._name = name
        self._limits = limits
        self._spent = 0.0

    @property
    def kept(self) -> int:
        """Bytes kept of each stream of a call."""
        return self._limits.output or OUTPUT

    @property
    def file(self) -> int:
        """Bytes of a stream that go to a file, where it is more than is kept.

        A quarter of what the workspace may take: the output of a call alone does not fill that.
        """
        return min(FILE, self.disk // 4)

    @property
    def taken_out(self) -> tuple[int, str]:
        """Bytes of files that a step may keep, holes included, and what says so."""
        if self._limits.disk is None:
            return TAKEN_OUT, f"{_size(TAKEN_OUT)}, the default where limits.disk is not set"
        return self._limits.disk, f"{_size(self._limits.disk)} (limits.disk)"

    def seconds(self, timeout: float | None) -> float | None:
        """Return how long a call may take; None: as long as it likes.

        Args:
            timeout: Seconds that the caller asks for.

        Returns:
            Seconds.

        Raises:
            ValidationError: The timeout is no positive number.
            LimitExceeded: The time of all calls together is used up.
        """
        if timeout is not None and not timeout > 0:
            raise ValidationError(f"{self._name}: timeout must be a positive number, not {timeout}")
        limits = self._limits
        seconds = limits.time or TIMEOUT if timeout is None else timeout
        if limits.time is not None:
            seconds = min(seconds, limits.time)
        total = limits.total_time
        if total is not None:
            if self._spent >= total:
                raise LimitExceeded(
                    f"{self._name}: its calls have taken {self._spent:.1f} s, "
                    f"total_time is {total:g} s",
                    data={"limit": "total_time", "value": total},
                )
            seconds = min(seconds, total - self._spent)
        return None if seconds == UNBOUNDED else seconds

    def spend(self, seconds: float) -> None:
        """Count the time that a call has taken."""
        self._spent += seconds

    def is_own(self, timeout: float | None) -> bool:
        """Return whether the bound of a call was not the one that its caller asked for.

        Args:
            timeout: Seconds that the caller asked for.
        """
        return timeout is None or self._bound(timeout)[0] < timeout

    def too_long(self, timeout: float | None) -> str:
        """Say that a call took longer than it may.

        Args:
            timeout: Seconds that the caller asked for.

        Returns:
            The words.
        """
        seconds, name = self._bound(timeout)
        return f"it took longer than {seconds:g} s ({name}) and was stopped"

    def stopped(self, why: str | None, timeout: float | None) -> str:
        """Return a line about a step's command that was stopped for its time; empty: it was not.

        Args:
            why: Why it was stopped.
            timeout: Seconds that the command asked for.
        """
        return f"{self.too_long(asked(timeout))}\n" if why == "timeout" else ""

    def _bound(self, timeout: float | None) -> tuple[float, str]:
        """Return how long a call may take, and what says so."""
        limits = self._limits
        bounds = [(timeout, "its timeout"), (limits.time, "limits.time")]
        bounds.append((limits.total_time, "limits.total_time, for all calls together"))
        given = [(value, name) for value, name in bounds if value is not None]
        if timeout is None and limits.time is None:
            given.append((TIMEOUT, "the default of limits.time"))
        return min(given)

    def met(
        self,
        *,
        killed: bool,
        refused: bool,
        stopped: str | None = None,
        timeout: float | None = None,
        file: bool = False,
        left_full: bool = False,
    ) -> list[str]:
        """Return a line about each limit that a call has met.

        Args:
            killed: Whether memory was at its limit.
            refused: Whether processes were.
            stopped: Why the call was stopped.
            timeout: Seconds that its caller asked for, if it was stopped for its time.
            file: Whether a file was as large as one may be.
            left_full: Whether what earlier calls had left was ended for the disk.
        """
        lines = {
            self.out_of_memory: killed,
            self.too_many_processes: refused,
            self.disk_full: stopped == "disk",
            self.file_too_large: file,
            self.left_disk_full: left_full,
        }
        met = [line() for line, holds in lines.items() if holds]
        return [*met, self.too_long(timeout)] if stopped == "timeout" else met

    def out_of_memory(self) -> str:
        """Say that memory was at its limit."""
        return f"out of memory: limits.memory is {_size(self._limits.memory or MEMORY)}"

    def too_many_processes(self) -> str:
        """Say that there were as many processes as may be."""
        limit = self._limits.processes or PROCESSES
        return f"a process could not be started: limits.processes is {limit}"

    def file_too_large(self) -> str:
        """Say that a file had as many bytes as one may have."""
        return f"a file reached the size limit: limits.disk is {_size(self.disk)}"

    @property
    def disk(self) -> int:
        """Bytes that the workspace may take."""
        return self._limits.disk or DISK

    def disk_full(self) -> str:
        """Say that the workspace was at its limit."""
        most = disk_usage.most_entries(self.disk)
        quota = f"(limits.disk) is {_size(self.disk)} and {most} files"
        return f"the workspace is full: its quota {quota}"

    def left_disk_full(self) -> str:
        """Say that what earlier calls had left was ended for it."""
        return f"{self.disk_full()}; processes left by earlier calls were ended"

    def encoded_inputs(self, code: Any, inputs: Mapping[str, Plain] | None) -> Any:
        """Return the inputs of code as they go into a sandbox.

        Raises:
            ValidationError: The code is no text or too long, or the inputs are no plain data.
        """
        if not isinstance(code, str):
            raise ValidationError(f"{self._name}: code must be text, not {type(code).__name__}")
        if len(code) > LARGEST_CODE:
            raise ValidationError(
                f"{self._name}: code has {len(code)} characters, "
                f"at most {LARGEST_CODE} are allowed; "
                "put it into a file of the workspace"
            )
        try:
            return plain.encode(dict(inputs or {}))
        except TypeError as error:
            raise ValidationError(f"{self._name}: inputs: {error}") from None

    def check_words(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Refuse what is no command, with `ValidationError`."""
        if not argv or not all(isinstance(word, str) for word in argv):
            raise ValidationError(
                f"{self._name}: a command must be text or a list of texts, not {argv!r}"
            )
        for text in (*argv, *env, *env.values()):
            if "\0" in text:
                raise ValidationError(
                    f"{self._name}: a command or variable contains a null character; pass bytes "
                    "in a file or by stdin"
                )


def _size(count: int) -> str:
    for unit, bytes_ in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= bytes_ and count % bytes_ == 0:
            return f"{count // bytes_} {unit}"
    return f"{count} bytes"
