"""Encoding of data sent to and received from Temporal.

Data is packed as in every other store. Text is left unchanged, so that Temporal's web interface can
show summaries and memos.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from hashlib import sha256
from math import inf
from time import monotonic
from typing import Any, TypeVar

import msgpack  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverter,
    DefaultFailureConverterWithEncodedAttributes,
    DefaultPayloadConverter,
    EncodingPayloadConverter,
    PayloadCodec,
)

from flowengine import errors
from flowengine.engines.memory.records import KeptClaim
from flowengine.engines.temporal.keys import Keys, keys, no_key
from flowengine.engines.temporal.objects import VARIABLE, Objects
from flowengine.errors import Conflict, FlowEngineError, Hint, InputError, StoreError
from flowengine.journal import records
from flowengine.journal.encoding import pack, unpack
from flowengine.journal.store import MovedWorkspace

T = TypeVar("T")
U = TypeVar("U")
PACKED = "binary/msgpack"
"""The encoding of maps, lists and records."""
_REFERENCE = b"binary/flowengine-reference"
_IN_PARTS = b"binary/flowengine-parts"
_ENCRYPTED = b"binary/flowengine-encrypted"
_KEY = "key"
_MARK = "by-reference"
LARGE = 64 * 1024
"""Bytes of a payload from which it is kept in the object store."""
PART = 32 * 1024
"""Bytes of a part of a larger payload, at least half of them, at most twice as many."""
_MESSAGE = b"\xa4role"
"""The beginning of a message of a conversation, packed."""
_DIGEST = 32
"""Bytes of a digest in a list of parts."""
_AT_ONCE = 16
"""Number of parts that are sent or fetched at the same time."""
_AGAIN_SECONDS = 24 * 60 * 60.0
"""After this time, a value is sent again, so that a rule of the object store that removes old
objects does not remove it while it is in use."""
_ALWAYS_SAME = {"deterministic": True}
"""The same payload must give the same bytes, because these name it."""
_MOST_CACHED = 64 * 1024 * 1024
"""Bytes of such payloads to keep in memory."""


_RECORDS: Mapping[str, Any] = {
    kind.__name__: kind
    for kind in (*vars(records).values(), KeptClaim, MovedWorkspace)
    if isinstance(kind, type) and issubclass(kind, tuple)
}
_ERRORS: Mapping[str, type[FlowEngineError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, FlowEngineError)
}
_RECORD, _ERROR = 1, 2
"""Types of msgpack's extensions: a record of a store, and an error."""


def packed(value: Any) -> bytes:
    """Return data as bytes, in which records and errors of stores are kept as such.

    Raises:
        InputError: It contains something else that is not plain data, or is too large or nested too
            deeply.
    """
    return pack(value, _as_extension)


def unpacked(data: bytes) -> Any:
    """Return what `packed` has encoded.

    Raises:
        StoreError: It is damaged.
    """
    return unpack(data, _of_extension)


def _as_extension(value: Any) -> Any:
    name = type(value).__name__
    if name in _RECORDS:
        return msgpack.ExtType(_RECORD, packed([name, *value]))
    if isinstance(value, FlowEngineError):
        hint = value.hint
        hints = [str(hint), hint.cli, hint.http] if isinstance(hint, Hint) else hint
        standing = getattr(value, "standing", None)
        shown = standing if type(standing).__name__ in _RECORDS else None
        return msgpack.ExtType(_ERROR, packed([name, value.message, hints, shown]))
    if isinstance(value, tuple):
        return [*value]
    raise TypeError(f"a {name}")


def _of_extension(code: int, data: bytes) -> Any:
    name, *given = unpacked(data)
    if code == _RECORD and name in _RECORDS:
        return _RECORDS[name](*given)
    if code != _ERROR:
        raise ValueError(f"{name} is not a record")
    message, hints, standing = given
    error = _ERRORS.get(name, StoreError)(
        message, hint=Hint(*hints) if isinstance(hints, list) else hints
    )
    if isinstance(error, Conflict):
        error.standing = standing
    return error


class _Packed(EncodingPayloadConverter):
    """Encodes maps, lists and records."""

    @property
    def encoding(self) -> str:
        return PACKED

    def to_payload(self, value: Any) -> Payload | None:
        if not isinstance(value, dict | list | tuple):
            return None
        # Values that are not plain must fail here, because the JSON converter, which is next, would
        # change them.
        metadata = {"encoding": PACKED.encode()}
        if isinstance(value, ByReference):
            metadata[_MARK] = b"1"
            value = dict(value)
        return Payload(metadata=metadata, data=packed(value))

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        return unpacked(payload.data)


class PackingConverter(CompositePayloadConverter):
    """Packs maps, lists and records, and leaves the rest to Temporal's own converters."""

    def __init__(self) -> None:
        super().__init__(_Packed(), *DefaultPayloadConverter().converters.values())


class ByReference(dict[str, Any]):
    """Data of any size that is kept in the object store, if one exists: a compiled flow."""


class Codec(PayloadCodec):
    """Encrypts payloads, and keeps large ones in an object store, sending references to them.

    A payload of more than two parts is kept in parts, each named by its content. The input of an
    agent's turn contains the conversation so far, so nearly all its parts are those of the turn
    before, and are not sent or stored again.

    Args:
        objects: The object store. None: payloads contain no references.
        keys: Encrypt payloads. None: they are not encrypted.
    """

    def __init__(self, objects: Objects | None, keys: Keys | None) -> None:
        self._objects = objects
        self._keys = keys
        self._cache: dict[str, tuple[bytes, float]] = {}
        """Digest → the value, and when this process has written it. The last one used is last."""
        self._cached = 0

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt payloads, and replace large ones by references."""
        return [await self._encoded(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Replace references by their payloads, and decrypt them."""
        return [await self._decoded(payload) for payload in payloads]

    async def _encoded(self, payload: Payload) -> Payload:
        is_large = len(payload.data) > LARGE or _MARK in payload.metadata
        if self._objects is None or not is_large:
            return self._encrypted(payload)
        if len(payload.data) <= 2 * PART:
            digest = await self._write(self._encrypted(payload).SerializeToString(**_ALWAYS_SAME))
            return Payload(metadata={"encoding": _REFERENCE}, data=digest.encode())
        whole = payload.SerializeToString(**_ALWAYS_SAME)
        parts = [Payload(data=part) for part in _parts(whole)]
        digests = await _for_each(
            parts, lambda part: self._write(self._encrypted(part).SerializeToString(**_ALWAYS_SAME))
        )
        digest = await self._write(b"".join(map(bytes.fromhex, digests)))
        return Payload(metadata={"encoding": _IN_PARTS}, data=digest.encode())

    async def _decoded(self, payload: Payload) -> Payload:
        encoding = payload.metadata.get("encoding")
        if encoding == _REFERENCE:
            return self._decrypted(_parsed(await self._read(payload.data.decode())))
        if encoding != _IN_PARTS:
            return self._decrypted(payload)
        index = await self._read(payload.data.decode())
        digests = [index[at : at + _DIGEST].hex() for at in range(0, len(index), _DIGEST)]
        parts = await _for_each(digests, self._read)
        return _parsed(b"".join(self._decrypted(_parsed(part)).data for part in parts))

    async def size(self, payload: Payload) -> int:
        """Return about how many bytes `decode` makes of a payload, without reading them.

        Raises:
            NotFound: The object store does not have it.
        """
        encoding = payload.metadata.get("encoding")
        if encoding not in (_REFERENCE, _IN_PARTS):
            return len(payload.data)
        digest = payload.data.decode()
        if digest in self._cache:
            size = len(self._cache[digest][0])
        else:
            size = await self._store().size(digest)
        return size if encoding == _REFERENCE else size // _DIGEST * PART

    def _encrypted(self, payload: Payload) -> Payload:
        if self._keys is None:
            return payload
        data = self._keys.encrypted(payload.SerializeToString(**_ALWAYS_SAME))
        return Payload(metadata={"encoding": _ENCRYPTED, _KEY: self._keys.name.encode()}, data=data)

    def _decrypted(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != _ENCRYPTED:
            return payload
        name = payload.metadata[_KEY].decode()
        if self._keys is None:
            raise no_key(name)
        return _parsed(self._keys.decrypted(payload.data, name))

    async def _write(self, value: bytes) -> str:
        """Keep a value in the object store, and return its digest."""
        assert self._objects is not None
        digest, now = sha256(value).hexdigest(), monotonic()
        if now - self._cache.get(digest, (b"", -inf))[1] > _AGAIN_SECONDS:
            await self._objects.put_value(value)
            self._keep(digest, value, now)
        else:
            self._cache[digest] = self._cache.pop(digest)
        return digest

    async def _read(self, digest: str) -> bytes:
        """Return a value from the object store."""
        if digest in self._cache:
            data = self._cache[digest] = self._cache.pop(digest)
            return data[0]
        value = await self._store().value(digest)
        self._keep(digest, value, -inf)
        return value

    def _store(self) -> Objects:
        if self._objects is None:
            raise StoreError(
                "a value is kept in an object store, and this process has none",
                hint=f"set {VARIABLE} as where the value was written",
            )
        return self._objects

    def _keep(self, digest: str, value: bytes, written: float) -> None:
        self._cached += len(value) - len(self._cache.pop(digest, (b"", 0))[0])
        self._cache[digest] = value, written
        while self._cached > _MOST_CACHED and len(self._cache) > 1:
            self._cached -= len(self._cache.pop(next(iter(self._cache)))[0])


def _parts(whole: bytes) -> Iterator[bytes]:
    """Yield the parts of a payload, cut before a message if one begins near by.

    So the parts of a conversation are the same wherever it begins in a payload.
    """
    at = 0
    while at < len(whole):
        end = whole.find(_MESSAGE, at + PART // 2, at + 2 * PART)
        end = at + PART if end < 0 else end
        yield whole[at:end]
        at = end


async def _for_each(items: Sequence[T], work: Callable[[T], Awaitable[U]]) -> list[U]:
    """Return the results of a function for all items, a few of them at once."""
    values: list[U] = []
    for at in range(0, len(items), _AT_ONCE):
        values += await asyncio.gather(*map(work, items[at : at + _AT_ONCE]))
    return values


def _parsed(data: bytes) -> Payload:
    payload = Payload()
    payload.ParseFromString(data)
    return payload


def converter(objects: Objects | None) -> DataConverter:
    """Return the encoding of all data.

    Args:
        objects: Keeps large payloads.
    """
    used = keys()
    return DataConverter(
        payload_converter_class=PackingConverter,
        payload_codec=Codec(objects, used),
        failure_converter_class=(
            DefaultFailureConverter
            if used is None
            else DefaultFailureConverterWithEncodedAttributes  # messages can contain anything
        ),
    )


# Payloads as Temporal's own page and command line show them.
#
# These programs send payloads to a codec server (https://docs.temporal.io/codec-server). They
# receive JSON, because they can show nothing else.

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
        """Return the payloads to send to Temporal.

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
    value = unpacked(payload.data) if encoding != _BYTES else payload.data
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
            data = unpacked(value)
        except _DAMAGED:
            data = None
        if not isinstance(data, dict | list):
            return b64encode(value).decode()
        return _plain(data, depth + 1)
    if isinstance(value, tuple):
        value = value._asdict()  # type: ignore[attr-defined] # a record
    if isinstance(value, FlowEngineError):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _plain(part, depth + 1) for key, part in value.items()}
    return [_plain(part, depth + 1) for part in value] if isinstance(value, list) else value


def _note(text: str) -> Payload:
    """Return a text in place of a payload."""
    return Payload(metadata={"encoding": _JSON}, data=json.dumps(text).encode())
