"""Mail messages of Outlook."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import pytest

from flowengine_documents.document import ConversionLimits, Damaged, LimitReached
from flowengine_documents.msg import unpacked
from flowengine_envs.documents.converting import convert
from tests.envs.documents.written_compound import compound
from tests.rows import each_row

HELLO = bytes.fromhex(
    "2d0000002b0000004c5a4675f1c5c7a703000a007263706731323542320af32068656c09002062"
    "7705b06c647d0a800fa0"
)
"""The first example of [MS-OXRTFCP]."""
SENT = 134_382_600_000_000_000  # 2026-11-04 10:00, in 100 nanoseconds since 1601
Streams = Mapping[str, bytes]


def properties(head: int, values: Mapping[int, int]) -> bytes:
    entries = (struct.pack("<HHIQ", 0x40, id, 6, value) for id, value in values.items())
    return bytes(head) + b"".join(entries)


def text(id: str, written: str) -> Streams:
    return {f"__substg1.0_{id}001F": written.encode("utf-16-le")}


def below(storage: str, streams: Streams) -> Streams:
    return {f"{storage}/{name}": content for name, content in streams.items()}


def message(*parts: Streams, values: Mapping[int, int] | None = None) -> bytes:
    streams = {
        "__properties_version1.0": properties(32, {0x0039: SENT} if values is None else values)
    }
    for part in parts:
        streams |= part
    return compound(streams)


def recipient(number: int, kind: int, name: str, address: str) -> Streams:
    streams = {
        "__properties_version1.0": properties(8, {0x0C15: kind}),
        **text("3001", name),
        **text("39FE", address),
    }
    return below(f"__recip_version1.0_#{number:08}", streams)


def attachment(number: int, streams: Streams) -> Streams:
    own = {"__properties_version1.0": properties(8, {}), **streams}
    return below(f"__attach_version1.0_#{number:08}", own)


def test_a_message_has_headers_text_and_attachments() -> None:
    inner = {"__properties_version1.0": properties(24, {}), **text("0037", "Old  news")}
    page = (
        b"<html><meta charset=utf-8><p>See <a href='https://a.example/'>caf\xc3\xa9</a></p></html>"
    )
    found = convert(
        message(
            text("0037", "Größe: quay\r\n"),
            text("0C1A", "Ana Silva"),
            text("5D01", "ana@example.org"),
            text("0E04", "only names"),
            {"__substg1.0_10130102": page, **text("1000", "See plain")},
            recipient(0, 1, "Bo", "bo@example.org"),
            recipient(1, 1, "cy@example.org", "cy@example.org"),
            recipient(2, 2, "Di", "/O=EXCHANGE/CN=DI"),
            recipient(3, 3, "Secret", "bcc@example.org"),
            attachment(0, {**text("3707", "plan.pdf"), **text("370E", "application/pdf"),
                           "__substg1.0_37010102": bytes(1_234)}),
            attachment(1, below("__substg1.0_3701000D", inner)),
            attachment(2, {}),
        ),
        "a.msg",
    )  # fmt: skip

    assert found.markdown == (
        "# Größe: quay\n\nFrom: Ana Silva <ana@example.org>  \n"
        "To: Bo <bo@example.org>, cy@example.org  \nCc: Di  \n"
        "Date: Wed, 04 Nov 2026 10:00:00 +0000\n\nSee [café](https://a.example/)\n\n"
        "- Attachment: plan.pdf (application/pdf, 1,234 bytes)\n"
        "- Attachment: Old news (message/rfc822)\n- Attachment: without a name"
    )
    assert (found.format, found.title, found.notes) == ("msg", "Größe: quay", [])


@each_row(
    ("streams", "values", "body"),
    [
        (text("1000", "# plain\r\n\r\ntext\0"), {}, "\\# plain\n\ntext"),
        ({"__substg1.0_1000001E": "При".encode("cp1251")}, {0x3FFD: 1251}, "При"),
        ({"__substg1.0_10130102": b"<p>caf\xe9</p>"}, {0x3FDE: 1252}, "café"),
        (text("1013", "<p>wide <b>é</b></p>"), {}, "wide **é**"),
        ({"__substg1.0_10090102": HELLO}, {}, "hello world"),
        ({"__substg1.0_10090102": HELLO[:9], **text("1000", "plain")}, {}, "plain"),
        ({}, {0x0E06: SENT}, "Date: Wed, 04 Nov 2026 10:00:00 +0000"),
        ({}, {0x0039: 2**64 - 1}, ""),
    ],
)
def test_bodies_and_encodings(streams: Streams, values: Mapping[int, int], body: str) -> None:
    assert convert(message(streams, values=values)).markdown == body


def test_compressed_texts_are_limited_and_checked() -> None:
    claim = struct.pack("<II4sI", 20, 2**32 - 1, b"LZFu", 0)

    with pytest.raises(LimitReached, match="its text unpacks to 4,294,967,295 bytes"):
        convert(message({"__substg1.0_10090102": claim + bytes(99)}))
    for broken in (b"", HELLO[:15], HELLO[:8] + b"abcd" + HELLO[12:]):
        with pytest.raises(Damaged):
            unpacked(broken, ConversionLimits())
