"""PDF annotations: filled forms, text typed onto pages, and comments."""

from __future__ import annotations

import pytest

from flowengine_envs.documents.converters import convert
from flowengine_envs.documents.document import Document
from tests.envs.documents.written_pdf import pdf


def read(*annotations: bytes, comments: bool = False, others: tuple[bytes, ...] = ()) -> Document:
    """Convert a page with `Printed.` and annotations. `others` are objects from number 6 on."""
    content = b"BT /F1 12 Tf 72 700 Td (Printed.) Tj ET"
    page = (
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R"
        b"/Resources<</Font<</F1 5 0 R>>>>/Annots[%s]>>" % b"".join(annotations)
    )
    made = pdf(
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        page,
        b"<</Length %d>>\nstream\n%b\nendstream" % (len(content), content),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        *others,
    )
    return convert(made, comments=comments)


@pytest.mark.parametrize(
    ("field", "shown"),
    [
        (b"/FT/Tx/T(name)/V(Ana Silva)", "name: Ana Silva"),
        (b"/FT/Tx/T(name)/TU(Your name)/V(Ana)", "Your name: Ana"),
        (b"/FT/Tx/T(note)/V(two\rlines)", "note: two\nlines"),
        (b"/FT/Tx/T(name)/V<FEFF00C5>", "name: Å"),
        (b"/FT/Ch/T(colors)/V[(red)(blue)]", "colors: red; blue"),
        (b"/FT/Btn/T(agreed)/V/Yes/AS/Yes", "agreed: checked"),
        (b"/FT/Btn/T(size)/V/large/AS/large", "size: large (checked)"),
        (b"/Parent 6 0 R/T(city)/V(Lund)", "person.city: Lund"),
        (b"/Parent 7 0 R", "zip: 123"),
        (b"/FT/Btn/T(agreed)/V/Off/AS/Off", ""),
        (b"/FT/Btn/T(send)/Ff 65536/V(x)", ""),
        (b"/FT/Tx/T(name)", ""),
        (b"/FT/Tx/T(secret)/Ff 8192/V(pa55)", ""),
        (b"/FT/Tx/T(hidden)/F 2/V(unseen)", ""),
        (b"/FT/Tx/T(loop)/Parent 8 0 R/V(x)", "loop: x"),
    ],
)
def test_what_was_filled_into_a_form_is_read(field: bytes, shown: str) -> None:
    parents = (
        b"<</FT/Tx/T(person)>>",
        b"<</FT/Tx/T(zip)/V(123)>>",
        b"<</Parent 8 0 R>>",
    )
    found = read(b"<</Type/Annot/Subtype/Widget/Rect[0 0 9 9]%b>>" % field, others=parents)

    assert found.markdown == "\n\n".join(["<!-- page 1 -->", "Printed.", *filter(None, [shown])])


def test_what_was_typed_onto_a_page_is_read() -> None:
    typed = b"<</Type/Annot/Subtype/FreeText/Rect[0 0 9 9]/Contents(Approved by Bo)>>"

    assert read(typed).markdown.endswith("Printed.\n\nApproved by Bo")


def test_comments_are_read_if_they_are_wanted() -> None:
    notes = [
        b"<</Type/Annot/Subtype/Text/Rect[0 0 9 9]/T(Ana)/Contents(Is this right?)>>",
        b"<</Type/Annot/Subtype/Highlight/Rect[0 0 9 9]/T(Bo)/Contents(Yes.)>>",
        b"<</Type/Annot/Subtype/Highlight/Rect[0 0 9 9]/T(Bo)>>",
        b"<</Type/Annot/Subtype/Popup/Rect[0 0 9 9]/Contents(Yes.)>>",
    ]
    left_out, wanted = read(*notes), read(*notes, comments=True)

    assert left_out.notes == ["comments left out: 2 (config: comments)"]
    assert left_out.markdown.endswith("Printed.")
    assert wanted.markdown.endswith(
        "Printed.\n\nComment by Ana: Is this right?\n\nComment by Bo: Yes."
    )
    assert wanted.notes == []


def test_damaged_annotations_do_not_keep_the_page_from_being_read() -> None:
    odd = [b"null ", b"(x)", b"<</Subtype/Widget/FT 3/V 4/Parent 5>>", b"99 0 R "]

    assert read(*odd).markdown.endswith("Printed.")
