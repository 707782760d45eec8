"""Formulas of Word documents as LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

_NAMES = """
arccos arcsin arctan arg cos cosh cot coth csc deg det dim exp gcd hom inf ker lg lim liminf limsup
ln log max min sec sin sinh sup tan tanh
"""
FUNCTIONS = frozenset(_NAMES.split())
LARGE = {
    **{"∑": r"\sum", "∏": r"\prod", "∐": r"\coprod", "∫": r"\int", "∬": r"\iint", "∭": r"\iiint"},
    **{
        "∮": r"\oint",
        "\u22c3": r"\bigcup",
        "⋂": r"\bigcap",
        "\u22c1": r"\bigvee",
        "⋀": r"\bigwedge",
    },
}
"""Operators with limits."""
ACCENTS = {
    **{"\u0302": r"\hat", "\u0303": r"\tilde", "\u0304": r"\bar", "\u0305": r"\overline"},
    **{"\u0307": r"\dot", "\u0308": r"\ddot", "\u20d7": r"\vec", "\u030c": r"\check"},
}
BRACKETS = {"{": r"\{", "}": r"\}", "⟨": r"\langle", "⟩": r"\rangle", "": "."}
ROW = r" \\ "
"""Separates two rows of a matrix."""
_ESCAPED = re.compile(r"[\\%#&_{}$]")


def escaped(text: str) -> str:
    """Return text with the special characters of LaTeX escaped."""
    return _ESCAPED.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return r"\backslash " if match[0] == "\\" else f"\\{match[0]}"


def based(base: str) -> str:
    """Return the base of a script or limit, in braces if it has more than one character."""
    return base if len(base) < 2 else f"{{{base}}}"


def scripted(base: str, below: str, above: str) -> str:
    """Return a base with subscript and superscript, which may each be empty."""
    return base + (f"_{{{below}}}" if below else "") + (f"^{{{above}}}" if above else "")


def fraction(above: str, below: str, *, bar: bool = True, slanted: bool = False) -> str:
    """Return a fraction, or without a bar one expression above another."""
    if slanted:
        return f"{{{above}}}/{{{below}}}"
    return f"\\frac{{{above}}}{{{below}}}" if bar else f"{{{above} \\atop {below}}}"


def root(of: str, degree: str = "") -> str:
    """Return a root, by default a square root."""
    return f"\\sqrt{f'[{degree}]' if degree else ''}{{{of}}}"


def delimited(opening: str, inner: str, closing: str) -> str:
    """Return an expression in brackets of its height."""
    left, right = (BRACKETS.get(item, item) for item in (opening, closing))
    return f"\\left{left} {inner} \\right{right}"


def rows(lines: list[str], kind: str = "matrix") -> str:
    """Return rows, whose cells are separated by ` & `, as an environment of LaTeX."""
    return f"\\begin{{{kind}}} {ROW.join(lines)} \\end{{{kind}}}"


MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_APPLIED = re.compile("([A-Za-z]*)\u2061")
"""A name, and the invisible operator for the application of a function."""


def latex(formula: Any) -> str:
    """Return a formula, `m:oMath` or its content, as LaTeX."""
    return " ".join("".join(_written(child) for child in formula).split())


def _written(element: Any) -> str:
    name = element.tag.removeprefix(MATH) if isinstance(element.tag, str) else ""
    if name == "t":
        return _APPLIED.sub(_applied, escaped(element.text or ""))
    if name.endswith("Pr") or not name:
        return ""
    return _FORMS[name](element) if name in _FORMS else "".join(map(_written, element))


def _applied(match: re.Match[str]) -> str:
    return f"{chr(92) if match[1] in FUNCTIONS else ''}{match[1]} "


def _part(element: Any, name: str) -> str:
    child = element.find(f"{MATH}{name}")
    return "" if child is None else latex(child)


def _value(element: Any, name: str, otherwise: str) -> str:
    """Return a property of the element `d`, which is in `dPr`."""
    properties = element.find(f"{element.tag}Pr")
    child = None if properties is None else properties.find(f"{MATH}{name}")
    return otherwise if child is None else str(child.get(f"{MATH}val", ""))


def _scripts(element: Any, base: str) -> str:
    return scripted(base, _part(element, "sub"), _part(element, "sup"))


def _script(element: Any) -> str:
    return _scripts(element, based(_part(element, "e")))


def _before(element: Any) -> str:
    return f"{_scripts(element, '{}')}{_part(element, 'e')}"


def _fraction(element: Any) -> str:
    above, below = _part(element, "num"), _part(element, "den")
    kind = _value(element, "type", "bar")
    return fraction(above, below, bar=kind != "noBar", slanted=kind in {"lin", "skw"})


def _root(element: Any) -> str:
    return root(_part(element, "e"), _part(element, "deg"))


def _large(element: Any) -> str:
    sign = _value(element, "chr", "∫")
    return f"{_scripts(element, LARGE.get(sign, sign))} {_part(element, 'e')}"


def _delimited(element: Any) -> str:
    opening, closing = _value(element, "begChr", "("), _value(element, "endChr", ")")
    between = _value(element, "sepChr", "|")
    inner = between.join(latex(item) for item in element.iterchildren(f"{MATH}e"))
    return delimited(opening, inner, closing)


def _function(element: Any) -> str:
    name = _part(element, "fName")
    word = re.match(r"[A-Za-z]*", name)
    known = word is not None and word[0] in FUNCTIONS
    return f"{chr(92) if known else ''}{name} {_part(element, 'e')}"


def _limit(mark: str) -> Callable[[Any], str]:
    return lambda element: f"{_part(element, 'e')}{mark}{{{_part(element, 'lim')}}}"


def _accent(element: Any) -> str:
    sign = ACCENTS.get(_value(element, "chr", "\u0302"), r"\hat")
    return f"{sign}{{{_part(element, 'e')}}}"


def _bar(element: Any) -> str:
    sign = r"\overline" if _value(element, "pos", "bot") == "top" else r"\underline"
    return f"{sign}{{{_part(element, 'e')}}}"


def _matrix(element: Any) -> str:
    matrix_rows = element.iterchildren(f"{MATH}mr")
    return rows([" & ".join(map(latex, row.iterchildren(f"{MATH}e"))) for row in matrix_rows])


_FORMS: Mapping[str, Callable[[Any], str]] = {
    "f": _fraction,
    "rad": _root,
    "nary": _large,
    "d": _delimited,
    "func": _function,
    "limLow": _limit("_"),
    "limUpp": _limit("^"),
    "acc": _accent,
    "bar": _bar,
    "m": _matrix,
    "eqArr": lambda element: rows([*map(latex, element.iterchildren(f"{MATH}e"))], "aligned"),
    "sSup": _script,
    "sSub": _script,
    "sSubSup": _script,
    "sPre": _before,
}
