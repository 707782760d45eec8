"""Encoding of data sent to and received from Temporal.

Data is packed as in every other store. Text is left unchanged, so that Temporal's web interface can
show summaries and memos.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

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

from flowengine.engines.temporal.keys import Keys, keys, no_key
from flowengine.engines.temporal.objects import VARIABLE, Objects
from flowengine.errors import StoreError
from flowengine.journal.encoding import pack, unpack

_ENCODING = "binary/msgpack"
_REFERENCE = b"binary/flowengine-reference"
_ENCRYPTED = b"binary/flowengine-encrypted"
_KEY = "key"
_MARK = "by-reference"
LARGE = 64 * 1024
"""Bytes of a payload from which it is kept in the object store."""
_MOST_CACHED = 64 * 1024 * 1024
"""Bytes of such payloads to keep in memory."""


class _Packed(EncodingPayloadConverter):
    """Encodes maps and lists as `flowengine.journal.encoding` packs them."""

    @property
    def encoding(self) -> str:
        return _ENCODING

    def to_payload(self, value: Any) -> Payload | None:
        if not isinstance(value, dict | list):
            return None
        # Values that are not plain must fail here, because the JSON converter, which is next, would
        # change them.
        metadata = {"encoding": _ENCODING.encode()}
        if isinstance(value, ByReference):
            metadata[_MARK] = b"1"
            value = dict(value)
        return Payload(metadata=metadata, data=pack(value))

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        return unpack(payload.data)


class PackingConverter(CompositePayloadConverter):
    """Packs maps and lists, and leaves the rest to Temporal's own converters."""

    def __init__(self) -> None:
        super().__init__(_Packed(), *DefaultPayloadConverter().converters.values())


class ByReference(dict[str, Any]):
    """Data that is kept in the object store whatever its size, if there is one: a compiled flow."""


class Codec(PayloadCodec):
    """Encrypts payloads, and keeps large ones in an object store, sending references to them.

    Args:
        objects: The object store. None: payloads are sent as they are.
        keys: Encrypt payloads. None: they are not encrypted.
    """

    def __init__(self, objects: Objects | None, keys: Keys | None) -> None:
        self._objects = objects
        self._keys = keys
        self._cache: dict[str, bytes] = {}
        self._cached = 0

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt payloads, and replace large ones by references."""
        return [await self._encoded(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Replace references by their payloads, and decrypt them."""
        return [await self._decoded(payload) for payload in payloads]

    async def _encoded(self, payload: Payload) -> Payload:
        is_large = len(payload.data) > LARGE or _MARK in payload.metadata
        if self._keys is not None:
            data = self._keys.encrypted(payload.SerializeToString(deterministic=True))
            metadata = {"encoding": _ENCRYPTED, _KEY: self._keys.name.encode()}
            payload = Payload(metadata=metadata, data=data)
        if self._objects is None or not is_large:
            return payload
        value = payload.SerializeToString(deterministic=True)
        digest = sha256(value).hexdigest()
        if digest not in self._cache:
            await self._objects.put_value(value)
            self._keep(digest, value)
        return Payload(metadata={"encoding": _REFERENCE}, data=digest.encode())

    async def _decoded(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") == _REFERENCE:
            payload = await self._fetched(payload.data.decode())
        if payload.metadata.get("encoding") != _ENCRYPTED:
            return payload
        name = payload.metadata[_KEY].decode()
        if self._keys is None:
            raise no_key(name)
        found = Payload()
        found.ParseFromString(self._keys.decrypted(payload.data, name))
        return found

    async def _fetched(self, digest: str) -> Payload:
        if digest not in self._cache:
            if self._objects is None:
                raise StoreError(
                    "a value is kept in an object store, and this process has none",
                    hint=f"set {VARIABLE} as where the value was written",
                )
            self._keep(digest, await self._objects.value(digest))
        found = Payload()
        found.ParseFromString(self._cache[digest])
        return found

    def _keep(self, digest: str, value: bytes) -> None:
        self._cache[digest] = value
        self._cached += len(value)
        while self._cached > _MOST_CACHED and len(self._cache) > 1:
            self._cached -= len(self._cache.pop(next(iter(self._cache))))


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
