"""Excel: formulas without cached values, charts, both kinds of comments."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable

import openpyxl
from openpyxl.comments import Comment

from flowengine_envs.documents.converting import convert


def saved(book: openpyxl.Workbook) -> bytes:
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def changed(data: bytes, change: Callable[[str, bytes], bytes], **more: bytes) -> bytes:
    """Return an archive with changed and added entries."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as before, zipfile.ZipFile(buffer, "w") as after:
        for name in before.namelist():
            after.writestr(name, change(name, before.read(name)))
        for name, content in more.items():
            after.writestr(name, content)
    return buffer.getvalue()


def test_comments_on_cells_are_read_if_they_are_wanted() -> None:
    book = openpyxl.Workbook()
    assert book.active is not None
    book.active["A1"] = "sum"
    book.active["A1"].comment = Comment("check  this", "Ana Silva")
    book.create_sheet("Second")["B2"].comment = Comment("and this", "Bo")
    left_out, wanted = convert(saved(book)), convert(saved(book), comments=True)

    assert left_out.notes == ["comments left out: 2 (config: comments)"]
    assert "check" not in left_out.markdown
    assert wanted.markdown == (
        "<!-- sheet 1 -->\n\n## Sheet\n\n| sum |\n| --- |\n\nComment by Ana Silva on A1: check this"
        "\n\n<!-- sheet 2 -->\n\n## Second\n\nComment by Bo on B2: and this"
    )


def test_of_a_thread_each_answer_is_read_and_not_the_note_for_older_programs() -> None:
    book = openpyxl.Workbook()
    assert book.active is not None
    book.active["A1"] = "sum"
    book.active["A1"].comment = Comment("[Threaded comment] Your version …", "tc")
    kind = b"http://schemas.microsoft.com/office/2017/10/relationships/threadedComment"
    space = b"http://schemas.microsoft.com/office/spreadsheetml/2018/threadedcomments"

    def relate(name: str, content: bytes) -> bytes:
        if name != "xl/worksheets/_rels/sheet1.xml.rels":
            return content
        to = b'<Relationship Id="t" Type="%b" Target="../threadedComments/t1.xml"/>' % kind
        return content.replace(b"</Relationships>", to + b"</Relationships>")

    data = changed(
        saved(book),
        relate,
        **{
            "xl/threadedComments/t1.xml": b'<ThreadedComments xmlns="%b">'
            b'<threadedComment ref="A1" personId="1" id="a"><text>Right?</text></threadedComment>'
            b'<threadedComment ref="A1" personId="2" id="b" parentId="a"><text>Yes.</text>'
            b"</threadedComment></ThreadedComments>" % space,
            "xl/persons/person.xml": b'<personList xmlns="%b"><person displayName="Ana" id="1"/>'
            b'<person displayName="Bo" id="2"/></personList>' % space,
        },
    )
    found = convert(data, comments=True)

    assert found.markdown.endswith(
        "| sum |\n| --- |\n\nComment by Ana on A1: Right?\n\nComment by Bo on A1: Yes."
    )
