"""The queries of the SQLite store, as every version of Python takes them."""

from __future__ import annotations

import re

from flowengine.journal import sql


def test_parameters_have_no_numbers() -> None:
    """Python 3.12 warns of `?1` where values come as a sequence, and says that 3.14 refuses it."""
    queries = {name: text for name, text in vars(sql).items() if isinstance(text, str)}

    assert len(queries) > 20
    assert [name for name, text in queries.items() if re.search(r"\?\d", text)] == []
