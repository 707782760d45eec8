"""Checks of an answer while it arrives: a portion that fails closes the request.

Followers receive each portion once it has passed. The steps of the checks judge the whole answer
afterwards, and their outcomes are in the journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from flowengine.agents.models.port import Listener, ModelReply, ReplyPart
from flowengine.sdk import Plain, StepError
from flowengine.sdk.errors import raised, type_of
from flowengine.sdk.python.user_code import in_time
from flowengine.sdk.texts.exception_text import message_of

Judges = Callable[[Mapping[str, Any], Mapping[str, Plain]], Awaitable[object]]
"""Calls the function of a check with arguments."""
PORTION = 200
"""Characters that arrive between two checks."""


class ArrivingText:
    """The text of a reply that arrives, which checks judge in portions.

    At most one portion is judged at a time. Text that arrives meanwhile belongs to the next one.

    Args:
        checks: The checks, in order: `check`, `function` and `arguments`.
        judges: Calls the function of a check with arguments.
        prompt: The message that is answered.
        pass_on: Receives the parts that have passed, if the attempt is followed.
    """

    def __init__(
        self,
        checks: Sequence[Mapping[str, Any]],
        judges: Judges,
        prompt: Plain,
        pass_on: Listener | None,
    ) -> None:
        self._checks = checks
        self._judges = judges
        self._prompt = prompt
        self._pass_on = pass_on
        self._waiting: list[ReplyPart] = []
        """Parts that have not passed yet."""
        self._passed = ""
        self._shows = False
        self._ends = False
        self._refused = False
        self._new = asyncio.Event()

    def __call__(self, part: ReplyPart) -> None:
        """Take the next part of the reply."""
        if part.kind == "restart":
            self._withdraw()
        else:
            self._waiting.append(part)
        if not self._new.is_set() and len(self._unjudged) >= PORTION:
            self._new.set()

    @property
    def _unjudged(self) -> str:
        return "".join(part.text for part in self._waiting if part.kind == "text")

    async def watch(self, request: Coroutine[Any, Any, ModelReply]) -> ModelReply:
        """Wait for a reply while its text is judged.

        Args:
            request: The request. It receives this object as its listener.

        Raises:
            StepError: A portion failed, and the request was closed. It has the type and message of
                the check's error. Its data is `check`, `text` and `unfinished`.
        """
        asked = asyncio.ensure_future(request)
        judged = asyncio.ensure_future(self._judge_portions())
        try:
            await asyncio.wait((asked, judged), return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                judged.result()  # raises
            reply = await asked
            self._ends = True
            self._new.set()
            await asyncio.wait((judged,))
        finally:
            asked.cancel()
            judged.cancel()
            await asyncio.gather(asked, judged, return_exceptions=True)
        await self.show_rest()
        return reply

    async def show_rest(self) -> None:
        """Pass on the rest of a complete reply, unless a check refuses it.

        Nothing is raised, because the steps of the checks judge the answer next.
        """
        if self._pass_on is not None and not self._refused:
            with suppress(StepError):
                await self._judge(whole=True)

    async def _judge_portions(self) -> None:
        while not self._ends:
            await self._new.wait()
            self._new.clear()
            if len(self._unjudged) >= PORTION:
                await self._judge()

    def _withdraw(self) -> None:
        """Have followers discard the portions of a reply that is not completed."""
        self._waiting.clear()
        self._passed = ""
        if self._pass_on is not None and self._shows:
            self._pass_on(ReplyPart("restart"))
        self._shows = False

    async def _judge(self, *, whole: bool = False) -> None:
        """Judge the text so far, and pass on the parts that it consists of.

        Reasoning is passed on with the `whole` text only, because nothing else judges it.
        """
        parts, unjudged = [*self._waiting], self._unjudged
        text = self._passed + unjudged
        try:
            for check in self._checks if unjudged else ():
                await self._call(check, text)
        except StepError:
            self._refused = True
            self._withdraw()
            raise
        if self._waiting[: len(parts)] != parts:
            return  # the reply began anew meanwhile
        held = [] if whole else [part for part in parts if part.kind == "reasoning"]
        self._waiting[: len(parts)] = held
        self._passed = text
        if self._pass_on is not None:
            self._shows = True
            for part in parts:
                if part not in held:
                    self._pass_on(part)

    async def _call(self, check: Mapping[str, Any], text: str) -> None:
        given = {"answer": text, "prompt": self._prompt}
        try:
            judged = self._judges(check, {name: given[name] for name in check["arguments"]})
            await in_time(judged, f"the check {check['check']!r}")
        except Exception as error:
            raise StepError(
                message_of(raised(error)),
                type=type_of(raised(error)),
                data={"check": check["check"], "text": text, "unfinished": True},
                retryable=False,
            ) from error
