"""One shell on a terminal, whose directory, variables and jobs persist between calls."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
import threading
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from flowengine.sdk import (
    EnvironmentClosed,
    EnvironmentLost,
    EnvironmentStartFailed,
    StepError,
    ValidationError,
)
from flowengine.sdk.environments import (
    Request,
    Sandbox,
    background,
    both_forms,
)
from flowengine.sdk.texts.sizes import size_text
from flowengine_envs.kinds.results import OnOutput, limit_met, names_refused_size
from flowengine_envs.kinds.shell.result import LineAssembler, ShellResult, shell_result
from flowengine_envs.kinds.shell.viewer import Mirror
from flowengine_envs.kinds.supervised import Supervised
from flowengine_envs.link.call_limits import GRACE, TIMEOUT, UNBOUNDED, Counted
from flowengine_envs.link.channel import Channel
from flowengine_envs.link.masking import masked

OUTPUT = 8 * 1024 * 1024
"""Bytes of output in a result, if the spec sets no limit."""
LIVE = ".flowengine-terminal"
"""Name prefix of the directory, outside the workspace, that connects to a terminal."""
STARTING = 60.0
"""Seconds within which another shell must start, excluding `activate`."""
_SHELLS = 3
"""Number of further shells tried if a shell ends before it reads the command."""
_VIEWER = str(Path(__file__).with_name("viewer.py"))
_MIRRORS = threading.Lock()
"""Held while a mirror is created, because each shell has only one."""


class Shell(Supervised):
    """Runs commands in one shell, one after another.

    Args:
        request: The request to open the environment.
        sandbox: The open sandbox.
        channel: The connection to its supervisor.
        first: The shell that the sandbox was opened for. None: this one.
    """

    def __init__(
        self, request: Request, sandbox: Sandbox, channel: Channel, first: Shell | None = None
    ) -> None:
        super().__init__(request, sandbox, channel)
        self._first = first
        self._others: list[Shell] = []
        self._numbers = count(2)
        self._number = 1
        self._folder = f"{self.own}/terminal"
        if first is not None:
            self._number = next(first._numbers)
            self._folder += f"/{self._number}"
            self.name = f"{first.name}, shell {self._number}"
            self.call_limits = first.call_limits
        self._config = request.config
        self._secrets = _secrets(request)
        self._home = 0
        """The shell that `activate` left at its prompt."""
        self._shells: list[int] = []
        self._left = True
        self._is_lost = False
        self._ended = False
        self._mirror: Mirror | None = None
        self._began: tuple[float | None, Counted] = (None, Counted(sandbox))
        """The running command's timeout, and the counters from its start."""
        self._turn = asyncio.Lock()
        """Held by the step whose command runs."""

    @property
    def healthy(self) -> bool:
        """Whether it is usable, as far as is known without I/O."""
        return super().healthy and not self._is_lost

    def check_open(self) -> None:
        """Refuse use after the end, as all resources do.

        Raises:
            EnvironmentClosed: It was ended or released.
            EnvironmentLost: It was lost while still held.
        """
        if self._ended:
            raise EnvironmentClosed(f"{self.name} was ended: start another one")
        super().check_open()

    @property
    def records(self) -> str:
        """Directory below home with `raw.log` and `clean.log`, which have an entry per command."""
        return f"{self._folder}/records"

    async def _run(
        self,
        command: str,
        timeout: float | None = None,
        wait: float | None = None,
        on_output: OnOutput | None = None,
    ) -> ShellResult:
        """Run a command until it ends, waits for input, or `wait` has elapsed.

        Args:
            command: Text for the shell, of any number of lines.
            timeout: Seconds after which it is ended. Default and maximum: the spec's, if it has
                one.
            wait: Seconds after which the call returns while the command continues. Default: 30
                without a timeout, else unbounded.
            on_output: Called with `stdout` and lines of output until the call returns. Output that
                arrives faster than it is processed is left out.

        Returns:
            The result, or the current state.

        Raises:
            ValidationError: The command is not text, is too long, or contains a null character.
            EnvironmentBusy: Another command runs. Nothing was typed.
            EnvironmentLost: The terminal has ended.
            EnvironmentStartFailed: The shell had ended, and `activate` fails in the new one.
        """
        text = checked_command(self.name, command)
        hard = None
        if wait is None and timeout is None:
            wait = TIMEOUT
        if timeout is not None or self.limits.time is not None or self.limits.total_time:
            hard = self.call_limits.seconds(timeout)
        check_wait(self.name, wait)
        await self.cancelled_calls_ended()
        await self._enter()
        wrong = await self._wrong(text)
        if wrong is not None:
            return wrong
        self._began = (timeout, Counted(self.sandbox))
        lines = None if on_output is None else LineAssembler(self._masked, on_output)
        try:
            result = await self._begin(text, hard, wait, lines)
            for _ in range(_SHELLS):
                if result.id or result.status != "lost" or not result.shell_restarted:
                    break
                await self._enter()
                result = await self._begin(text, hard, wait, lines)
                result = result._replace(shell_restarted=True)
            return result
        finally:
            if lines is not None:
                lines.close()

    run, async_run = both_forms(_run)

    async def _run_in_turn(
        self, command: str, on_output: OnOutput | None = None, timeout: float = UNBOUNDED
    ) -> ShellResult:
        """Run a command to its end after those of other steps.

        Args:
            command: Text for the shell.
            on_output: As for `run`.
            timeout: As for `run`. Default: only the spec's.

        Returns:
            The result. A command that waited for input was interrupted.
        """
        async with self._turn:
            result = await self._run(command, timeout=timeout, on_output=on_output)
            if result.status == "waiting_for_input":
                await self._interrupt()
                result = (await self._wait(GRACE))._replace(status="waiting_for_input")
            return result

    run_in_turn, async_run_in_turn = both_forms(_run_in_turn)

    async def _wait(self, wait: float | None = None) -> ShellResult:
        """Wait until the running command has ended or waits for input.

        Args:
            wait: Seconds after which the call returns in any case. None: unbounded.

        Returns:
            Its state with all its output. If no command runs, the result of the last one.

        Raises:
            ValidationError: No command has run yet.
            EnvironmentLost: The terminal has ended.
        """
        check_wait(self.name, wait)
        return await self._answer("await", wait=wait)

    wait, async_wait = both_forms(_wait)

    async def _send(self, text: str) -> None:
        """Type text. A program that waits for a line reads it once it ends with a line feed.

        Args:
            text: The text to type.

        Raises:
            EnvironmentLost: The terminal has ended.
        """
        data = text.replace("\n", "\r").encode()
        await self._ask("send", data)

    send, async_send = both_forms(_send)

    async def _keys(self, *names: str) -> None:
        """Press keys.

        Args:
            names: `Up`, `Enter`, `C-c`, `M-x`, `F1`, or single characters.

        Raises:
            ValidationError: A key is unknown.
            EnvironmentLost: The terminal has ended.
        """
        for name in names:
            if not _KEY.fullmatch(name):
                raise ValidationError(
                    f"{self.name}: unknown key {name!r}: keys are named as 'Up', 'Enter', 'Tab', "
                    "'C-c', 'F1'"
                )
        if names:
            await self._ask("press", keys=list(names))

    keys, async_keys = both_forms(_keys)

    async def _interrupt(self) -> bool:
        """Interrupt the running command, as Ctrl-C does.

        Returns:
            Whether a command runs. `wait` returns its result.

        Raises:
            EnvironmentLost: The terminal has ended.
        """
        return bool((await self._ask("interrupt"))["found"])

    interrupt, async_interrupt = both_forms(_interrupt)

    async def _screen(self) -> str:
        """Return the current content of the terminal, for full-screen programs.

        Returns:
            Its lines.

        Raises:
            EnvironmentLost: The terminal has ended.
        """
        answer = await self._ask("screen")
        return bytes(answer["payload"]).decode(errors="replace")

    screen, async_screen = both_forms(_screen)

    async def _resize(self, columns: int, rows: int) -> None:
        """Set the size of the terminal, initially 200 by 50. Programs in it receive SIGWINCH.

        Args:
            columns: Characters per line.
            rows: Lines.

        Raises:
            ValidationError: The size is invalid.
            EnvironmentLost: The terminal has ended.
        """
        if not all(1 <= size <= LARGEST_SIZE for size in (columns, rows)):
            raise ValidationError(
                f"{self.name}: a terminal has 1 to {LARGEST_SIZE} columns or rows"
            )
        await self._ask("resize", columns=columns, rows=rows)

    resize, async_resize = both_forms(_resize)

    def attach_command(self) -> str:
        """Return the command that shows this terminal in another one, read-only.

        It shows the screen content known to this process and connects to nothing in the sandbox.

        Returns:
            Text for a shell on this machine, run as the same user.

        Raises:
            EnvironmentClosed: It was released or has ended.
            EnvironmentLost: No socket can be created for the viewers.
        """
        self.check_open()
        with _MIRRORS:
            if self._mirror is None:
                self._mirror = Mirror(
                    lambda on_answer: self._ask("watch", on_answer=on_answer), background().loop
                )
        return shlex.join([sys.executable or "python3", "-I", _VIEWER, str(self._mirror.path)])

    async def _another(self) -> Shell:
        """Start another shell on its own terminal in the same sandbox.

        It shares the workspace, variables, limits and `activate`. Directory, jobs, records and
        running command are separate. It lasts until its `end`, or as long as the first shell.

        Returns:
            The shell.

        Raises:
            EnvironmentStartFailed: It does not start, or `activate` fails or hangs.
            EnvironmentLost: The sandbox has ended.
        """
        first = self._first or self
        first.check_open()
        other = Shell(self.request, self.sandbox, self._channel, first)
        first._others.append(other)
        bound = STARTING + (self._config.activate_timeout if self._config.activate else 0)
        try:
            await other.start(asyncio.get_running_loop().time() + bound)
        except BaseException:
            await asyncio.shield(other._hang_up())
            raise
        return other

    another, async_another = both_forms(_another)

    async def _end(self) -> None:
        """End another shell and everything that runs in it. The sandbox and other shells remain.

        Raises:
            ValidationError: It is the first one, which ends with the environment.
        """
        if self._first is None:
            raise ValidationError(
                f"{self.name}: the first shell ends with its environment: release that"
            )
        await self._hang_up()

    end, async_end = both_forms(_end)

    async def _hang_up(self) -> None:
        self._ended = self._is_lost = True
        if self._first is not None and self in self._first._others:
            self._first._others.remove(self)
        self._close_mirror()
        with suppress(EnvironmentLost):
            await self._ask("hang_up")

    async def finish(self, bound: float, *, lost: bool = False) -> None:
        """Refuse new calls to this shell and to those started after it."""
        self._closed = True
        self._close_mirror()
        ends = [each.finish(bound, lost=lost) for each in self._others]
        await asyncio.gather(super().finish(bound, lost=lost), *ends)

    async def close(self) -> None:
        """End everything inside and remove the sandbox. Call on the background loop."""
        for each in (self, *self._others):
            each._close_mirror()
        await super().close()

    def _close_mirror(self) -> None:
        with _MIRRORS:
            if self._mirror is not None:
                self._mirror.close()

    async def start(self, deadline: float) -> None:
        """Start the terminal and run `activate`. Call on the background loop.

        Args:
            deadline: When the shell must be ready, by the clock of the loop.

        Raises:
            EnvironmentStartFailed: It does not start, or `activate` fails or hangs.
        """
        try:
            async with asyncio.timeout_at(deadline):
                await self._ask(
                    "terminal",
                    env=self._variables,
                    cwd=self.sandbox.workdir,
                    limits=dict(self.sandbox.resource_limits()),
                    folder=self._folder,
                    live=f"{self.sandbox.scratch}/{LIVE}-{self._number}",
                    secrets=self._secrets,
                )
        except TimeoutError:
            raise EnvironmentStartFailed(f"{self.name}: no shell started in time") from None
        except StepError as error:
            mend = "apt-get install tmux bash"
            if self.image:
                mend = "install them in the image, or use the default image"
            raise EnvironmentStartFailed(
                f"{error.message}. A shell needs tmux and bash: {mend}"
            ) from None
        await self._enter()

    async def _enter(self) -> None:
        """Run the spec's `activate` in a new shell."""
        if not self._left:
            return
        command = self._config.activate
        if command is not None:
            bound = self._config.activate_timeout
            result = await self._begin(
                checked_command(self.name, command), bound, bound + 2 * GRACE
            )
            if result.status != "done" or result.exit_code != 0:
                await self._ask("interrupt")
                how = result.status if result.status != "done" else f"exit code {result.exit_code}"
                raise EnvironmentStartFailed(
                    f"{self.name}: activate ({command}) failed: {how}; it wrote:\n"
                    f"{result.output[-2000:]}"
                )
            self._home = self._shells[0] if self._shells else 0
        self._left = False

    async def _wrong(self, text: bytes) -> ShellResult | None:
        """Return the result for a command with wrong or unfinished syntax, or None."""
        words = text.decode()
        if _PLAIN.fullmatch(words) is not None and not _WORDS & set(words.split()):
            return None  # it is evidently correct
        result = await self.program(CHECK, stdin=text + b"\n")
        unfinished = "here-document at line" in result.stderr
        if result.exit_code == 0 and not unfinished:
            return None
        cwd = self.sandbox.workdir
        raw = self._masked(result.stderr.encode())
        return ShellResult(0, "syntax_error", 2, raw.decode(), raw, result.duration, cwd)

    def _masked(self, data: bytes) -> bytes:
        return masked(data, [each.encode() for each in self._secrets])

    async def _ask(self, request: str, payload: bytes = b"", **options: Any) -> dict[str, Any]:
        """Send a request for its terminal, as the channel does."""
        return await self._channel.request(request, payload, terminal=self._number, **options)

    async def _begin(
        self,
        text: bytes,
        hard: float | None,
        wait: float | None,
        lines: LineAssembler | None = None,
    ) -> ShellResult:
        fields = {"timeout": hard, "grace": GRACE, "kept": self.limits.output or OUTPUT}
        return await self._answer(
            "type", text, lines, wait=wait, follow=lines is not None, **fields
        )

    async def _answer(
        self, request: str, payload: bytes = b"", lines: LineAssembler | None = None, **fields: Any
    ) -> ShellResult:
        parts = {"raw": bytearray(), "background": bytearray()}

        def on_answer(header: dict[str, Any], data: bytes) -> None:
            if header["part"] == "followed" and lines is not None:
                lines.feed(data)
            else:
                parts[header["part"]] += data

        try:
            answer = await self._ask(
                request, payload, about="command", on_answer=on_answer, **fields
            )
        except EnvironmentLost:
            self._is_lost = True
            raise
        result = shell_result(answer, bytes(parts["raw"]), bytes(parts["background"]))
        if not result.busy:
            result = self._with_limits(result)
        self._is_lost = self._is_lost or (result.status == "lost" and not result.shell_restarted)
        if result.busy or self._left:  # still running, or activating
            self._shells = answer["shells"]
            return result
        if not result.shell_restarted and (not self._home or self._home in answer["shells"]):
            return result
        self._left = True
        return result._replace(shell_restarted=True)

    def _with_limits(self, result: ShellResult) -> ShellResult:
        """Add the limits that a command reached."""
        timeout, counted = self._began
        killed = counted.killed
        file_is_full = names_refused_size(result.exit_code, result.output)
        notes = self.call_limits.met(
            killed=killed,
            refused=counted.refused,
            stopped=result.status,
            timeout=timeout,
            file=file_is_full,
        )
        failed = result.status != "done" or result.exit_code != 0
        stopped = result.status if result.status in {"timeout", "disk"} else None
        limit = limit_met(
            stopped, out_of_memory=killed and failed, file_is_full=file_is_full and failed
        )
        return result._replace(limit=limit, notes=notes)


def _secrets(request: Request) -> list[str]:
    # Resolved values look alike. Only the spec shows which ones are secrets.
    declared = getattr(request.spec.config, "env", None) or {}
    resolved = request.config.env if declared else {}
    processes = [
        str(resolved[name].reveal()) for name, value in declared.items() if hasattr(value, "reveal")
    ]
    return [text for text in processes if text]


# Checks commands, keys and waits for a shell before anything is typed.

LARGEST_COMMAND = 4 * 1024 * 1024
LARGEST_SIZE = 10_000
CHECK = ("bash", "--noprofile", "--norc", "-O", "extglob", "-n")
"""Program that reads a command and reports whether its syntax is wrong or unfinished."""
_PLAIN = re.compile(r"[A-Za-z0-9_./-]+( +[A-Za-z0-9_./:=,@%+-]+)*")
"""Commands that are complete unless their first word is a keyword of the language."""
_WORDS = frozenset(
    (
        *("if", "then", "elif", "else", "fi", "case", "esac", "in", "function", "time", "coproc"),
        *("for", "select", "while", "until", "do", "done"),
    )
)
_KEY = re.compile(
    r"(?:[CMS]-)*(?:[ -~]|Up|Down|Left|Right|Home|End|NPage|PPage|PageDown|PageUp|IC|DC|Tab|BTab"
    r"|Enter|Escape|Space|BSpace|F(?:[1-9]|1[0-2]))"
)


def checked_command(name: str, command: Any) -> bytes:
    """Return a command as bytes for the shell.

    Args:
        name: Names the environment in messages.
        command: The command to check.

    Raises:
        ValidationError: It is not text, is too long, or contains a null character.
    """
    if not isinstance(command, str):
        raise ValidationError(f"{name}: a command is a text, not {type(command).__name__}")
    if "\0" in command:
        raise ValidationError(f"{name}: a command has a null character: write it to a file")
    data = command.encode()
    if len(data) > LARGEST_COMMAND:
        raise ValidationError(
            f"{name}: a command of {size_text(len(data))}: at most "
            f"{size_text(LARGEST_COMMAND)} are allowed. Put it into a file and source that"
        )
    return data


def check_wait(name: str, wait: float | None) -> None:
    """Refuse an invalid wait.

    Args:
        name: Names the environment in messages.
        wait: Seconds to check. None: no bound.

    Raises:
        ValidationError: It is negative or infinite.
    """
    if wait is not None and not 0 <= wait < float("inf"):
        raise ValidationError(f"{name}: wait must be a number that is not negative, not {wait}")
