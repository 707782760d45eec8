"""The inputs of attempts: the kernel's commands as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.engines.temporal.requests import run_as_data
from flowengine.journal.encoding import pack
from flowengine.kernel.commands import Run

if TYPE_CHECKING:
    from flowengine.engines.executions.execution import Execution


def fixed(run: Run) -> Run:
    """Return a command whose state does not change with that of the execution."""
    if run.state is None:
        return run
    state = {
        key: [*value] if isinstance(value, list) else value for key, value in run.state.items()
    }
    return run._replace(state=state)


class Inputs:
    """The inputs of one execution's attempts.

    The state of an agent contains its conversation. To replay a history with thousands of turns,
    the size of each input must be known, so the messages are measured once, and not packed again.

    Args:
        execution: The execution.
    """

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._lists: dict[str, tuple[int, Any, int]] = {}
        """State key → number of measured items of its list, the last one, and their bytes."""

    def packed(self, run: Run) -> bytes:
        """Return the input of an attempt, as short as possible."""
        linked = self._execution.linked
        secrets = "secrets" in linked.compiled or "flows" in linked.compiled
        data = run_as_data(run, secrets=secrets)
        return pack([linked.hash, self._execution.context.workdir, data])

    def size(self, run: Run) -> int:
        """Return the length of the input of an attempt."""
        lists = {key: value for key, value in (run.state or {}).items() if isinstance(value, list)}
        if not lists:
            return len(self.packed(run))
        state: dict[str, Any] = {**(run.state or {}), **dict.fromkeys(lists, None)}
        rest = len(self.packed(run._replace(state=state)))  # with one byte for each list
        return rest + sum(self._size_of(*item) - 1 for item in lists.items())

    def _size_of(self, key: str, items: list[Any]) -> int:
        """Return the length of a packed list, to which items may have been appended."""
        count, last, size = self._lists.get(key, (0, None, 0))
        if not isinstance(last, dict) or len(items) < count or items[count - 1] is not last:
            count, size = 0, 0
        size += sum(len(pack(item)) for item in items[count:])
        self._lists[key] = len(items), items[-1] if items else None, size
        return size + _head(len(items))


def _head(count: int) -> int:
    """Return the bytes before the items of a packed list."""
    return 1 if count < 1 << 4 else 3 if count < 1 << 16 else 5
