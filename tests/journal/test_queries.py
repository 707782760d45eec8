"""The queries of the SQLite store, as every version of Python takes them."""

from __future__ import annotations

import re

from flowengine.journal.sqlite import queries


def test_parameters_have_no_numbers() -> None:
    """Python 3.12 warns of `?1` where values come as a sequence, and says that 3.14 refuses it."""
    texts = {name: text for name, text in vars(queries).items() if isinstance(text, str)}

    assert len(texts) > 20
    assert [name for name, text in texts.items() if re.search(r"\?\d", text)] == []
