"""Transcripts of commands: those of the docs, and those that test the command line.

A block that begins with `# NAME` is a file. A `console` block has commands, each with its output. A
page of `tests/cli` has all of the output: lines on standard error begin with `2> `, and the last
line is a word for the exit code. `docs/contributing/testing.md` describes the form.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from difflib import unified_diff
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch
from zipfile import ZipFile

from flowengine.settings import current_user
from tests.command_line import Done, flowengine, python

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"(?:#|//|<!--) ([\w./-]+)(?: -->)?\n")
WAIT = re.compile(r'(?:(?:approval|question) |/approvals/|"id": ?")([0-9a-f]{4,})\b')
"""The ID of a wait at its first appearance in a transcript of the docs."""
PORT = re.compile(r"\b(?:7233|8000|8383)\b")
"""A port that a page of the docs names."""
CODES = {
    0: "", 1: "(failed)", 2: "(usage)", 3: "(invalid)", 4: "(waiting)", 5: "(stalled)",
    6: "(cancelled)", 7: "(refused)", 8: "(forbidden)", 9: "(not found)", 10: "(no store)",
}  # fmt: skip
"""What a transcript has for an exit code."""
_ROW = re.compile(r"(  \S+) +((?:succeeded|skipped|failed|refused|waiting|cancelled) .*)")
"""A line of the table of steps, whose columns get the width that they need."""
UNITS = ((1440, "d"), (60, "h"), (1, "m"))
NEEDS_PROCESS = re.compile(r"os\._exit\(|\bopen\(|\bmanager\(\)|\bStdioServer")
"""Marks programs that rely on the end of their process for cleanup, or on their own manager."""


class Exchange(NamedTuple):
    """A command of a transcript, and its output."""

    command: str
    output: str


class Section(NamedTuple):
    """A section of a page, which is played in its own directory."""

    page: Path
    title: str
    text: str
    line: int
    shared: str
    """The text before the first section of the page."""


def sections(page: Path, heading: str = "##") -> Iterator[Section]:
    """Yield the sections of a page. One ends before the next heading of its level or the second."""
    shared, *parts = re.split(rf"^{heading} ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    line = shared.count("\n") + 1
    for part in parts:
        title, _, text = part.partition("\n")
        yield Section(page, title, text.partition("\n## ")[0], line, shared)
        line += part.count("\n")


def exchanges(block: str) -> list[Exchange]:
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)[1:]
    return [Exchange(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]


def write_file(block: str) -> bool:
    """Write a block that begins with the name of a file, and return whether it does."""
    named = FILE.match(block)
    if named:
        Path(named[1]).parent.mkdir(parents=True, exist_ok=True)
        Path(named[1]).write_text(block)
    return bool(named)


def write_files(text: str) -> None:
    """Write the files of a page or a part of it."""
    for _, block in BLOCK.findall(text):
        write_file(block)


def run(line: str, flowengine: Callable[..., Done] = flowengine) -> Done:
    """Run a command line like a shell, but in this process where that is possible.

    Variables before the command, `< FILE`, `> FILE` and a pipe after it are read. Anything but
    `flowengine` and `python` is left to a shell.
    """
    first, pipe, rest = line.partition(" | ")
    words = shlex.split(first.replace("$PWD", str(Path.cwd())))
    env = {}
    while "=" in words[0]:
        name, _, env[name] = words.pop(0).partition("=")
    given = Path(words.pop()).read_text() if words[-2:-1] == ["<"] and words.pop(-2) else None
    into = Path(words.pop()) if words[-2:-1] == [">"] and words.pop(-2) else None
    match words[0]:
        case "flowengine":
            done = flowengine(*words[1:], typed=given, env=env)
        case "python" if words[1] != "-m" and not NEEDS_PROCESS.search(_text_of(words[1:])):
            done = python(*words[1:], env=env)
        case "python":
            done = _in_process([sys.executable, *words[1:]], None)
        case _:
            return _in_shell(line)
    if into is not None:
        into.write_text(done.out)
        done = done._replace(out="")
    if not pipe:
        return done
    last = _in_process(["sh", "-c", rest], done.out)
    return Done(
        last.code if last.code and not done.code else done.code, last.out, done.err + last.err
    )


def _text_of(words: list[str]) -> str:
    """Return the text of a program."""
    return words[1] if words[0] == "-c" else Path(words[0]).read_text(encoding="utf-8")


def _programs() -> str:
    """Return the path of programs, with the Python that has flowengine first."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def _in_process(command: list[str], given: str | None) -> Done:
    env = {**os.environ, "PATH": _programs()}
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, check=False, env=env
    )
    return Done(done.returncode, done.stdout, done.stderr)


class Terminal:
    """Runs the commands of a page, with variables and background processes like those of a shell.

    It changes `os.environ`, which the caller restores.

    Each port of the page is replaced by a free one, so that several tests can run at once. Paths in
    the current directory are printed as relative ones.
    """

    def __init__(self) -> None:
        self._ports: dict[str, str] = {}
        self._begun: list[subprocess.Popen[bytes]] = []
        os.environ["PATH"] = _programs()
        self._run: Callable[[str], Done] = run

    def __call__(self, command: str) -> str:
        """Run a command line, and return its output on both streams."""
        line = PORT.sub(lambda port: self._free(port[0]), command)
        if self._begun:
            line = line.replace("$!", str(self._begun[-1].pid))
        if variable := re.fullmatch(r"export (\w+)=\$\((.*)\)", line):
            os.environ[variable[1]] = _in_shell(variable[2]).out.strip()
            return ""
        if line == "pip install .":
            return self._install()
        if line.endswith(" &"):
            self._begin(line.removesuffix(" &"))
            return ""
        with patch.object(logging.getLogger(), "handlers", []):  # pytest's would take warnings
            # The client of Temporal keeps threads and files until its process ends.
            done = (_in_shell if "temporal://" in line else self._run)(line)
        printed = (done.err + done.out).replace(f"{Path.cwd()}/", "")
        if "kill " in line:
            self._begun[-1].wait(30)
        for shown, real in self._ports.items():
            printed = printed.replace(real, shown)
        return printed

    def _install(self) -> str:
        """Install the package in the current directory, for the processes of later commands.

        `pip` and `uv` may both be missing in the environment.
        """
        site = str(Path.cwd() / ".site")
        build = f"from hatchling.build import build_wheel; print(build_wheel({site!r}))"
        done = _in_process([sys.executable, "-c", build], None)
        assert done.code == 0, done.err
        with ZipFile(Path(site, done.out.strip())) as wheel:
            wheel.extractall(site)
        os.environ["PYTHONPATH"] = site
        self._run = _in_shell
        return done.err

    def close(self) -> None:
        """Kill the processes that still run."""
        for process in self._begun:
            with suppress(ProcessLookupError):  # with the children of one that was killed
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)

    def _free(self, port: str) -> str:
        if port not in self._ports:
            with socket.socket() as found:
                found.bind(("127.0.0.1", 0))
                self._ports[port] = str(found.getsockname()[1])
        return self._ports[port]

    def _begin(self, line: str) -> None:
        """Begin a process, and wait until its port, if it has one, accepts connections."""
        process = subprocess.Popen(
            ["sh", "-c", f"exec env {line}"],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._begun.append(process)
        for port in {real for real in self._ports.values() if real in line}:
            while not _accepts(int(port)):
                assert process.poll() is None, line
                time.sleep(0.1)


def _in_shell(line: str) -> Done:
    return _in_process(["sh", "-c", line], None)


def _accepts(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def both_streams(line: str) -> str:
    """Run a command line, and return its output on both streams."""
    done = run(line)
    return done.err + done.out


def play(page: Path, waits: dict[str, str], run: Callable[[str], str] = both_streams) -> None:
    """Write the files of a page, and check that each command prints the output on the page.

    With `UPDATE_GOLDEN=1`, output that differs is written into the page.

    Args:
        page: The page. Files are written to the current directory.
        waits: Ids of waits in the page → the real ones. It is completed.
        run: Runs a command line.
    """
    for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        write_file(text)
        for command, expected in exchanges(text) if language == "console" else []:
            for shown, real in waits.items():
                command = command.replace(shown, real)  # noqa: PLW2901
            printed = run(command)
            waits |= zip(WAIT.findall(expected), WAIT.findall(printed), strict=False)
            here, there = plain(expected, waits), plain(printed, waits)
            if here != there and os.environ.get("UPDATE_GOLDEN"):
                _rewrite(page, expected, printed, waits)
                continue
            differing = unified_diff(here, there, "page", "played", n=1, lineterm="")
            assert here == there, "\n".join([f"{page.stem}: {command}", *differing])


def _rewrite(page: Path, expected: str, printed: str, waits: dict[str, str]) -> None:
    """Write the output of a command into a page. Lines that differ in nothing steady stay."""
    known = {tuple(plain(line, waits)): line for line in expected.splitlines()}
    for shown, real in waits.items():
        printed = printed.replace(real, shown)
    lines = [known.get(tuple(plain(line, waits)), line) for line in printed.splitlines()]
    width = max((len(row[1]) for line in lines if (row := _ROW.fullmatch(line))), default=0)
    lines = [
        f"{row[1]:{width}}  {row[2]}" if (row := _ROW.fullmatch(line)) else line for line in lines
    ]
    text = page.read_text(encoding="utf-8")
    played = "".join(f"{line}\n" for line in lines)
    page.write_text(text.replace(expected, played), encoding="utf-8")


def plain(text: str, waits: dict[str, str]) -> list[str]:
    """Return lines without varying parts.

    Items of a map end in any order, and the widest so far determines the width of a column.
    """
    for shown, real in waits.items():
        text = re.sub(rf"\b({shown}|{real})\b", "WAIT", text)
    text = text.replace(current_user(), "user:ana")  # the user who runs the tests
    text = re.sub(r'("?)\b[0-9a-f]{12}(?:[0-9a-f]{14})?\b\1', "HASH", text)
    text = re.sub(r"\b01[0-9a-z]{6,24}\b", "EXECUTION", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r"(\d+[dhm] )*\b[\d.]+[ms]?s\b|(\d+m \d+s)", "DURATION", text)
    return sorted(" ".join(line.split()) for line in text.splitlines())


def check_section(
    section: Section, flowengine: Callable[..., Done] = flowengine, way: str = "store"
) -> None:
    """Play a section in the current directory, and check that all output is as in the page.

    With `UPDATE_GOLDEN=1`, output that differs is written into the page.

    Args:
        section: The section.
        flowengine: Runs a command.
        way: What keeps executions: a `store`, a `server` over it, or `temporal`.
    """
    write_files(section.shared)

    def played(block: re.Match[str]) -> str:
        if block[1] != "console":
            assert write_file(block[2]), f"the first line names the file: {block[2][:40]}"
            return block[0]
        told = (
            _as_played(one, run(one.command, flowengine), in_store=way == "store")
            for one in exchanges(block[2])
        )
        return f"```console\n{''.join(told)}```"

    text = BLOCK.sub(played, section.text)
    if text != section.text and os.environ.get("UPDATE_GOLDEN") and way == "store":
        whole = section.page.read_text(encoding="utf-8")
        section.page.write_text(whole.replace(section.text, text), encoding="utf-8")
        return
    differing = unified_diff(section.text.splitlines(), text.splitlines(), "page", "played", n=3)
    assert text == section.text, "\n".join(differing)


def _as_played(one: Exchange, done: Done, *, in_store: bool) -> str:
    """Return a command with its output, in the form of the page if that fits."""
    lines = [f"2> {line}".rstrip() for line in done.err.splitlines()] + done.out.splitlines()
    lines += [word] if (word := CODES.get(done.code, f"(exit {done.code})")) else []
    found = steady("".join(f"{line.rstrip()}\n" for line in lines))
    alike = str if in_store else _as_elsewhere
    pattern = "".join(map(_pattern, alike(one.output).splitlines()))
    return f"$ {one.command}\n{one.output if re.fullmatch(pattern, alike(found)) else found}"


def _as_elsewhere(text: str) -> str:
    """Return output in a form that is the same with a server and in Temporal."""
    text = re.sub(r"\b([0-9a-f]{4})[0-9a-f]{4,12}\b", r"\1", text)
    text = re.sub(r"https://testserver|temporal://[\w.:/]+", "$PWD/.flowengine", text)
    return re.sub(" {2,}", "  ", text)


def _pattern(line: str) -> str:
    """Return a pattern for a line of a page: `...` stands for any text, or any lines."""
    if line.removeprefix("2> ") == "...":
        return r"(?:.*\n)*?"
    return re.escape(line).replace(re.escape("..."), ".*?") + r"\n"


def steady(text: str) -> str:
    """Return output without what varies between plays. Wide columns may vary, too."""
    text = text.replace(str(Path.cwd()), "$PWD")
    text = re.sub(r"\b01[0-9a-hjkmnp-tv-z]{6,24}\b", "EXECUTION\0", text)
    text = re.sub(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z", _near, text)
    text = re.sub(r"\b(\d+[hm] )*\d+\.\d+s\b", "0.0s\0", text)
    text = re.sub(r"\b[0-9a-f]{64}\b", "HASH\0", text)
    text = re.sub(r"\0 {2,}|\0", lambda wide: wide[0][1:3], text)
    return "".join(one if one.isprintable() or one == "\n" else ascii(one)[1:-1] for one in text)


def _near(moment: re.Match[str]) -> str:
    """Return a word for a time of these days, such as `TIME+36h`. Others are always the same."""
    minutes = (
        round((datetime.fromisoformat(moment[0]) - datetime.now(UTC)) / timedelta(minutes=30)) * 30
    )
    if abs(minutes) > 400 * 24 * 60:
        return moment[0]
    away = next(f"{minutes // size}{unit}" for size, unit in UNITS if minutes % size == 0)
    return f"TIME{'+' * (minutes > 0)}{away}\0" if minutes else "TIME\0"
