"""The engine's side of a supervisor: requests out, answers in, over the streams of one program.

Many requests run at once; an answer goes to the request it carries the number of, and to nobody
when that one is no longer waited for. All of it runs on the loop on which it was opened.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from flowengine.sdk import (
    EnvironmentBusy,
    EnvironmentLost,
    EnvironmentStartFailed,
    LimitExceeded,
    NotAFile,
    PathEscape,
    StepError,
    ToolError,
    ValidationError,
)
from flowengine.sdk.coroutines import uncut
from flowengine.sdk.environments import Program
from flowengine_envs.link import bootstrap, frames

COMMAND = ["python3", "-I", "-S", "-c", bootstrap.SCRIPT, "0"]
"""What starts a supervisor; the rest comes over its input."""
PING = 5.0
"""Seconds within which a supervisor answers a ping, whatever else it does."""
QUIET = 10.0
"""Seconds between looks at a supervisor that owes an answer: if it was silent, it is pinged."""
PINGS = 4
"""Pings without an answer after which it counts as lost."""
_LOG = 4096
_READ = 1 << 18
_ENDING = 3.0
"""Seconds for an end that was asked for."""
_FAULTS: dict[str, type[StepError]] = {
    "bad_request": ValidationError,
    "escape": PathEscape,
    "no_file": NotAFile,
    "missing": NotAFile,
    "too_large": LimitExceeded,
    "busy": EnvironmentBusy,
    "gone": EnvironmentLost,
}

Said = Callable[[dict[str, Any], bytes], None]


class Exchange:
    """A request and what comes back for it.

    Args:
        id: Its number.
        said: Called with each answer but the last.
        about: What it is about, for messages.
    """

    def __init__(self, id: int, said: Said | None, about: str) -> None:
        self.id = id
        self.said = said
        self.about = about
        self.done: asyncio.Future[tuple[dict[str, Any], bytes]] = (
            asyncio.get_running_loop().create_future()
        )


class Channel:
    """A connection to a supervisor.

    Args:
        program: The supervisor, just started.
        name: Names the environment in messages.
        late: Called with output that comes after the end of its call.
    """

    def __init__(self, program: Program, name: str, late: Said | None = None) -> None:
        assert program.stdin is not None
        assert program.stdout is not None
        self.name = name
        self._program = program
        self._input = program.stdin
        self._output = program.stdout
        self._late = late
        self._log = bytearray()
        self._exchanges: dict[int, Exchange] = {}
        self._last = 0
        self._lost = False
        self._closing = False
        self.cause: Callable[[], str] = lambda: ""
        """Says why all of it may have ended, for the message of a loss."""
        self._loop = asyncio.get_running_loop()
        key = os.urandom(frames.KEY)
        self._sealer = frames.Sealer(key, frames.TO_SUPERVISOR)
        self._opener = frames.Opener(key, frames.TO_ENGINE)
        self._input.write(bootstrap.supervisor() + key)
        self._heard = 0
        """How often something came from it."""
        self._watcher = asyncio.ensure_future(self._watch())
        self._readers = [asyncio.ensure_future(self._read())]
        if program.stderr is not None:
            self._readers.append(asyncio.ensure_future(self._read_log(program.stderr)))

    @property
    def alive(self) -> bool:
        """Whether the supervisor is there, as far as is known."""
        return not self._lost and not self._closing

    @property
    def log(self) -> str:
        """The last that the supervisor said on its standard error."""
        return self._log.decode(errors="replace").strip()

    async def hello(self, deadline: float, **fields: Any) -> Mapping[str, Any]:
        """Wait until the supervisor answers.

        Args:
            deadline: When it must have, by the clock of the loop.
            fields: What it has to know.

        Returns:
            What it says of itself.

        Raises:
            EnvironmentStartFailed: It did not answer in time, or ended.
        """
        try:
            async with asyncio.timeout_at(deadline):
                exchange = self.begin("hello", version=frames.VERSION, **fields)
                return await self.end(exchange, withdraw=False)
        except TimeoutError:
            raise EnvironmentStartFailed(
                f"{self.name} did not answer in time{self._last_words()}"
            ) from None
        except StepError as error:
            await asyncio.wait(self._readers, timeout=0.5)  # for its last words
            raise EnvironmentStartFailed(
                f"{self.name} did not start: {error.message}{self._last_words()}"
            ) from None

    async def ping(self) -> bool:
        """Return whether the supervisor answers."""
        try:
            async with asyncio.timeout(PING):
                await self.request("ping")
        except (TimeoutError, StepError):
            return False
        return True

    async def request(
        self,
        name: str,
        payload: bytes = b"",
        about: str = "",
        said: Said | None = None,
        **fields: Any,
    ) -> dict[str, Any]:
        """Send a request and wait for its end.

        Cancelling the wait cancels the request, and goes on when that has ended.

        Args:
            name: What is asked for.
            payload: Bytes that go with it.
            about: What it is about, for messages.
            said: Called with answers before the last; an error that it raises ends the request.
            fields: Its fields.

        Returns:
            The last answer, and under `payload` what came with it.

        Raises:
            EnvironmentLost: The supervisor is gone.
            StepError: It cannot be done.
        """
        exchange = self.begin(name, payload, about, said, **fields)
        return await self.end(exchange)

    def begin(
        self,
        name: str,
        payload: bytes = b"",
        about: str = "",
        said: Said | None = None,
        **fields: Any,
    ) -> Exchange:
        """Send a request, to be awaited by `end`; arguments and errors as of `request`."""
        if self._lost:
            raise self._loss()
        self._last += 1
        exchange = Exchange(self._last, said, about)
        self._exchanges[exchange.id] = exchange
        self.tell(name, payload, id=exchange.id, **fields)
        return exchange

    async def end(self, exchange: Exchange, *, withdraw: bool = True) -> dict[str, Any]:
        """Wait for the end of a request, which cancelling ends; returns and raises as `request`."""
        try:
            header, payload = await asyncio.shield(exchange.done)
        except asyncio.CancelledError:
            if withdraw and not exchange.done.done():
                await uncut(self._withdraw(exchange))
            raise
        finally:
            self._exchanges.pop(exchange.id, None)
        fault = header.get("fault")
        if fault is not None:
            raise self._fault(fault, exchange.about)
        return {**header, "payload": payload}

    async def feed(self, exchange: Exchange, *parts: bytes | Path) -> None:
        """Send what a request reads after it was begun, as fast as it is taken.

        Args:
            exchange: The request; when it ends before, the rest is not sent.
            parts: Bytes, and files of this machine, one behind the other.
        """
        try:
            for piece, last in _pieces(parts):
                if exchange.done.done():
                    break
                self.tell("write", piece, to=exchange.id, last=last)
                await self.drained()
        except BaseException:
            self.tell("cancel", to=exchange.id)
            self._exchanges.pop(exchange.id, None)
            raise

    def tell(self, name: str, payload: bytes = b"", **fields: Any) -> None:
        """Send a request whose answer nobody waits for."""
        # Frames are numbered: two threads at once would spoil the connection.
        assert asyncio.get_running_loop() is self._loop, "a channel is used on its own loop"
        fields.setdefault("id", 0)
        if not self._lost:
            self._input.write(self._sealer.seal({"request": name, **fields}, payload))

    async def drained(self) -> None:
        """Wait until the supervisor has taken most of what was sent."""
        with suppress(ConnectionError):
            await self._input.drain()

    async def close(self, grace: float = _ENDING) -> None:
        """End the supervisor and all that it runs.

        Args:
            grace: Seconds it has before it is killed.
        """
        self._closing = True
        with suppress(OSError, RuntimeError):
            self._input.close()
        try:
            async with asyncio.timeout(grace):
                await self._program.wait()
        except TimeoutError:
            self._program.kill()
            with suppress(TimeoutError):  # the end of the sandbox ends it in any case
                async with asyncio.timeout(_ENDING):
                    await self._program.wait()
        finally:
            self._lose()
            tasks = [self._watcher, *self._readers]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _withdraw(self, exchange: Exchange) -> None:
        """Have a request ended, and wait until it has."""
        if not self._lost:
            self.tell("cancel", to=exchange.id)
            await asyncio.wait([exchange.done], timeout=_ENDING)

    async def _read(self) -> None:
        try:
            while data := await self._output.read(_READ):
                self._heard += 1
                for each in self._opener.feed(data):
                    if isinstance(each, frames.Message):
                        self._take(each)
                    else:
                        self._give_up(each)
        except (OSError, frames.Unauthentic):
            pass  # something in the sandbox wrote into the channel: nothing of it can be believed
        finally:
            self._lose()

    async def _watch(self) -> None:
        """Lose a supervisor that does not answer: where code can see it, code can stop it."""
        pings, heard = 0, self._heard
        while not self._lost:
            await asyncio.sleep(QUIET)
            if self._heard != heard or not self._exchanges:
                pings, heard = 0, self._heard
            elif pings == PINGS:  # counted, since the machine may have slept meanwhile
                self._program.kill()
                self._lose()
            else:
                pings += 1
                self.tell("ping")

    def _take(self, message: frames.Message) -> None:
        header = message.header
        if "late" in header:
            if self._late is not None:
                self._late(header, message.payload)
            return
        exchange = self._exchanges.get(header.get("id") or 0)
        if exchange is None:
            return
        if header.get("done"):
            if not exchange.done.done():
                exchange.done.set_result((header, message.payload))
        elif exchange.said is not None and not exchange.done.done():
            try:
                exchange.said(header, message.payload)
            except Exception as error:  # what the caller cannot take harms no other request
                exchange.done.set_exception(error)
                exchange.done.exception()  # the caller may have been cancelled
                self.tell("cancel", to=exchange.id)

    def _give_up(self, unusable: frames.Unusable) -> None:
        """End the request whose answer cannot be read; it is not answered again."""
        exchange = self._exchanges.get(unusable.id or 0)
        if exchange is not None and not exchange.done.done():
            fault = {"kind": "failed", "message": f"its answer cannot be read: {unusable.reason}"}
            exchange.done.set_result(({"done": True, "fault": fault}, b""))

    async def _read_log(self, stream: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while data := await stream.read(_LOG):
                self._log = (self._log + data)[-_LOG:]

    def _lose(self) -> None:
        if self._lost:
            return
        self._lost = True
        with suppress(OSError, RuntimeError):
            self._input.close()
        for exchange in self._exchanges.values():
            if not exchange.done.done():
                exchange.done.set_exception(self._loss())
                exchange.done.exception()  # it may be that nobody waits any more

    def _loss(self) -> EnvironmentLost:
        cause = self.cause()
        why = f": {cause}" if cause else ""
        return EnvironmentLost(
            f"{self.name} is gone: its processes have ended{why}{self._last_words()}"
        )

    def _fault(self, fault: Mapping[str, str], about: str) -> StepError:
        kind, message = fault["kind"], fault["message"]
        what = f"{about}: {message}" if about else message
        return _FAULTS.get(kind, ToolError)(f"{self.name}: {what}", retryable=kind == "busy")

    def _last_words(self) -> str:
        return f"; it said: {self.log}" if self.log else ""


def _pieces(parts: Iterable[bytes | Path]) -> Iterator[tuple[bytes, bool]]:
    """Yield the pieces of bytes and of files, and with each whether it is the last."""
    pieces = (piece for part in parts for piece in _pieces_of(part))
    piece = next(pieces, b"")
    for following in pieces:
        yield piece, False
        piece = following
    yield piece, True


def _pieces_of(part: bytes | Path) -> Iterator[bytes]:
    if isinstance(part, Path):
        with part.open("rb") as file:
            while piece := file.read(frames.PIECE):
                yield piece
    else:
        for start in range(0, len(part), frames.PIECE):
            yield part[start : start + frames.PIECE]
