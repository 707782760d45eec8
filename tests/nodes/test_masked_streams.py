"""Secrets in streamed text are masked, wherever it is split."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.masking import Masker
from tests.nodes.test_secrets import FORMS, LONG, VALUE

SHORT = "ab"
KNOWN = (VALUE, LONG, SHORT, "abab-abab", "first line\nsecond line")


@pytest.fixture(scope="module")
def masker() -> Masker:
    masker = Masker()
    for number, value in enumerate(KNOWN):
        masker.learn(value, f"S{number}")
    return masker


def streamed(masker: Masker, pieces: list[str]) -> str:
    stream = masker.stream()
    return "".join([*(stream.feed(piece) for piece in pieces), stream.close()])


@given(
    parts=st.lists(st.sampled_from([*FORMS.values(), *KNOWN, "ab", "a", "€", " ", "\n", "\\n"])),
    cuts=st.lists(st.integers(0, 200)),
)
def test_joined_pieces_are_the_masked_text(
    masker: Masker, parts: list[str], cuts: list[int]
) -> None:
    text = "".join(parts)
    places = sorted({0, *(at for at in cuts if at < len(text)), len(text)})
    pieces = [text[start:end] for start, end in pairwise(places)]

    assert streamed(masker, pieces) == masker.mask(text)


def test_what_cannot_be_a_secret_is_passed_on_at_once(masker: Masker) -> None:
    stream = masker.stream()

    assert stream.feed("It is ") == "It is "
    assert stream.feed(f"of {LONG[:-1]}") == "of "
    assert stream.feed("so, ") == f"{LONG[:-1]}so, "
    assert stream.feed("x") == "x"


def test_nothing_is_held_back_for_ever() -> None:
    masker = Masker()
    masker.learn("aaaa", "A")
    stream = masker.stream()

    passed = sum(len(stream.feed("a" * 1000)) for _ in range(200))

    assert passed >= 200 * 1000 - 65 * 1024
