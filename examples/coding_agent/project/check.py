"""Tests of `slug`."""

from slugs import slug  # type: ignore[import-not-found] # it lies beside this file

EXPECTED = {"Two words": "two-words", "This & that!": "this-that"}

for title, expected in EXPECTED.items():
    assert slug(title) == expected, f"{title!r} became {slug(title)!r}, not {expected!r}"
