"""Commands that download a program from a package registry and run it, such as `npx` and `uvx`.

The publisher of the package decides which code runs, so such a server runs in a sandbox unless the
spec chooses otherwise. There it can reach only the registries configured for this user.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from configparser import ConfigParser, Error
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple
from urllib.parse import urlsplit

_NPM = "npm"
_PYPI = "pypi"
_DENO = "deno"
_LAUNCHERS = {**dict.fromkeys(("bunx", "npx", "pnpx"), _NPM), "uvx": _PYPI}
_SUBCOMMANDS = {
    **dict.fromkeys((("bun", "x"), ("npm", "exec"), ("npm", "x")), _NPM),
    **dict.fromkeys((("pnpm", "dlx"), ("yarn", "dlx")), _NPM),
    **dict.fromkeys((("pipx", "run"), ("uv", "tool")), _PYPI),
}
_FETCHED = ("npm:", "jsr:", "https:", "http:")
"""Prefixes of modules that Deno downloads."""
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ash", "ksh"})
_WRAPPERS = frozenset({*_SHELLS, "env", "nice", "nohup", "setsid", "stdbuf", "time", "timeout"})
"""Programs that run another program named in their arguments."""
_WORD = re.compile(r"[^\s;&|()'\"]+")
_VARIABLES = {
    _NPM: ("npm_config_registry", "NPM_CONFIG_REGISTRY"),
    _PYPI: ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"),
    _DENO: (),
}
"""Variables that name a registry, in order of precedence."""
_GIVEN: Mapping[str, tuple[str, ...]] = {
    _NPM: ("npm_config_registry",),
    _PYPI: ("UV_DEFAULT_INDEX", "PIP_INDEX_URL"),
}
"""Variables that configure the program inside."""
_PORTS = {"https": 443, "http": 80}
_PIP = ("~/.config/pip/pip.conf", "~/.pip/pip.conf", "/etc/pip.conf")
_SECONDS = 30
"""Seconds within which npm must report its registries."""


class ProgramDownload(NamedTuple):
    """A command that downloads the program that it runs."""

    program: str
    """The name of the downloading program."""
    registries: list[str]
    """The registries as `host:port`. Empty: they are unknown."""
    variables: dict[str, str]
    """Variables that set the registry, if the user has chosen one."""

    def missing(self, network: Any) -> str:
        """Return, for messages, the registries missing in a policy that names places.

        Args:
            network: The policy's `network`.
        """
        if not (network is None or network == "none" or isinstance(network, list)):
            return ""
        out = [place for place in self.registries if place not in (network or ())]
        if not out:
            return ""
        return f"; {self.program} fetches from {', '.join(out)}, which policy.network does not name"


def fetches(command: Any, args: Any = ()) -> bool | None:
    """Return whether a command downloads its program. None: it cannot be determined.

    Args:
        command: The program, or the program with arguments. Unknown texts are empty.
        args: More arguments.
    """
    words = [command] if isinstance(command, str) else command
    if not isinstance(words, list | tuple) or not words or not isinstance(words[0], str):
        return None
    more = args if isinstance(args, list | tuple) else ()
    ecosystem = _ecosystem([str(word) for word in (*words, *more)])
    return None if ecosystem == "" else ecosystem is not None


def download_of(config: Any) -> ProgramDownload | None:
    """Return the download of a server's command. None: it runs an installed program.

    Args:
        config: The server's config, with a command.
    """
    command = [config.command] if isinstance(config.command, str) else config.command
    ecosystem = _ecosystem([*command, *config.args])
    if not ecosystem:
        return None
    program = os.path.basename(command[0])
    for name in _VARIABLES[ecosystem]:
        if isinstance(declared := config.env.get(name), str):
            return ProgramDownload(program, _places([declared]), {})
    for url in map(_without_login, _configured(ecosystem)):
        if hosts := _places([url]):
            return ProgramDownload(program, hosts, dict.fromkeys(_GIVEN[ecosystem], url))
    return ProgramDownload(program, _places(_public(ecosystem)), {})


def _ecosystem(words: Sequence[str]) -> str | None:
    """Return the ecosystem of a download. None: no download. Empty: unknown."""
    program = os.path.basename(words[0])
    if not program:
        return ""
    if program in _WRAPPERS:
        inner = [word for text in words[1:] for word in _WORD.findall(text)]
        ecosystems = [_ecosystem(inner[at:]) for at in range(len(inner))]
        return next(filter(None, ecosystems), "" if "" in words else None)
    rest = [word for word in words[1:] if not word.startswith("-")]
    if program == "deno" and any(word.startswith(_FETCHED) for word in rest):
        return _DENO
    return _LAUNCHERS.get(program) or _SUBCOMMANDS.get((program, rest[0] if rest else ""))


def _places(urls: Iterable[str]) -> list[str]:
    """Return `host:port` of each network address."""
    hosts = []
    for url in urls:
        with suppress(ValueError):
            parts = urlsplit(url)
            if parts.scheme in _PORTS and parts.hostname:
                hosts.append(f"{parts.hostname}:{parts.port or _PORTS[parts.scheme]}")
    return hosts


def _without_login(url: str) -> str:
    """Return a registry's address without credentials, which downloaded code could read."""
    with suppress(ValueError):
        parts = urlsplit(url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return ""


def _configured(ecosystem: str) -> Iterator[str]:
    """Yield the registries named by this user's variables and files."""
    named: Mapping[str, str] = os.environ
    yield from (named[name] for name in _VARIABLES[ecosystem] if named.get(name))
    if ecosystem == _PYPI:
        parser = ConfigParser(interpolation=None)
        for path in _PIP:
            with suppress(OSError, Error, UnicodeDecodeError):
                parser.read(os.path.expanduser(path), encoding="utf-8")
            if url := parser.get("global", "index-url", fallback=""):
                yield url
    elif ecosystem == _NPM and (npm := shutil.which("npm")) is not None:
        with suppress(OSError, subprocess.SubprocessError):
            command = [npm, "config", "get", "registry"]
            # Elsewhere, because the current directory can have its own settings.
            done = subprocess.run(
                command, cwd="/", capture_output=True, text=True, check=True, timeout=_SECONDS
            )
            yield done.stdout.strip()


def _public(ecosystem: str) -> Iterator[str]:
    """Yield the addresses of the public registry, from pip's own constants if it is installed."""
    if ecosystem == _PYPI:
        with suppress(ImportError, AttributeError):
            known = import_module("pip._internal.models.index").PyPI
            yield known.url
            yield f"https://{known.file_storage_domain}"
