"""PDF tables without lines around their cells."""

from __future__ import annotations

import time
from collections.abc import Sequence

from flowengine_envs.documents.converting import convert
from tests.envs.documents.written_pdf import made_pdf

Shown = tuple[float, float, str]


def page(*shown: Shown, bold: Sequence[Shown] = ()) -> bytes:
    """Return a page with texts of 10 points at their places."""
    return b"\n".join(
        b"BT /%s 10 Tf %f %f Td (%s) Tj ET" % (font, x, y, text.encode())
        for font, texts in ((b"F1", shown), (b"F2", bold))
        for x, y, text in texts
    )


def test_a_page_of_very_many_aligned_lines_ends() -> None:
    shown = [(60.0 + 40 * (at % 5), 790 - at // 5 * 0.9, f"{at}") for at in range(4_000)]
    began = time.process_time()
    convert(made_pdf([page(*shown)]))

    assert time.process_time() - began < 30
