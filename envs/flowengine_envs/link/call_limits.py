"""Limits of each call: its time and kept output, and the messages about exceeded limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowengine.sdk import LimitExceeded, Plain, ValidationError
from flowengine.sdk.environments import Sandbox
from flowengine.sdk.environments.models import ResourceLimits
from flowengine.sdk.texts.sizes import size_text
from flowengine_envs.link import plain
from flowengine_envs.workspaces.free_space import SHORT

OUTPUT = 100_000
"""Bytes kept of each stream of a call, if the spec sets no limit."""
FILE = 256 * 1024 * 1024
"""Maximum bytes of output in a file of the workspace."""
MEMORY = 2 * 1024**3
PROCESSES = 512
"""Maximum number of processes, if the spec sets none and it can be enforced."""
TAKEN_OUT = 1024**3
"""Bytes of files that a step may keep from a workspace, if the spec sets no `limits.disk`."""
DISK = 10 * 1024**3
"""Bytes that a file may have, if the spec sets no limit."""
DISK_HELD = "size of each file (RLIMIT_FSIZE), and programs end below a reserve of free space"
TIMEOUT = 30.0
"""Seconds of a call, if the spec and the caller set no timeout."""
UNBOUNDED = float("inf")
"""As a timeout: bounded only by the spec. Steps have their own `timeout`."""
LARGEST_CODE = 16 * 1024 * 1024
"""Maximum characters of code."""
GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL."""


def asked(timeout: float | None) -> float:
    """Return the timeout of a step's call: that of its command, or else unbounded."""
    return UNBOUNDED if timeout is None else timeout


class Counted:
    """Kernel events of a sandbox counted since a call began.

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
        """Whether a process could not be started because the limit was reached."""
        return self._sandbox.refused_processes() > self._refused


class CallLimits:
    """The limits of an environment that concern its calls.

    Args:
        name: Names the environment in messages.
        limits: The limits of the spec.
    """

    def __init__(self, name: str, limits: ResourceLimits) -> None:
        self._name = name
        self._limits = limits
        self._spent = 0.0

    @property
    def kept(self) -> int:
        """Bytes kept of each stream of a call."""
        return self._limits.output or OUTPUT

    @property
    def file(self) -> int:
        """Maximum bytes of a stream in a file, if it exceeds the kept part."""
        return min(FILE, self.disk)

    @property
    def taken_out(self) -> tuple[int, str]:
        """Bytes of files that a step may keep, including holes, and the setting for that."""
        if self._limits.disk is None:
            return TAKEN_OUT, f"{size_text(TAKEN_OUT)}, the default where limits.disk is not set"
        return self._limits.disk, f"{size_text(self._limits.disk)} (limits.disk)"

    def seconds(self, timeout: float | None) -> float | None:
        """Return how long a call may take, or None if unlimited.

        Args:
            timeout: Seconds that the caller requests.

        Returns:
            Seconds.

        Raises:
            ValidationError: The timeout is not a positive number.
            LimitExceeded: The total time of all calls is used up.
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
        """Add the time that a call has taken."""
        self._spent += seconds

    def is_own(self, timeout: float | None) -> bool:
        """Return whether the bound of a call differs from its caller's request.

        Args:
            timeout: Seconds that the caller requested.
        """
        return timeout is None or self._bound(timeout)[0] < timeout

    def too_long(self, timeout: float | None) -> str:
        """Return a message that a call took too long.

        Args:
            timeout: Seconds that the caller requested.

        Returns:
            The message.
        """
        seconds, name = self._bound(timeout)
        return f"it took longer than {seconds:g} s ({name}) and was stopped"

    def stopped(self, why: str | None, timeout: float | None) -> str:
        """Return a line about a step's command that was stopped for its time, or an empty string.

        Args:
            why: Why it was stopped.
            timeout: Seconds that the command requested.
        """
        return f"{self.too_long(asked(timeout))}\n" if why == "timeout" else ""

    def _bound(self, timeout: float | None) -> tuple[float, str]:
        """Return how long a call may take, and the setting that limits it."""
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
        """Return a line about each limit that a call has reached.

        Args:
            killed: Whether the memory limit was reached.
            refused: Whether the process limit was reached.
            stopped: Why the call was stopped.
            timeout: Seconds that its caller requested, if it was stopped for its time.
            file: Whether the file size limit was reached.
            left_full: Whether processes left by earlier calls were ended because of the disk.
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
        """Return a message that the memory limit was reached."""
        return f"out of memory: limits.memory is {size_text(self._limits.memory or MEMORY)}"

    def too_many_processes(self) -> str:
        """Return a message that the process limit was reached."""
        limit = self._limits.processes or PROCESSES
        return f"a process could not be started: limits.processes is {limit}"

    def file_too_large(self) -> str:
        """Return a message that the file size limit was reached."""
        return f"a file reached the size limit: limits.disk is {size_text(self.disk)}"

    @property
    def disk(self) -> int:
        """Bytes that a file may have."""
        return self._limits.disk or DISK

    def disk_full(self) -> str:
        """Return a message that the reserve of free space was reached."""
        return SHORT

    def left_disk_full(self) -> str:
        """Return a message that processes left by earlier calls were ended for the disk."""
        return f"{self.disk_full()}: processes left by earlier calls were ended"

    def encoded_inputs(self, code: Any, inputs: Mapping[str, Plain] | None) -> Any:
        """Return the inputs of code in the form sent into a sandbox.

        Raises:
            ValidationError: The code is not text or is too long, or the inputs are not plain data.
        """
        if not isinstance(code, str):
            raise ValidationError(f"{self._name}: code must be text, not {type(code).__name__}")
        if len(code) > LARGEST_CODE:
            raise ValidationError(
                f"{self._name}: code has {len(code)} characters, "
                f"at most {LARGEST_CODE} are allowed: "
                "put it into a file of the workspace"
            )
        try:
            return plain.encode(dict(inputs or {}))
        except TypeError as error:
            raise ValidationError(f"{self._name}: inputs: {error}") from None

    def check_words(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Refuse an invalid command with `ValidationError`."""
        if not argv or not all(isinstance(word, str) for word in argv):
            raise ValidationError(
                f"{self._name}: a command must be text or a list of texts, not {argv!r}"
            )
        for text in (*argv, *env, *env.values()):
            if "\0" in text:
                raise ValidationError(
                    f"{self._name}: a command or variable contains a null character: pass bytes "
                    "in a file or by stdin"
                )
