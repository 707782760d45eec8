# Shows S77
"""Terminal output as text, with bounded size, in records."""

from __future__ import annotations

from pathlib import Path

from flowengine_documents.terminal_text import clean
from flowengine_envs.inside.terminal.command import Transcript, TranscriptFiles
from flowengine_envs.link.masking import masked
from tests.rows import each_row


@each_row(
    ("raw", "text"),
    [
        (b"a\r\nb\r\n", "a\nb\n"),
        (b"\x1b[1;31mred\x1b[m \x1b]0;title\x07x\x1b]8;;u\x1b\\y", "red xy"),
        (b"10%\r20%\r100%\r\n", "100%\n"),
        (b"long text\rab\x1b[K\r\n", "ab\n"),
        (b"abc\b\bX\n", "aXc\n"),
        (b"\b\b\bx", "x"),
        (b"one \x1b[?1049hother screen\x1b[?1049ltwo", "one two"),
        (b"one \x1b[?1049hnever left", "one "),
        (b"cut \x1b[3", "cut "),
        (b"cut \x1b]0;ti", "cut "),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"\x1bP1;2q~\x1b\\after\x00\x07", "after"),
        (b"a  \n\n\n  b  ", "a  \n\n\n  b  "),
        (b"\x1b[2J\x1b[H\x1b(B\x1b7\x1b=x", "x"),
    ],
)
def test_what_is_left_to_read(raw: bytes, text: str) -> None:
    assert clean(raw) == text


def test_secrets_are_masked_the_longest_first() -> None:
    assert masked(b"abcd abc x\r\ny", [b"abc", b"abcd", b"x\ny", b""]) == b"*** *** ***"


def test_a_transcript_keeps_the_beginning_and_the_end() -> None:
    kept = Transcript(20)
    for number in range(1000):
        kept.add(b"%04d" % number)

    assert kept.bytes().startswith(b"0000000100")
    assert kept.bytes().endswith(b"9709980999")
    assert b"3980 bytes left out" in kept.bytes()
    assert kept.left_out == 3980


def test_records_are_bounded(tmp_path: Path) -> None:
    records = TranscriptFiles(str(tmp_path), limit=2000)
    for number in range(100):
        records.add({"id": number}, b"x" * (10 * number))

    assert {path.name for path in tmp_path.iterdir()} == {
        "raw.log",
        "raw.log.1",
        "clean.log",
        "clean.log.1",
    }
    assert all(path.stat().st_size <= 2000 for path in tmp_path.iterdir())
    assert b'{"id": 99' in (tmp_path / "raw.log").read_bytes()
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())


def test_a_record_follows_no_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    folder = tmp_path / "records"
    folder.mkdir()
    (folder / "raw.log").symlink_to(target)

    TranscriptFiles(str(folder)).add({"id": 1}, b"x")

    assert target.read_text() == "mine"
