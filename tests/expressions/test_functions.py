"""Functions that the language adds to CEL, and CEL features that it replaces."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from flowengine.kernel.graph.compiled import EvaluationError
from tests.rows import each_row


@each_row(
    ("source", "value"),
    [
        ("keys({'b': 1, 'a': 2})", ["a", "b"]),
        ("values({'b': 1, 'a': 2})", [2, 1]),
        ("entries({'b': 1, 'a': 2})", [{"key": "a", "value": 2}, {"key": "b", "value": 1}]),
        ("merge({'b': 1, 'a': 2}, {'c': 3, 'a': 4})", {"a": 4, "b": 1, "c": 3}),
        ("sum([1, 2])", 3),
        ("sum([1, 2.5])", 3.5),
        ("sum([0.1, 0.2, 0.3])", 0.6),
        ("sort([3, 1, 2])", [1, 2, 3]),
        ("sort(['b', 'a', 'Z', 'é'])", ["Z", "a", "b", "é"]),
        ("unique([1, 2, 1.0, '1', true, 1])", [1, 2, "1", True]),
        ("unique([{'a': 1, 'b': [2]}, {'b': [2.0], 'a': 1}])", [{"a": 1, "b": [2]}]),
        ("flatten([[1, 2], 3, [[4]], []])", [1, 2, 3, [4]]),
        ("range(3)", [0, 1, 2]),
        ("range(-1)", []),
        ("size('a😀')", 2),
        ("json({'b': [1, 2.0, 'ü'], 'a': null})", '{"a":null,"b":[1,2,"ü"]}'),
        ("json(0.1 + 0.2)", "0.30000000000000004"),
        ("json([1e21, 1e20, 1e-7, 0.00001, -2.5, 1234567.0])",
         "[1e+21,100000000000000000000,1e-7,0.00001,-2.5,1234567]"),
        ("json('a\"b\\n')", '"a\\"b\\n"'),
        ("parse_json('{\"a\": [1, 2.5, null]}')", {"a": [1, 2.5, None]}),
        ("'a,b'.split(',')", ["a", "b"]),
        ("['a', 'b'].join('-')", "a-b"),
        ("'abab'.replace('a', 'x', 1)", "xbab"),
        ("'ab'.replace('', '-')", "-a-b-"),
        ("'Ab'.upperAscii() + 'Ab'.lowerAscii()", "ABab"),
        ("'%s: %d'.format(['a', 3])", "a: 3"),
        ("'%s'.format([{'b': 1, 'a': 2}])", "{a: 2, b: 1}"),
        ("math.greatest(1, 3, 2)", 3),
        ("math.round(2.5) + math.abs(-1.0)", 4.0),
        ("'aab'.matches('^a+b$')", True),
        ("type(1) == int && type('a') != int", True),
    ],
)  # fmt: skip
def test_value(evaluate: Any, source: str, value: Any) -> None:
    found = evaluate(source)
    assert found == value
    assert type(found) is type(value)


@each_row(
    ("pattern", "zone", "text"),
    [
        ("yyyy-MM-dd", None, "2026-11-20"),
        ("yyyy-MM-dd HH:mm:ss", "Europe/Paris", "2026-11-20 10:14:02"),
        ("d MMMM yyyy, h:mm a", "America/New_York", "20 November 2026, 4:14 AM"),
        ("EEE dd MMM yy", "Asia/Tokyo", "Fri 20 Nov 26"),
        ("HH:mm xxx", "+05:30", "14:44 +05:30"),
        ("HH:mmZZZZZ", "UTC", "09:14Z"),
        ("'at' H 'o''clock' ''", None, "at 9 o'clock '"),
        ("ss.SSS VV", "Europe/Paris", "02.000 Europe/Paris"),
    ],
)
def test_times_are_formatted(evaluate: Any, pattern: str, zone: str | None, text: str) -> None:
    quoted = f'"{pattern}"'
    call = f'format_time(now, {quoted}, "{zone}")' if zone else f"format_time(now, {quoted})"
    assert evaluate(call) == text


@each_row(
    ("source", "value"),
    [
        ("timestamp(now)", "2026-11-20T09:14:02Z"),
        ("timestamp(now) + duration('90m')", "2026-11-20T10:44:02Z"),
        ("timestamp('2026-01-01T00:00:00.25+01:00')", "2025-12-31T23:00:00.25Z"),
        ("timestamp(now) - timestamp('2026-11-20T00:00:00Z')", "9h14m2s"),
        ("duration('2w3d12h30m5s20ms')", "2w3d12h30m5s20ms"),
        ("timestamp(now) + duration('2w')", "2026-12-04T09:14:02Z"),
        ("timestamp(now) + duration('-1.5h')", "2026-11-20T07:44:02Z"),
        ("duration('.5s') + duration('1.5d') + duration('2ms1h') + duration('0')", "1d13h502ms"),
        ("duration('1500us') + duration('+500000ns')", "2ms"),
        ("duration(string(inputs.count) + 'd')", "2d"),
        ("duration(duration('90m')) == duration('5400s')", True),
        ("duration('1d').getHours()", 24),
        ("timestamp('2026-01-01T00:00:00.123456000Z')", "2026-01-01T00:00:00.123456Z"),
        ("sort([duration('10m'), duration('9m')])", ["9m", "10m"]),
        ("sort([timestamp(now), timestamp('2026-11-20T09:14:02.5+01:00')])[0].getHours()", 8),
        ("['1h', '9m'].map(t, duration(t)).filter(d, d > duration('10m'))", ["1h"]),
        ("'%s'.format([[duration('90s')]]) + string([duration('90s')][0])", "[90s]90s"),
        ("'%s'.format([{'t': timestamp(now)}])", "{t: 2026-11-20T09:14:02Z}"),
        ("duration('1m') in {'a': [duration('60s')]}.a", True),
        ("unique([duration('60s'), duration('1m')])", ["1m"]),
        ("merge({'a': duration('1h')}, {}).a.getMinutes()", 60),
        ("json([timestamp(now)])", '["2026-11-20T09:14:02Z"]'),
        ("{'at': timestamp(now)}", {"at": "2026-11-20T09:14:02Z"}),
        ("timestamp(now).getHours('Europe/Paris')", 10),
        ("timestamp(now).getDayOfWeek('Asia/Tokyo')", 5),
        ("format_time(timestamp(now) + duration('1h'), 'HH:mm')", "10:14"),
    ],
)
def test_times_leave_an_expression_as_text(evaluate: Any, source: str, value: Any) -> None:
    assert evaluate(source) == value


def test_digest_is_that_of_the_canonical_json(evaluate: Any) -> None:
    one = hashlib.sha256(b'{"a":[1,2],"b":"x"}').hexdigest()
    assert evaluate("digest({'b': 'x', 'a': [1, 2.0]})") == one
    assert evaluate("digest('Ada', 2)") == hashlib.sha256(b'["Ada",2]').hexdigest()


@each_row(
    ("source", "message"),
    [
        ("parse_json('[1,')", "is not JSON"),
        ("parse_json('1e999')", "out of range"),
        ("parse_json('\"\\\\ud800\"')", "is not JSON"),
        ("sum([1, 'a'])", "the list contains text"),
        ("sum([9223372036854775807, 1])", "beyond 64 bits"),
        ("sum([1e308, 1e308])", "finite"),
        ("sort([1, 'a'])", "numbers, of texts, of times or of durations"),
        ("sort([timestamp(now), duration('1s')])", "numbers, of texts"),
        ("timestamp('' + '2026-01-01T00:00:00.1234567Z')", "digits below microseconds"),
        ("duration('' + '1ns')", "digits below microseconds"),
        ("[duration('1s'), duration('1us')]", "whole number of milliseconds"),
        ("[timestamp(now)].join()", "the list contains a time"),
        ("keys(inputs.any.list)", "needs a map, not a list"),
        ("json(b'x')", "bytes cannot be written as JSON"),
        ("format_time('yesterday', 'yyyy')", "is not a valid time"),
        ("format_time(now, 'QQ')", "does not support 'QQ'"),
        ("format_time(now, 'yyyy', 'Mars/Base')", "no time zone 'Mars/Base'"),
        ("duration('' + '100000w')", "'100000w' is longer than a hundred years"),
        ("duration('' + '-100.5y')", "'-100.5y' is not a valid duration: write for example 90s"),
        ("duration('' + '.h')", "is not a valid duration"),
        ("duration(inputs.any.list)", "a duration is needed here, not a list"),
        ("timestamp(now) - timestamp('2027-01-01T00:00:00Z')", "not negative"),
        ("size(3 > 2 ? inputs.any.big : 1)", "has no size"),
    ],
)
def test_what_has_no_value_says_why(evaluate: Any, source: str, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        evaluate(source)
