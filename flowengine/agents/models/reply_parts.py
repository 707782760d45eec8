"""Notification of a listener about an arriving reply."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from flowengine.agents.models.port import FunctionCalling, Listener, ModelRequest, ReplyPart
from flowengine.agents.models.replies import as_unicode, form_of
from flowengine.agents.text_calls.streaming import Shown, StreamFilter

_log = logging.getLogger("flowengine.agents")


class GuardedListener:
    """Calls a listener. After an error, the listener is dropped and the reply continues.

    Args:
        listen: The listener, if any.
    """

    def __init__(self, listen: Listener | None) -> None:
        self.listen = listen

    def __call__(self, part: ReplyPart) -> None:
        """Pass a part on."""
        if self.listen is None:
            return
        try:
            self.listen(part)
        except Exception:
            self.listen = None
            _log.exception("a listener to a reply failed, and gets no more of it")


class PartSender:
    """Passes on arriving parts: reasoning separately, and text without the syntax of text calls.

    Args:
        listen: The listener, if any.
        request: The request.
        calling: How the tools were offered.
    """

    def __init__(
        self, listen: Listener | None, request: ModelRequest, calling: FunctionCalling
    ) -> None:
        self._listen = GuardedListener(listen)
        self._filter = StreamFilter(form_of(request) if calling == "text" else None)
        self._calls: list[ReplyPart] = []
        self._sent = False
        self._listen(ReplyPart("start"))

    def text(self, piece: str) -> None:
        """Process the next piece of the text."""
        self._send_shown(self._filter.feed(as_unicode(piece)))

    def reasoning(self, piece: str) -> None:
        """Process the next piece of the reasoning."""
        self._filter.reasoning(piece)
        self._send_piece(ReplyPart("reasoning", as_unicode(piece)))

    def call(self, id: str, tool: str | None, piece: str) -> None:
        """Process the next piece of a call's arguments."""
        self._sent = True
        self._calls.append(ReplyPart("call", as_unicode(piece), id, tool))
        self._listen(self._calls[-1])

    def end(self, ended: str) -> None:
        """Process the end of the reply."""
        self._send_shown(self._filter.close("length" if ended == "length" else "stop"))
        self._listen(ReplyPart("end"))

    def broke_off(self) -> bool:
        """Send `restart` if any part was sent, because the reply will not be completed.

        Returns:
            Whether any part was sent.
        """
        if self._sent:
            self._listen(ReplyPart("restart"))
        return self._sent

    def _send_shown(self, shown: Iterable[Shown]) -> None:
        for kind, text in shown:
            if kind == "restart":
                for part in (ReplyPart("restart"), ReplyPart("start"), *self._calls):
                    self._listen(part)
            else:
                self._send_piece(ReplyPart(kind, text))

    def _send_piece(self, part: ReplyPart) -> None:
        if part.text:
            self._sent = True
            self._listen(part)
