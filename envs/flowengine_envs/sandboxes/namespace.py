"""`namespace`: processes of this machine that are isolated from it (bubblewrap).

The programs have separate process, user, network, host name and mount namespaces. They can read the
system's programs, write the workspace and a home directory, and use temporary scratch space. They
have no capabilities, cannot gain any, and cannot create namespaces. This works for root, and for
ordinary users if the kernel lets them create user namespaces.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

from flowengine.sdk import EnvironmentStartFailed, EnvironmentUnavailable
from flowengine.sdk.environments import Axis, Capabilities, Program, Request, Spec
from flowengine_envs.link.call_limits import DISK_HELD, MEMORY, PROCESSES
from flowengine_envs.network.egress import INSIDE, AllowedDestination, Egress, destinations
from flowengine_envs.sandboxes import processes, syscalls
from flowengine_envs.sandboxes.cgroups import Group
from flowengine_envs.sandboxes.installations import installation
from flowengine_envs.sandboxes.mounts import Mount, check_all, mounts, warn_of_new
from flowengine_envs.sandboxes.processes import PATH, ProcessSandbox, defaults, has, held_by_group
from flowengine_envs.sandboxes.syscalls import OwnNetwork

USER = 1000
SCRATCH = 256 * 1024 * 1024
"""Bytes of `/tmp`, if the spec sets no `disk`."""
SHARED = 64 * 1024 * 1024
"""Bytes of `/dev/shm`."""
OTHERS = "use provider: docker, or provider: host for no isolation"

_UNPRIVILEGED = 1024
"""The lowest port on which ordinary users may listen in a new network namespace."""
_OPEN_PORTS = {"net/ipv4/ip_unprivileged_port_start": "0"}
"""The network setting that opens lower ports."""

_TRIAL = 10.0
"""Seconds within which an empty sandbox must start."""
_TRIALS = 5
"""Number of attempts while mounts of the machine change, as those of containers do."""
_MOUNTS_CHANGED = "Unable to apply mount flags"
"""The error of bubblewrap if a mount disappears after it has listed all of them."""
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = (
    *("alternatives", "ca-certificates", "crypto-policies", "debian_version", "fonts", "java"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "magic", "mime.types"),
    *("os-release", "pki", "protocols", "python3", "services", "ssl/certs", "ssl/openssl.cnf"),
    *("terminfo", "timezone"),
)
"""The parts of `/etc` that programs need, without private data or users' names."""
_TELLTALE = ("keys", "key-users", "sched_debug", "timer_list")
"""Entries of `/proc` that reveal users and processes outside."""


class Namespace(OwnNetwork, ProcessSandbox):
    """Programs in separate namespaces."""

    name: ClassVar[str] = "namespace"
    own_processes: ClassVar[bool] = True
    same_files: ClassVar[bool] = True

    @classmethod
    def capabilities(cls) -> Capabilities:
        """Return the guarantees of namespaces, and the limits that this machine supports."""
        holds: dict[Axis, str] = {
            "filesystem": "own mounts: the system to read, workspace, home, mounts of the spec",
            "network": "own network namespace, with named destinations reached through the engine",
            "user": "own user namespace, no capabilities, no new privileges",
            "variables": "only declared ones",
            "disk": f"size of /tmp, {DISK_HELD}",
            **({"syscalls": "a system call filter (seccomp)"} if syscalls.held() else {}),
            **_processes_held(),
            **held_by_group(),
        }
        return Capabilities("namespace", holds, defaults(holds))

    @classmethod
    async def probe(cls, spec: Spec) -> None:
        """Start an empty sandbox, or raise an error with the cause and its remedy."""
        reached = destinations(spec)
        if spec.policy.network == "any" and not syscalls.keeps_sockets_apart() and not os.getuid():
            raise EnvironmentUnavailable(
                f"{spec}: policy.network: any would make programs root to servers of this machine "
                "that listen on abstract sockets, since root runs this and Linux is older than "
                "6.12; run as an ordinary user, name the places, or take provider: docker"
            )
        if not has("python3"):
            raise EnvironmentUnavailable(
                f"{spec}: this machine has no python3 in {PATH}: apt-get install python3"
            )
        bwrap = _bwrap()
        if bwrap is None:
            raise EnvironmentUnavailable(
                f"{spec}: 'namespace' needs bubblewrap, which is not installed: apt-get install "
                f"bubblewrap. Or {OTHERS}"
            )
        complaint = await _trial(bwrap, reached)
        if complaint is not None:
            raise EnvironmentUnavailable(
                f"{spec}: bubblewrap cannot make a sandbox here: {complaint}. {_remedy()} "
                f"Or {OTHERS}"
            )

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self._egress = Egress(request)
        self._mounts: list[Mount] = []

    async def open(self) -> None:
        """Create the control group, and start listening for outgoing connections."""
        check_all(self.request)
        self._mounts = await asyncio.to_thread(mounts, self.request)
        if self.request.policy.network == "any" and not syscalls.keeps_sockets_apart():
            self.request.log.warning(
                "policy.network: any: programs can connect to abstract sockets of this machine, "
                "as its user. Linux 6.12 keeps them apart"
            )
        await super().open()
        try:
            await self._egress.open()
        except BaseException:
            await asyncio.shield(self.close())
            raise

    async def close(self) -> None:
        """End everything inside, and close outgoing connections."""
        try:
            await super().close()
        finally:
            await self._egress.close()
            await asyncio.to_thread(warn_of_new, self.request, self._mounts)

    async def _start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        group: Group | None,
        fds: Sequence[int],
    ) -> Program:
        """Start a program as the first process of a new sandbox around the workspace."""
        bwrap = _bwrap()
        if bwrap is None:
            raise EnvironmentUnavailable(f"{self.request.spec}: bubblewrap is gone")
        written = _written(self.home, self._egress.hosts)
        files = {path: _readable(text.encode()) for path, text in written.items()}
        shared = self.request.policy.network == "any" or _low(self._egress.places)
        options = [*_unshared(shared), *_system()]
        for path, fd in files.items():
            options += ["--ro-bind-data", str(fd), path]
        own = [*files.values(), *([_readable(syscalls.program())] if syscalls.held() else [])]
        options += [word for fd in own[len(files) :] for word in ("--seccomp", str(fd))]
        options += self._folders()
        for name, value in {"PATH": PATH, **env}.items():
            options += ["--setenv", name, value]
        # Root's sandboxes could otherwise write the files of /proc that configure the machine.
        options += ["--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/"]
        options += ["--chdir", self.workdir, "--", *argv]
        try:
            return await self._prepare(bwrap, options, group, [*own, *fds])
        finally:
            for fd in own:
                os.close(fd)

    async def _prepare(
        self, bwrap: str, inner: Sequence[str], group: Group | None, fds: Sequence[int]
    ) -> Program:
        """Start the namespace around a sandbox, again if mounts change meanwhile.

        Raises:
            EnvironmentStartFailed: It cannot be created.
        """
        stderr = ""
        for _ in range(_TRIALS):
            source, sink = os.pipe()
            try:
                shared = self.request.policy.network == "any"
                ports = _low(self._egress.places)
                argv = [*_prepared(bwrap, ports=ports, shared=shared, ready=sink), *inner]
                try:
                    program = await self._spawn(argv, {"PATH": PATH}, "/", group, [sink, *fds])
                finally:
                    os.close(sink)
                if await _is_ready(source):
                    return program
            finally:
                os.close(source)
            stderr = await _stderr(program)
            self._programs.remove(program)
            if _MOUNTS_CHANGED not in stderr:
                break
        raise EnvironmentStartFailed(f"{self.request.spec}: bubblewrap did not start: {stderr}")

    def _folders(self) -> list[str]:
        """Return the options for its own directories, and for what it sees of the machine's."""
        # Both are in memory. When it is full, the kernel kills the programs.
        memory = self.request.limits.memory or MEMORY
        scratch = min(self.request.limits.disk or SCRATCH, memory // 2)
        options = ["--size", str(scratch), "--perms", "1777", "--tmpfs", "/tmp"]
        shared = min(SHARED, memory // 8)
        options += ["--size", str(shared), "--perms", "1777", "--tmpfs", "/dev/shm"]
        options += ["--bind", str(self.workspace), self.workdir]
        options += ["--bind", str(self.request.home), self.home]
        if self._egress.folder is not None:
            options += ["--ro-bind", str(self._egress.folder), INSIDE]
        for inside, path, writable in self._mounts:
            options += ["--bind" if writable else "--ro-bind", str(path), inside]
        installed = installation(self.request.spec, self.request)
        for inside, folder in ({} if installed is None else installed.folders).items():
            options += ["--ro-bind", str(folder), inside]
        if self.request.policy.network == "any":
            options += ["--ro-bind-try", os.path.realpath("/etc/resolv.conf"), "/etc/resolv.conf"]
        return options

    def resource_limits(self) -> Mapping[str, int]:
        """Return the limits that the system enforces per process, or per user inside."""
        held = super().resource_limits()
        if "processes" in held_by_group() or not _processes_held():
            return held
        return {**held, "NPROC": self.request.limits.processes or PROCESSES}


async def _is_ready(source: int) -> bool:
    """Wait until the namespace around a sandbox exists. Return False if that failed."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(source, readable.set)
    try:
        async with asyncio.timeout(_TRIAL):
            await readable.wait()
    except TimeoutError:
        return True  # The caller that waits for the program's response reports the failure.
    finally:
        loop.remove_reader(source)
    return bool(os.read(source, 1))


async def _stderr(program: Program) -> str:
    """Wait until a program ends, and return its standard error."""
    assert program.stderr is not None
    stderr = await program.stderr.read()
    await program.wait()
    return stderr.decode(errors="replace").strip()


def _low(reached: Sequence[AllowedDestination]) -> bool:
    """Return whether the supervisor must listen on ports below those of ordinary users."""
    return any(place.port < _UNPRIVILEGED for place in reached)


def _prepared(bwrap: str, *, ports: bool, shared: bool = False, ready: int = -1) -> list[str]:
    """Return the first words of a command that creates a namespace around the sandbox's.

    It is limited to a share of the resources that the kernel counts per user. With `ports` it has a
    network in which all ports may be used, and the sandbox joins it. If the machine's network is
    `shared`, its abstract sockets are blocked. A byte on `ready` reports that it exists.
    """
    options = ["--unshare-user", "--uid", str(USER), "--gid", str(USER), "--die-with-parent"]
    options += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_RESOURCE"]
    options += ["--unshare-net", "--cap-add", "CAP_NET_ADMIN"] if ports else []
    python = shutil.which("python3", path=PATH) or "python3"
    settings = syscalls.share_arguments(_OPEN_PORTS if ports else {}, ready)
    before = syscalls.SCRIPT if shared and syscalls.keeps_sockets_apart() else ""
    script = [python, "-ISc", before + syscalls.SHARE, *settings]
    return [bwrap, *options, "--dev-bind", "/", "/", "--", *script, bwrap]


def _unshared(network: bool) -> list[str]:
    """Return the options that remove all access."""
    options = ["--unshare-all", "--unshare-user", "--uid", str(USER), "--gid", str(USER)]
    options += ["--disable-userns"] if _forbids_namespaces() else []
    options += ["--share-net"] if network else []
    options += ["--cap-drop", "ALL", "--die-with-parent", "--new-session", "--as-pid-1"]
    return [*options, "--hostname", "sandbox", "--clearenv"]


def _system() -> list[str]:
    """Return the options that add the system's programs, read-only."""
    options = ["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev"]
    for path in _SYSTEM:
        if os.path.islink(path):
            options += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            options += ["--ro-bind", path, path]
    python = sorted(path.name for path in Path("/etc").glob("python3.*") if path.is_dir())
    for name in (*_ETC, *python):
        options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return options


def _written(home: str, hosts: Mapping[str, str]) -> dict[str, str]:
    """Return the generated files: path → text."""
    named = "".join(f"{address} {name}\n" for name, address in hosts.items())
    user = f"flow:x:{USER}:{USER}:flow:{home}:/bin/sh\n"
    nobody = "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    telltale = (f"/proc/{name}" for name in _TELLTALE)
    return {
        **{path: "" for path in telltale if os.path.exists(path)},
        "/etc/passwd": "root:x:0:0:root:/root:/usr/sbin/nologin\n" + user + nobody,
        "/etc/group": f"root:x:0:\nflow:x:{USER}:\nnogroup:x:65534:\n",
        "/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n" + named,
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }


def _readable(data: bytes) -> int:
    """Return a descriptor from which the bytes can be read."""
    source, sink = os.pipe()
    with open(sink, "wb") as file:
        file.write(data)
    return source


def _processes_held() -> dict[Axis, str]:
    # The kernel counts a user's processes in each user namespace, but never root's.
    return {} if os.getuid() == 0 else {"processes": "RLIMIT_NPROC inside"}


def _bwrap() -> str | None:
    return shutil.which("bwrap", path=PATH)


@lru_cache
def _forbids_namespaces() -> bool:
    """Return whether this bubblewrap can prevent programs from creating namespaces."""
    import subprocess

    done = subprocess.run(
        [_bwrap() or "bwrap", "--help"], capture_output=True, text=True, check=False, timeout=_TRIAL
    )
    return "--disable-userns" in done.stdout + done.stderr


_works: dict[tuple[str, int, bool], bool] = {}


async def _trial(bwrap: str, reached: Sequence[AllowedDestination]) -> str | None:
    """Return why no sandbox can be created, or None if one was."""
    key = (bwrap, os.getuid(), _low(reached))
    if _works.get(key):
        return None
    await asyncio.to_thread(_forbids_namespaces)
    argv = [
        *_prepared(bwrap, ports=_low(reached)),
        *_unshared(_low(reached)),
        *_system(),
        "--tmpfs",
        "/tmp",
        "--",
        "/usr/bin/env",
        "true",
    ]
    for _ in range(_TRIALS):
        message = await _tried(argv)
        if message is None or _MOUNTS_CHANGED not in message:
            break
    if message is None:
        _works[key] = True
    return message


async def _tried(argv: Sequence[str]) -> str | None:
    """Start an empty sandbox. Return the error, or None if it started."""
    program = await processes.start(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_TRIAL):
            stderr = await _stderr(program)
    except TimeoutError:
        return f"an empty one has not started in {_TRIAL:.0f} s"
    finally:
        program.kill()
        await program.wait()
    return None if program.returncode == 0 else stderr or f"exit code {program.returncode}"


def _remedy() -> str:
    """Return the command that most likely solves the problem."""
    for setting, good in (
        ("kernel/unprivileged_userns_clone", "1"),
        ("kernel/apparmor_restrict_unprivileged_userns", "0"),
    ):
        try:
            value = Path("/proc/sys", setting).read_text().strip()
        except OSError:
            continue
        if value != good:
            return f"This machine forbids it: sysctl -w {setting.replace('/', '.')}={good}."
    return (
        "The kernel or the container around this process forbids namespaces: in a container, allow "
        "them (docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined)."
    )
