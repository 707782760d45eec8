"""Encoding of data sent to and received from Temporal.

Data is packed as in every other store. Text is left unchanged, so that Temporal's web interface can
show summaries and memos.
"""

from __future__ import annotations

from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultPayloadConverter,
    EncodingPayloadConverter,
)

from flowengine.journal.encoding import pack, unpack

_ENCODING = "binary/msgpack"


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
        return Payload(metadata={"encoding": _ENCODING.encode()}, data=pack(value))

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        return unpack(payload.data)


class PackingConverter(CompositePayloadConverter):
    """Packs maps and lists, and leaves the rest to Temporal's own converters."""

    def __init__(self) -> None:
        super().__init__(_Packed(), *DefaultPayloadConverter().converters.values())


CONVERTER = DataConverter(payload_converter_class=PackingConverter)
