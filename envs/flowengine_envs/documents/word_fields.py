"""Fields of Word documents: codes such as `HYPERLINK "https://…"`, and the results shown for them.

A field is written as marks between runs: begin, its code, separate, its result, end. The code may
be split into several runs, contain further fields, and extend over paragraphs.
"""

from __future__ import annotations

import re
from typing import Any

from flowengine_envs.documents.markdown import target

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_ARGUMENT = re.compile(r'"((?:\\.|[^"\\])*)"|\\(\S)|(\S+)')
_ESCAPED = re.compile(r'\\([\\"])')
_WITH_VALUE = frozenset("lot*")
"""Switches of `HYPERLINK` that are followed by a value."""
_DEEPEST = 20
"""Maximum depth of nested fields."""
_CURLY = str.maketrans("\u201c\u201d\u201e", '"""')


class _Field:
    def __init__(self) -> None:
        self.code = ""
        self.is_code = True
        self.link = ""


class Fields:
    """The fields around the run that is being read."""

    def __init__(self) -> None:
        self._open: list[_Field] = []
        self._complete: set[Any] = set()
        """Marks of fields that begin and end. Others are ignored, because they would hide or link
        the rest of the text."""

    def prepare(self, root: Any) -> None:
        """Find the complete fields of a part of the document that is read next."""
        begun: list[list[Any]] = []
        for mark in root.iter(f"{W}fldChar"):
            if next(mark.iterancestors(f"{W}del", f"{W}moveFrom"), None) is not None:
                continue
            kind = mark.get(f"{W}fldCharType", "")
            if kind == "begin":
                begun.append([mark])
            elif begun:
                begun[-1].append(mark)
                if kind == "end":
                    marks = begun.pop()
                    self._complete.update(marks if len(begun) < _DEEPEST else ())

    @property
    def is_code(self) -> bool:
        """Whether the text here is part of a code, which is not shown."""
        return any(field.is_code for field in self._open)

    @property
    def link(self) -> str:
        """The target of the innermost link around the text, if there is one."""
        return next((field.link for field in reversed(self._open) if field.link), "")

    def take(self, element: Any) -> None:
        """Take an element of a run: a mark of a field, or a text, which may belong to a code."""
        if element.tag == f"{W}fldChar":
            if element in self._complete:
                self._mark(element.get(f"{W}fldCharType", ""))
        elif element.tag in {f"{W}instrText", f"{W}t"}:
            field = next((each for each in reversed(self._open) if each.is_code), None)
            if field is not None:
                field.code += element.text or ""

    def _mark(self, kind: str) -> None:
        if kind == "begin":
            self._open.append(_Field())
        elif kind == "separate" and self._open:
            self._open[-1].is_code = False
            self._open[-1].link = link_of(self._open[-1].code)
        elif kind == "end" and self._open:
            self._open.pop()


def link_of(code: str) -> str:
    """Return the target of a link, empty if it is the code of another field."""
    name, _, rest = code.strip().partition(" ")
    if name.upper() != "HYPERLINK":
        return ""
    address = anchor = switch = ""
    for quoted, switched, word in _ARGUMENT.findall(rest.translate(_CURLY)):
        if switched:
            switch = switched.lower()
            continue
        value = _ESCAPED.sub(r"\1", quoted or word.strip('"'))
        if switch == "l":
            anchor = anchor or value
        elif switch not in _WITH_VALUE:
            address = address or value
        switch = ""
    return target(address + (f"#{anchor}" if anchor else ""))
