"""Output of an attempt: followers receive whole lines, and its end is stored, both masked."""

from __future__ import annotations

import tracemalloc
from functools import partial

from flowengine.engines.attempts.failures import TAIL
from flowengine.engines.attempts.printed import KEPT, LONGEST, Printed

SECRET = "hunter2hunter2"


def masked(value: object) -> object:
    return value.replace(SECRET, "***") if isinstance(value, str) else value


def _told(told: list[tuple[str, str]], stream: str, text: str) -> None:
    told.append((stream, text))


def test_lines_are_handed_on_when_they_are_whole() -> None:
    told: list[tuple[str, str]] = []
    printed = Printed(masked, partial(_told, told))

    for piece in ("one\ntwo\nth", "ree", "\n"):
        printed.feed("stdout", piece)
    printed.feed("stderr", "end")
    printed.close()

    assert told == [("stdout", "one\ntwo"), ("stdout", "three"), ("stderr", "end")]


def test_a_secret_in_pieces_is_masked_wherever_it_is_cut() -> None:
    for at in range(len(SECRET)):
        told: list[tuple[str, str]] = []
        printed = Printed(masked, partial(_told, told))
        printed.feed("stderr", "x" * (LONGEST + 1 - at) + SECRET[:at])
        printed.feed("stderr", SECRET[at:])
        printed.feed("stdout", "x" * (2 * KEPT - at) + SECRET[:at])
        printed.feed("stdout", SECRET[at:] + "y" * (KEPT - at) + "\n")
        printed.close()

        for text in (*(text for _, text in told), str(printed.evidence())):
            assert "hunt" not in text
            assert "er2" not in text


def test_memory_is_bounded() -> None:
    tracemalloc.start()
    printed = Printed(masked, lambda stream, text: None)

    for _ in range(1000):
        printed.feed("stdout", "z" * 10_000)

    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 4 * (KEPT + LONGEST + 10_000)
    assert len(printed.evidence()["stdout"]) <= TAIL + 2
