"""Tells a listener of a reply that arrives."""

from __future__ import annotations

import logging

from flowengine.agents.models.port import FunctionCalling, Listener, ModelRequest, ReplyPart
from flowengine.agents.models.replies import as_unicode, form_of
from flowengine.agents.text_calls.streaming import StreamFilter

_log = logging.getLogger("flowengine.agents")


class Teller:
    """Passes on what arrives, without the syntax of calls where they come as text.

    Args:
        listen: Who is told; None: nobody.
        request: What was asked.
        calling: How the tools were offered.
    """

    def __init__(
        self, listen: Listener | None, request: ModelRequest, calling: FunctionCalling
    ) -> None:
        self._listen = listen
        self._filter: StreamFilter | None = None
        if calling == "text":
            self._filter = StreamFilter(form_of(request))
        self._told = False
        self._tell(ReplyPart("start"))

    def text(self, piece: str) -> None:
        """Take the next piece of the text."""
        piece = as_unicode(piece)
        shown = self._filter.feed(piece) if self._filter else piece
        self._tell_piece(ReplyPart("text", shown))

    def reasoning(self, piece: str) -> None:
        """Take the next piece of the reasoning."""
        self._tell_piece(ReplyPart("reasoning", as_unicode(piece)))

    def call(self, id: str, tool: str | None, piece: str) -> None:
        """Take the next piece of a call's arguments."""
        self._told = True
        self._tell(ReplyPart("call", as_unicode(piece), id, tool))

    def end(self, ended: str) -> None:
        """Take the end of the reply."""
        if self._filter:
            rest = self._filter.close("length" if ended == "length" else "stop")
            self._tell_piece(ReplyPart("text", rest))
        self._tell(ReplyPart("end"))

    def broke_off(self) -> bool:
        """Say that the reply will not be completed, if anything of it was told.

        Returns:
            Whether anything was.
        """
        if self._told:
            self._tell(ReplyPart("restart"))
        return self._told

    def _tell_piece(self, part: ReplyPart) -> None:
        if part.text:
            self._told = True
            self._tell(part)

    def _tell(self, part: ReplyPart) -> None:
        """Tell the listener; one that fails is told no more, and costs no reply."""
        if self._listen is None:
            return
        try:
            self._listen(part)
        except Exception:
            self._listen = None
            _log.exception("a listener to a reply failed, and gets no more of it")
