"""The SQLite store's queries work with every supported version of Python."""

from __future__ import annotations

import re

from flowengine.journal.sqlite import queries


def test_parameters_have_no_numbers() -> None:
    """Python 3.12 deprecates `?1` with a sequence of values, and 3.14 rejects it."""
    texts = {name: text for name, text in vars(queries).items() if isinstance(text, str)}

    assert len(texts) > 20
    assert [name for name, text in texts.items() if re.search(r"\?\d", text)] == []
