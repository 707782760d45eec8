"""Rich Text Format."""

from __future__ import annotations

import pytest

from flowengine_documents.document import Damaged
from flowengine_envs.documents.converting import convert
from tests.rows import each_row


@each_row(
    "data",
    [
        b"{\\rtf1 text",
        b"{\\rtf1 text}}}}}",
        b"{\\rtf1 {\\footnote {\\header text",
        b"{\\rtf1\\ansicpg99999 {\\fonttbl{\\f0\\fcharset7;}} text \\u99999999999? \\uc-5 \\'",
        b"{\\rtf1 {\\stylesheet{\\s1 x",
        b"{\\rtf1\\trowd" + b"\\cellx9" * 2_000 + b"\\intbl" + b"\\cell" * 2_000 + b"\\row text}",
        b"{\\rtf1\\bin99999999999 text",
        b"{\\rtf1 \\ilvl99999 \\ls1 text}",
    ],
)
def test_broken_files_are_read_as_far_as_possible(data: bytes) -> None:
    assert convert(data).format == "rtf"


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(Damaged, match="nested too deeply"):
        convert(b"{\\rtf1" + b"{" * 5_000 + b"text" + b"}" * 5_000)
