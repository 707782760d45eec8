"""Payloads as Temporal's own page and command line show them.

These programs send payloads to a codec server (https://docs.temporal.io/codec-server). What they
get back is JSON, because they can show nothing else.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload

from flowengine.engines.temporal.payloads import PACKED
from flowengine.errors import FlowEngineError, InputError
from flowengine.journal.encoding import unpack

if TYPE_CHECKING:
    from flowengine.engines.temporal.payloads import Codec

LARGEST_SHOWN = 1024 * 1024
"""Maximum bytes of a payload to show."""
MOST_SHOWN = 8 * 1024 * 1024
"""Maximum bytes of all payloads in one answer."""
_DEEPEST = 100
_BYTES = b"binary/plain"
_JSON = b"json/plain"
_DAMAGED = (FlowEngineError, DecodeError, ValueError, TypeError, KeyError, RecursionError)


class PayloadPage:
    """Decodes and encodes payloads for pages.

    Args:
        codec: That of the store.
        call: Runs a coroutine of the codec.
    """

    def __init__(self, codec: Codec, call: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._codec = codec
        self._call = call

    def decoded(self, given: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return payloads, readable. Text replaces those that are too large, or not readable.

        Args:
            given: The payloads in their JSON form: `metadata` (name → base64), `data` (base64).

        Raises:
            InputError: They are not in this form.
        """
        left, events = MOST_SHOWN, []
        for payload in _read(given):
            shown = self._shown(payload, min(left, LARGEST_SHOWN))
            left -= len(shown.data)
            events.append(_written(shown))
        return events

    def encoded(self, given: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return payloads as they are sent to Temporal.

        Raises:
            InputError: They are not in the JSON form of payloads.
            StoreError: The object store does not work.
        """
        return [*map(_written, self._call(self._codec.encode(_read(given))))]

    def _shown(self, payload: Payload, most: int) -> Payload:
        try:
            if (size := self._call(self._codec.size(payload))) > most:
                return _note(f"a value of {size} bytes is too large to be shown here")
            [decoded] = self._call(self._codec.decode([payload]))
            shown = _readable(decoded)
        except _DAMAGED as error:
            said = error.message if isinstance(error, FlowEngineError) else "it is damaged"
            return _note(f"a value cannot be decoded: {said}")
        if len(shown.data) > most:
            return _note(f"a value of {len(shown.data)} bytes is too large to be shown here")
        return shown


def _read(given: Sequence[Mapping[str, Any]]) -> list[Payload]:
    """Return payloads from their JSON form."""
    try:
        return [
            Payload(
                metadata={
                    name: b64decode(value, validate=True)
                    for name, value in item["metadata"].items()
                },
                data=b64decode(item["data"], validate=True),
            )
            for item in given
        ]
    except ValueError as error:
        raise InputError(f"a payload is not base64: {error}", field="payloads") from None


def _written(payload: Payload) -> dict[str, Any]:
    """Return the JSON form of a payload."""
    metadata = {name: b64encode(value).decode() for name, value in payload.metadata.items()}
    return {"metadata": metadata, "data": b64encode(payload.data).decode()}


def _readable(payload: Payload) -> Payload:
    """Return packed data as JSON, and everything else unchanged."""
    encoding = payload.metadata.get("encoding", b"")
    if encoding not in (PACKED.encode(), _BYTES):
        return payload
    value = unpack(payload.data) if encoding != _BYTES else payload.data
    text = json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)
    return Payload(metadata={"encoding": _JSON}, data=text.encode("utf-8", "backslashreplace"))


def _plain(value: Any, depth: int = 0) -> Any:
    """Return data for JSON. Bytes are unpacked, as inputs of attempts and events are packed twice.

    Raises:
        ValueError: It is nested too deeply.
    """
    if depth > _DEEPEST:
        raise ValueError("too deep")
    if isinstance(value, bytes):
        try:
            data = unpack(value)
        except _DAMAGED:
            data = None
        if not isinstance(data, dict | list):
            return b64encode(value).decode()
        return _plain(data, depth + 1)
    if isinstance(value, dict):
        return {str(key): _plain(part, depth + 1) for key, part in value.items()}
    return [_plain(part, depth + 1) for part in value] if isinstance(value, list) else value


def _note(text: str) -> Payload:
    """Return a text in place of a payload."""
    return Payload(metadata={"encoding": _JSON}, data=json.dumps(text).encode())
