"""The engine's side of a supervisor: requests and answers over the streams of one program.

Many requests run concurrently. An answer is delivered to the request whose number it carries, or
dropped if that request is no longer awaited. Everything runs on the event loop that opened it.
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
    StepError,
    ToolError,
    ValidationError,
)
from flowengine.sdk.environments import Program
from flowengine.sdk.python.user_code import uncut
from flowengine_envs.link import bootstrap, frames
from flowengine_envs.link.logs import Log
from flowengine_envs.workspaces.outside_files import FAULTS

COMMAND = ["python3", "-I", "-S", "-c", bootstrap.SCRIPT, "0"]
"""Command that starts a supervisor. Its program arrives on its standard input."""
QUIET = 10.0
"""Seconds of silence after which a supervisor with pending requests is pinged."""
PINGS = 4
"""Pings without an answer after which it counts as lost."""
_READ = 1 << 18
_ENDING = 3.0
"""Seconds for a requested shutdown."""
_FAULTS: dict[str, type[StepError]] = {
    **FAULTS,
    "bad_request": ValidationError,
    "busy": EnvironmentBusy,
    "gone": EnvironmentLost,
}

OnAnswer = Callable[[dict[str, Any], bytes], None]


class Exchange:
    """A request and its answers.

    Args:
        id: Its number.
        on_answer: Called with each answer but the last.
        about: Its subject, for messages.
    """

    def __init__(self, id: int, on_answer: OnAnswer | None, about: str) -> None:
        self.id = id
        self.on_answer = on_answer
        self.about = about
        self.done: asyncio.Future[tuple[dict[str, Any], bytes]] = (
            asyncio.get_running_loop().create_future()
        )


class Channel:
    """A connection to a supervisor.

    Args:
        program: The newly started supervisor.
        name: Names the environment in messages.
    """

    def __init__(self, program: Program, name: str) -> None:
        assert program.stdin is not None
        assert program.stdout is not None
        self.name = name
        self._program = program
        self._input = program.stdin
        self._output = program.stdout
        self.on_late: OnAnswer | None = None
        """Called with output that arrives after the end of its call."""
        self._log = Log()
        self._exchanges: dict[int, Exchange] = {}
        self._last = 0
        self._lost = False
        self._closing = False
        self.cause: Callable[[], str] = lambda: ""
        """Returns why everything may have ended, for the message of a loss."""
        self._loop = asyncio.get_running_loop()
        key = os.urandom(frames.KEY)
        self._sealer = frames.Sealer(key, frames.TO_SUPERVISOR)
        self._opener = frames.Opener(key, frames.TO_ENGINE)
        self._input.write(bootstrap.supervisor() + key)
        self._received = 0
        """Number of times that data arrived from it."""
        self._watcher = asyncio.ensure_future(self._watch())
        self._readers = [
            asyncio.ensure_future(each) for each in (self._read(), self._log.read(program.stderr))
        ]

    @property
    def alive(self) -> bool:
        """Whether the supervisor runs, as far as is known."""
        return not self._lost and not self._closing

    async def hello(self, deadline: float, **fields: Any) -> Mapping[str, Any]:
        """Wait until the supervisor answers.

        Args:
            deadline: Time limit for that, by the clock of the loop.
            fields: Facts that it needs.

        Returns:
            Its description of the sandbox.

        Raises:
            EnvironmentStartFailed: It did not answer in time, or ended.
        """
        try:
            async with asyncio.timeout_at(deadline):
                exchange = self.send_request("hello", version=frames.VERSION, **fields)
                return await self.end(exchange, withdraw=False)
        except TimeoutError:
            raise EnvironmentStartFailed(
                f"{self.name} did not answer in time{self._last_words()}"
            ) from None
        except StepError as error:
            await asyncio.wait(self._readers, timeout=0.5)  # for its last output
            raise EnvironmentStartFailed(
                f"{self.name} did not start: {error.message}{self._last_words()}"
            ) from None

    async def request(self, name: str, payload: bytes = b"", **options: Any) -> dict[str, Any]:
        """Send a request and wait for its end.

        Cancelling the wait cancels the request, and returns once that has ended.

        Args:
            name: Kind of request.
            payload: Bytes to send with it.
            options: `about`, `on_answer` and fields, as for `send_request`.

        Returns:
            The last answer, with its bytes under `payload`.

        Raises:
            EnvironmentLost: The supervisor has ended.
            StepError: The request failed.
        """
        return await self.end(self.send_request(name, payload, **options))

    def send_request(
        self,
        name: str,
        payload: bytes = b"",
        about: str = "",
        on_answer: OnAnswer | None = None,
        **fields: Any,
    ) -> Exchange:
        """Send a request, to be awaited by `end`. Arguments and errors are those of `request`."""
        if self._lost:
            raise self._loss()
        self._last += 1
        exchange = Exchange(self._last, on_answer, about)
        try:
            self.send(name, payload, id=exchange.id, **fields)
        except frames.TooLong as error:
            raise ValidationError(f"{self.name}: {error}: use a file of the workspace") from None
        self._exchanges[exchange.id] = exchange
        return exchange

    async def end(self, exchange: Exchange, *, withdraw: bool = True) -> dict[str, Any]:
        """Wait for the end of a request like `request`. Cancelling ends the request."""
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
            kind, message = fault["kind"], fault["message"]
            what = f"{exchange.about}: {message}" if exchange.about else message
            raise _FAULTS.get(kind, ToolError)(f"{self.name}: {what}", retryable=kind == "busy")
        return {**header, "payload": payload}

    async def feed(self, exchange: Exchange, *parts: bytes | Path) -> None:
        """Send input to a started request, at the speed of the receiver.

        Args:
            exchange: The request. If it ends early, the rest is not sent.
            parts: Bytes and files of this machine, in order.
        """
        try:
            for piece, last in _pieces(parts):
                if exchange.done.done():
                    break
                self.send("write", piece, to=exchange.id, last=last)
                with suppress(ConnectionError):
                    await self._input.drain()
        except BaseException:
            self.send("cancel", to=exchange.id)
            self._exchanges.pop(exchange.id, None)
            raise

    def send(self, name: str, payload: bytes = b"", **fields: Any) -> None:
        """Send a request without waiting for its answer."""
        # Frames are numbered, so concurrent threads would break the connection.
        assert asyncio.get_running_loop() is self._loop, "a channel is used on its own loop"
        if not self._lost:
            header = {"id": fields.pop("id", 0), "request": name, **fields}
            self._input.write(self._sealer.seal(header, payload))

    async def close(self, grace: float = _ENDING) -> None:
        """End the supervisor and all its programs.

        Args:
            grace: Seconds until it is killed.
        """
        self._closing = True
        with suppress(OSError, RuntimeError):
            self._input.close()
        try:
            async with asyncio.timeout(grace):
                await self._program.wait()
        except TimeoutError:
            self._program.kill()
            with suppress(TimeoutError):  # The end of the sandbox ends it in any case.
                async with asyncio.timeout(_ENDING):
                    await self._program.wait()
        finally:
            self._lose()
            tasks = [self._watcher, *self._readers]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _withdraw(self, exchange: Exchange) -> None:
        """Cancel a request, and wait until it has ended."""
        if not self._lost:
            self.send("cancel", to=exchange.id)
            await asyncio.wait([exchange.done], timeout=_ENDING)

    async def _read(self) -> None:
        try:
            while data := await self._output.read(_READ):
                self._received += 1
                for each in self._opener.feed(data):
                    if isinstance(each, frames.LinkMessage):
                        self._dispatch(each)
                    else:
                        raise frames.Unauthentic(each.reason)
        except OSError:
            pass
        except frames.Unauthentic:  # A program in the sandbox wrote into the channel.
            self._program.kill()
        finally:
            self._lose()

    async def _watch(self) -> None:
        """Treat a supervisor that does not respond as lost, because code may be able to stop it."""
        pings, received = 0, self._received
        while not self._lost:
            await asyncio.sleep(QUIET)
            if self._received != received or not self._exchanges:
                pings, received = 0, self._received
            elif pings == PINGS:  # Pings are counted, because the machine may have been suspended.
                self._program.kill()
                self._lose()
            else:
                pings += 1
                self.send("ping")

    def _dispatch(self, message: frames.LinkMessage) -> None:
        header = message.header
        if "late" in header:
            if self.on_late is not None:
                self.on_late(header, message.payload)
            return
        exchange = self._exchanges.get(header.get("id") or 0)
        if exchange is None:
            return
        if header.get("done"):
            if not exchange.done.done():
                exchange.done.set_result((header, message.payload))
        elif exchange.on_answer is not None and not exchange.done.done():
            try:
                exchange.on_answer(header, message.payload)
            # An error in the caller's function must not affect other requests.
            except Exception as error:
                exchange.done.set_exception(error)
                exchange.done.exception()  # The caller may have been cancelled.
                self.send("cancel", to=exchange.id)

    def _lose(self) -> None:
        if self._lost:
            return
        self._lost = True
        with suppress(OSError, RuntimeError):
            self._input.close()
        for exchange in self._exchanges.values():
            if not exchange.done.done():
                exchange.done.set_exception(self._loss())
                exchange.done.exception()  # The caller may have been cancelled.

    def _loss(self) -> EnvironmentLost:
        cause = self.cause()
        why = f": {cause}" if cause else ""
        return EnvironmentLost(
            f"{self.name} is gone: its processes have ended{why}{self._last_words()}"
        )

    def _last_words(self) -> str:
        return f"; it said: {words}" if (words := str(self._log)) else ""


def _pieces(parts: Iterable[bytes | Path]) -> Iterator[tuple[bytes, bool]]:
    """Yield the pieces of bytes and files, each with whether it is the last."""
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
