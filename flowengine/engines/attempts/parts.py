"""Parts of a reply that an attempt forwards as they arrive, without storing them.

Texts are masked as streams, one for each kind and subject. The text of a reply and the arguments of
each call are separate streams, even if their pieces alternate.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from flowengine.engines.attempts.serialization import keep
from flowengine.kernel.graph.compiled import Plain
from flowengine.masking import StreamMasker
from flowengine.secrets import Secrets

Tell = Callable[[Mapping[str, "Plain"]], None]
"""Receives a part: `{part, text?, …}`."""


class AttemptParts:
    """The parts that one attempt forwards.

    Args:
        secrets: Secrets of the flow.
        tell: Receives each part, with secrets masked.
        end: Called when the attempt is over.
    """

    __slots__ = ("_lock", "_secrets", "_tell", "_texts", "close")

    def __init__(self, secrets: Secrets, tell: Tell, end: Callable[[], None]) -> None:
        self.close = end
        self._secrets = secrets
        self._tell = tell
        self._texts: dict[str, tuple[Mapping[str, Any], StreamMasker]] = {}
        self._lock = threading.Lock()

    def feed(self, part: str, text: str | None, data: Mapping[str, Plain]) -> None:
        """Receive a part.

        Args:
            part: Its kind.
            text: The next piece of a text. None: the part has no text.
            data: The subject of the text. For a part without text, its content.

        Raises:
            ValidationError: The data is not plain data.
        """
        with self._lock:
            shown: dict[str, Any] = {"part": part} | self._secrets.mask(keep(dict(data)).value)
            if text is not None:
                subject = repr(shown)
                if subject not in self._texts:
                    self._texts[subject] = (shown.copy(), self._secrets.stream())
                stream = self._texts[subject][1]
                shown["text"] = stream.feed(text)
                if text and not shown["text"]:
                    return
            elif part == "end":
                self._pass_rest_on()
            elif part in ("start", "restart"):
                self._texts.clear()
            self._tell(shown)

    def _pass_rest_on(self) -> None:
        """Forward the text that was held back because it might have started a secret."""
        for subject, stream in self._texts.values():
            rest = stream.close()
            if rest:
                self._tell({**subject, "text": rest})
        self._texts.clear()
