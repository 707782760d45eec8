"""Characters that hide or disguise text, for users and for models."""

from __future__ import annotations

import re
import unicodedata

from flowengine.cli.sandbox_shell import EscapeFilter
from flowengine.cli.terminal.output import as_json
from flowengine.page.sent_forms import shown_text
from flowengine.sdk.texts.visible_text import (
    DISGUISING,
    one_line,
    printable,
    printable_lines,
    visible,
)
from tests.rows import each_row

ALL = "".join(map(chr, range(0x110000)))
DISGUISES = DISGUISING.findall(ALL)
JOINERS = "\u200c\u200d"
FLAG = "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"


def test_users_and_models_see_none_of_the_same_characters() -> None:
    assert len(printable(ALL)) == len(ALL)
    assert not DISGUISING.search(printable(ALL))
    assert not DISGUISING.search(visible(ALL)[0])
    assert {"\u200b", "\u00ad", "\u2060", "\u202e", "\x1b", "\x85", "\u2028"} <= set(DISGUISES)


def test_all_control_characters_are_among_them_but_no_letters() -> None:
    assert {one for one in ALL if unicodedata.category(one) == "Cc"} - set(DISGUISES) == {*"\t\n"}
    assert {unicodedata.category(one) for one in DISGUISES} == {"Cc", "Cf", "Cn", "Cs", "Zl", "Zp"}


@each_row("sign", ["\u200b", "\u2060", "\u00ad", "\u202e"])
def test_a_disguised_command_is_shown_as_such(sign: str) -> None:
    text = f"rm{sign} -rf"
    assert printable(text) == printable_lines(text) == "rm\ufffd -rf"
    assert visible(text) == ("rm -rf", 1)
    assert EscapeFilter().of(text.encode()) == "rm\ufffd -rf".encode()
    assert shown_text(text) == f"rm⟦U+{ord(sign):04X}⟧ -rf"
    assert as_json(text) == f'"rm\\u{ord(sign):04x} -rf"'


def test_lines_end_in_one_way() -> None:
    text = "a\r\nb\rc\x85d\u2028e\tf"
    assert visible(text) == ("a\nb\nc\nd\ne\tf", 0)
    assert printable_lines(text) == "a\nb\ufffdc\ufffdd\ufffde\tf"
    assert printable(text) == "a␤b\ufffdc\ufffdd\ufffde\tf"
    assert one_line(text) == "a b c d e f"
    assert one_line("x" * 600) == "x" * 499 + "…"


def test_scripts_emoji_and_flags_are_kept_for_models() -> None:
    text = f"می{JOINERS[0]}خواهم 👩{JOINERS[1]}💻 {FLAG}"
    assert visible(text) == (text, 0)
    assert re.sub("\ufffd+", "?", printable(text)) == text.replace(FLAG[1:], "?")
