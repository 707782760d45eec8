"""Durations and times in the notation of the language."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.kernel.notation.times import (
    format_duration,
    format_time,
    parse_duration,
    parse_time,
)
from tests.rows import each_row


@each_row(
    ("text", "ms"),
    [("250ms", 250), ("90s", 90_000), ("15m", 900_000), ("1h30m", 5_400_000), ("3d", 259_200_000),
     ("2w", 1_209_600_000), ("1m5ms", 60_005)],
)  # fmt: skip
def test_durations(text: str, ms: int) -> None:
    assert parse_duration(text) == ms
    assert parse_duration(format_duration(ms)) == ms


@each_row("text", ["", "5", "1.5s", "1m1h", "s", "-1s", " 1s", "1 s", "1y", "9999w"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|longer"):
        parse_duration(text)


@given(st.integers(0, 253_402_300_799_999))
def test_times_are_those_of_the_calendar(at: int) -> None:
    assert parse_time(format_time(at)) == at
    expected = datetime.fromtimestamp(at // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S").zfill(19)
    assert format_time(at)[:19] == expected
