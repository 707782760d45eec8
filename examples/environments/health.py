"""One interpreter for a whole session: reused while it is healthy, otherwise replaced."""

from __future__ import annotations

import os
import signal

from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import EnvironmentLost

SPEC = {"kind": "python", "scope": "session", "owner_id": "ana"}


def main() -> None:
    """Open it, use it twice, break it, and receive another one."""
    with EnvironmentManager() as manager:
        first = manager.ensure(SPEC)
        first.resource.run("count = 1")
        second = manager.ensure(SPEC)
        print("the same:", second.resource is first.resource)
        print("count:", second.resource.run("count + 1").value)
        manager.release(second)
        for pid in manager.written()[0]["traces"]["pids"]:
            os.kill(pid, signal.SIGKILL)
        try:
            while True:  # a signal arrives with a delay
                first.resource.run("count")
        except EnvironmentLost as error:
            print("broken:", type(error).__name__)
        again = manager.ensure(SPEC)
        print("generation:", again.generation)
        print("count is there:", again.resource.run("'count' in globals()").value)
        manager.release_scope("session", "ana")
        print("open:", len(manager.written()))


if __name__ == "__main__":
    main()
