"""Carrying out commands, independent of the driver.

This module does not depend on where the journal is, which process may write it, or how messages
arrive. See `driver.py` for executions whose journals this process writes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeAlias

from flowengine.engines.executions.execution import Preview
from flowengine.kernel.commands import Consult, Notify, ReleaseRegion, Run, Send, Stop

if TYPE_CHECKING:
    from flowengine.engines.executions.execution import Execution, Told

Notice: TypeAlias = Consult | Preview | Send | ReleaseRegion | Notify
"""Commands without an outcome that the kernel waits for, or whose outcome is a separate event."""


class Carrier(ABC):
    """Carries out the commands of executions, after their events are recorded."""

    @abstractmethod
    def begin_attempt(self, execution: Execution, run: Run) -> bool:
        """Begin an attempt, whose outcome is an event.

        Returns:
            Whether to continue with the next command now.
        """

    @abstractmethod
    def stop(self, execution: Execution, stop: Stop) -> None:
        """Stop an attempt."""

    @abstractmethod
    def alarm(self, execution: Execution) -> None:
        """Have the next timer of an execution fire when it is due."""

    @abstractmethod
    def tell(self, execution: Execution, command: Notice) -> None:
        """Notify the receivers of a command: a question, a message, the end of a region."""

    @abstractmethod
    def report(self, execution: Execution, told: Told) -> None:
        """Report recorded events to subscribers."""

    def carry_out(self, execution: Execution) -> None:
        """Report recorded events, and carry out the resulting commands in order."""
        if execution.told is not None:
            self.report(execution, execution.told)
        commands = execution.commands
        while commands:
            command = commands.popleft()
            if type(command) is Run:
                if not self.begin_attempt(execution, command):
                    return
            elif isinstance(command, Stop):
                self.stop(execution, command)
            elif isinstance(command, Notice):
                self.tell(execution, command)
