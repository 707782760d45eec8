"""JSON as other programs send it, and its meaning: in answers, and in what starts something."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

DEEP = "[" * 187 + "]" * 187


class Received(NamedTuple):
    """A body of JSON with one key, which is `v` here."""

    text: str
    value: Any
    """What the value of the key means."""
    refusal: str = ""
    """Why it is refused as an input. An answer is accepted: its effect has happened."""
    encoding: str = "utf-8"

    def sent(self, key: str = "v") -> bytes:
        """Return the bytes that are sent."""
        return self.text.replace('"v"', f'"{key}"', 1).encode(self.encoding)


RECEIVED = {
    "plain": Received('{"v": "é"}', "é"),
    "byte_order_mark": Received('{"v": "é"}', "é", encoding="utf-8-sig"),
    "utf_16": Received('{"v": "é"}', "é", encoding="utf-16"),
    "utf_32": Received('{"v": "é"}', "é", encoding="utf-32"),
    "pair_of_escapes": Received(r'{"v": "\ud83d\uDE00"}', "😀"),
    "half_a_pair": Received(r'{"v": "x\ud83d"}', "x\ufffd"),
    "other_half": Received(r'{"v": ["\ude00\ud83d"]}', ["\ufffd\ufffd"]),
    "half_in_a_key": Received(r'{"v": {"\ud83d!": "\\ud83d"}}', {"\ufffd!": "\\ud83d"}),
    "deep": Received(f'{{"v": {DEEP}}}', json.loads(DEEP)),
    "whole_64_bits": Received(f'{{"v": [{2**64 - 1}, {-(2**63)}]}}', [2**64 - 1, -(2**63)]),
    "more_bits": Received(f'{{"v": {2**64}}}', str(2**64), f"{2**64} has more than 64 bits"),
    "many_digits": Received(f'{{"v": -{"7" * 5000}}}', "-" + "7" * 5000, "more than 64 bits"),
    "nan": Received('{"v": [NaN, 1]}', [None, 1], "NaN is not a number in JSON"),
    "infinity": Received('{"v": -Infinity}', None, "-Infinity is not a number in JSON"),
    "key_twice": Received(
        '{"v": [{"a": {"a": 1, "b": "\\\\\\""}, "\\u0061": 2}]}',
        [{"a": 2}],
        'the key "a" is given twice',
    ),
    "large_float": Received('{"v": 1e999}', "1e999", "1e999 is too large for a number"),
}
