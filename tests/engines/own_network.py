"""A network namespace with a cable to the machine, which a test can cut."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest

RETRIES = "3"
"""How often TCP there repeats a packet before it gives up, after seconds. The default of 15 takes a
quarter of an hour."""
NOBODY = "02:00:00:00:00:01"
"""The hardware address of no interface."""
ESTABLISHED = "01"


class OwnNetwork:
    """A network namespace, whose processes reach the machine over a cable, and nothing else.

    The kernel removes it with its last process, and one of them ends with the test's process.
    """

    def __init__(self) -> None:
        if sys.platform != "linux" or os.geteuid():
            pytest.skip("only root on Linux can make a network namespace")
        if shutil.which("ip") is None:
            pytest.skip("no ip: apt-get install iproute2")
        number = random.SystemRandom().randrange(1 << 14)
        net = f"198.18.{number // 64}"
        self._outside, self._inside = (f"{net}.{number % 64 * 4 + host}" for host in (1, 2))
        command = ["unshare", "--net", "sh", "-c", "echo; exec cat"]
        self._holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._holder.stdout is not None
        self._holder.stdout.readline()
        self.via = ["nsenter", "--net", "--target", str(self._holder.pid)]
        """A command that starts another one inside."""
        self._link = f"flow{number}"

    def __enter__(self) -> Self:
        try:
            self._connect()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.communicate()

    def _connect(self) -> None:
        """Make the cable, and let 127.0.0.1 inside be that of the machine.

        So the servers there, which listen at this address only, need no other one.
        """
        place = str(self._holder.pid)
        _ip("link", "add", self._link, "type", "veth", "peer", "name", "cable", "netns", place)
        self._bring_up(self._link, self._outside, [])
        self._bring_up("cable", self._inside, self.via)
        _ip("route", "add", "127.0.0.1", "via", self._outside, via=self.via)
        _set("tcp_retries2", RETRIES, self.via)

    def _bring_up(self, link: str, address: str, via: list[str]) -> None:
        _ip("address", "add", f"{address}/30", "dev", link, via=via)
        _ip("link", "set", link, "up", via=via)
        _set(f"conf/{link}/route_localnet", "1", via)

    def cut(self) -> None:
        """Cut the cable: what is sent is lost without an error, in both directions."""
        nobody = ("lladdr", NOBODY, "nud", "permanent", "dev")
        _ip("neighbour", "replace", self._outside, *nobody, "cable", via=self.via)
        _ip("neighbour", "replace", self._inside, *nobody, self._link)

    def mend(self) -> None:
        """Connect it again."""
        _ip("neighbour", "delete", self._outside, "dev", "cable", via=self.via)
        _ip("neighbour", "delete", self._inside, "dev", self._link)

    def is_connected(self) -> bool:
        """Return whether a TCP connection is open inside, as the sockets there know it."""
        _, *sockets = Path(f"/proc/{self._holder.pid}/net/tcp").read_text().splitlines()
        return any(line.split()[3] == ESTABLISHED for line in sockets)


def _ip(*words: str, via: Sequence[str] = ()) -> None:
    subprocess.run([*via, "ip", *words], check=True)


def _set(name: str, value: str, via: Sequence[str]) -> None:
    command = [*via, "tee", f"/proc/sys/net/ipv4/{name}"]
    subprocess.run(command, input=value.encode(), check=True, stdout=subprocess.DEVNULL)
