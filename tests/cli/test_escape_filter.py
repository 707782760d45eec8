# Shows S92
"""Terminal escapes that programs in a sandbox may send to users of `envs shell`."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as some

from flowengine.cli.sandbox_shell import EscapeFilter
from tests.rows import each_row
from tests.sliced_examples import sliced

HARMFUL = {
    "clipboard": b"\x1b]52;c;aGFja2Vk\x07",
    "clipboard, ended otherwise": b"\x1b]52;c;aGFja2Vk\x1b\\",
    "title": b"\x1b]0;title\x07",
    "link": b"\x1b]8;;http://evil\x1b\\",
    "string for the device": b"\x1bP$qm\x1b\\",
    "for tmux": b"\x1bPtmux;\x1b\x1b]52;c;aGFja2Vk\x07\x1b\\",
    "for the application": b"\x1b_Gi=31;AAAA\x1b\\",
    "private message": b"\x1b^what\x1b\\",
    "start of string": b"\x1bXwhat\x1b\\",
    "string that another cuts off": b"\x1b]0;title\x1b]52;c;aGFja2Vk\x07",
    "what are you": b"\x1b[c\x1b[>c\x1b[=c\x1bZ",
    "where is the cursor": b"\x1b[6n\x1b[?6n",
    "which mode": b"\x1b[?1$p\x1b[4$p",
    "what is the title": b"\x1b[21t",
    "parameters": b"\x1b[x\x1b[?1;1S\x1b[>q\x1b[?u",
    "print": b"\x1b[5i\x1b[?4i",
    "locked keys": b"\x1b[2h\x1b[12h",
    "reports of the mouse": b"\x1b[?1003h\x1b[?1006h\x1b[?1004h\x1b[?2004h",
    "one among others": b"\x1b[?25;1003h",
    "other reports of keys": b"\x1b[>4;2m\x1b[>1u",
    "reset": b"\x1bc\x1b[!p",
    "answer": b"\x05",
    "begun by one byte": b"\xc2\x9b6n\xc2\x9d52;c;aGFja2Vk\xc2\x9c",
}
DRAWS = [
    b"text, \xc3\xa9\xf0\x9f\x8e\x88\r\n\tmore\x08\x07",
    b"\x1b[31mred\x1b[0m\x1b[1;38;5;3m\x1b[38:2::1:2:3m\x1b[m",
    b"\x1b[?1049h\x1b[H\x1b[2J\x1b[10;20Hhere\x1b[K\x1b[?25l\x1b[?25h\x1b[?1049l",
    b"\x1b[1;5r\x1b[3A\x1b[2B\x1b[C\x1b[D\x1b[5G\x1b[3d\x1b[2L\x1b[M\x1b[4P\x1b[2X\x1b[@\x1b[S\x1b[T",
    b"\x1b7\x1b8\x1b=\x1b>\x1bM\x1bD\x1bE\x1bH\x1b[s\x1b[u\x1b[?1h\x1b[?7l\x1b[4h\x1b[4l\x1b[?1;25h",
    b"\x1b(0\x1b)0\x0eqqq\x0f\x1b(B",
]
_ALLOWED = re.compile(
    rb"\x1b(?:\[[0-9:;]*[@A-MPSTXZ`a-gmrsud]|\[4[hl]|\[\?[0-9;]+[hlJK]|[()*+][0-9A-Z]|[78=>DEHM])"
)


def written(*pieces: bytes) -> bytes:
    drawn = EscapeFilter()
    return b"".join(map(drawn.of, pieces))


@each_row("name", HARMFUL)
def test_what_does_more_than_draw_is_left_out_however_it_is_cut(name: str) -> None:
    output = b"before " + HARMFUL[name] + b"after\x1b[1m"
    for pieces in ([output], [bytes([byte]) for byte in output]):
        seen = written(*pieces)
        assert seen.startswith(b"before ")
        assert seen.endswith(b"after\x1b[1m")
        assert seen.count(b"\x1b") == 1
        assert not re.search(rb"[\x00-\x06\x0b\x0c\x10-\x1a\x1c-\x1f]|\xc2[\x80-\x9f]", seen)


@each_row("output", DRAWS)
def test_what_draws_is_written_as_it_is(output: bytes) -> None:
    assert written(output) == output
    assert written(*[bytes([byte]) for byte in output]) == output


def test_text_that_reads_in_another_order_is_shown() -> None:
    seen = written("a\N{RIGHT-TO-LEFT OVERRIDE}b\N{ZERO WIDTH NO-BREAK SPACE}".encode()).decode()
    assert seen == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"


def test_a_sequence_without_an_end_is_not_waited_for_for_ever() -> None:
    drawn = EscapeFilter()
    seen = b"".join(drawn.of(b"\x1b[" + b"1" * 50 if not at else b"1" * 50) for at in range(10))
    assert b"\x1b" not in seen
    assert len(seen) > 300


_BYTES = some.lists(
    some.one_of(
        some.sampled_from(
            [b"\x1b", b"\x1b[", b"\x1b]", b"\x1bP", b"\\", b"\x07", b"\x1a", b"\xc2\x9b"]
        ),
        some.sampled_from([b"?", b">", b";", b":", b"0", b"25", b"1049", b"4", b" ", b"$", b"\n"]),
        some.sampled_from([*map(bytes, zip(b"hlmnctqpriSTHJKsuxX(B"))]),
        some.binary(max_size=3),
    ),
    max_size=40,
)


@sliced(examples=20)
@given(_BYTES)
def test_nothing_else_comes_through_whatever_is_written(pieces: list[bytes]) -> None:
    seen = written(*pieces)
    assert seen == written(b"".join(pieces))
    assert b"\x1b" not in _ALLOWED.sub(b"", seen)
