"""Minimal PDFs, written by hand: quick to create, with exact control of the drawing operations."""

from __future__ import annotations

from collections.abc import Iterable


def made_pdf(contents: Iterable[bytes]) -> bytes:
    """Return a PDF with these page contents. `F1` is Helvetica, and `F2` is bold."""
    drawn = [*contents]
    kids = b" ".join(b"%d 0 R" % (5 + 2 * number) for number in range(len(drawn)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(drawn)),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica-Bold >>",
    ]
    for content in drawn:
        objects += [
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R /F2 4 0 R >> >> >>" % (len(objects) + 2),
            b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        ]
    made, places = bytearray(b"%PDF-1.4\n"), []
    for number, each in enumerate(objects, 1):
        places.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return bytes(made) + (
        b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<< /Size %d /Root 1 0 R >>\n"
        b"startxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table, len(objects) + 1, len(made))
    )


def pdf(*objects: bytes) -> bytes:
    """Return a PDF of these objects. The first one is the catalog."""
    out, at = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        at.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in at)
    end = b"trailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (len(at) + 1, len(out))
    return out + b"xref\n0 %d\n0000000000 65535 f \n" % (len(at) + 1) + table + end
