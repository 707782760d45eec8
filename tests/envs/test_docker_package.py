"""The `docker` package is imported on first use, possibly by many threads at once."""

from __future__ import annotations

import subprocess
import sys

BROKEN_OFF = """
import sys, threading
from importlib.machinery import PathFinder
from flowengine_envs.sandboxes.docker.daemon import load

class NoFilesLeft(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "requests.sessions":
            sys.meta_path.remove(cls)
            raise OSError(24, "Too many open files")
        return super().find_spec(name, path, target)

def begin():
    together.wait()
    try:
        load()
        from docker.errors import APIError
        from docker.types import Mount
    except Exception as error:
        failed.append(error)

sys.meta_path.insert(0, NoFilesLeft)
failed, together = [], threading.Barrier(6)
threads = [threading.Thread(target=begin) for _ in range(6)]
for each in threads: each.start()
for each in threads: each.join()
print(failed)
import docker, requests
print(docker.errors.APIError.__mro__[1] is requests.exceptions.HTTPError)
"""


def test_an_import_that_broke_off_is_an_error_of_one_thread_and_no_other() -> None:
    """Otherwise all others would fail with `module 'requests' has no attribute 'exceptions'`."""
    done = subprocess.run(
        [sys.executable, "-c", BROKEN_OFF], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.stderr == ""
    assert done.stdout == "[OSError(24, 'Too many open files')]\nTrue\n"
