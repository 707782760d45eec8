"""Carrying out commands: all that one execution needs of what drives it.

Where its journal is, who may write it and how messages reach it is not known here: see `driver.py`
for executions whose journals this process writes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeAlias

from flowengine.engines.executions.execution import Preview
from flowengine.kernel.commands import Consult, Notify, ReleaseRegion, Run, Send, Stop

if TYPE_CHECKING:
    from flowengine.engines.executions.execution import Execution, Told

Notice: TypeAlias = Consult | Preview | Send | ReleaseRegion | Notify
"""Commands whose outcome the kernel does not wait for, or gets as an event of its own."""


class Carrier(ABC):
    """Carries out the commands of executions, whose events are recorded already."""

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
        """Tell whom it concerns what has happened: a question, a message, the end of a region."""

    @abstractmethod
    def report(self, execution: Execution, told: Told) -> None:
        """Tell subscribers what has happened."""

    def carry_out(self, execution: Execution) -> None:
        """Report what is recorded, and carry out the commands that follow from it, in order."""
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
