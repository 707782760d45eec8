"""Formulas of Word documents as LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_ESCAPED = re.compile(r"[\\%#&_{}$]")
_NAMES = """
arccos arcsin arctan arg cos cosh cot coth csc deg det dim exp gcd hom inf ker lg lim liminf limsup
ln log max min sec sin sinh sup tan tanh
"""
_FUNCTIONS = frozenset(_NAMES.split())
_LARGE = {
    **{"∑": r"\sum", "∏": r"\prod", "∐": r"\coprod", "∫": r"\int", "∬": r"\iint", "∭": r"\iiint"},
    **{
        "∮": r"\oint",
        "\u22c3": r"\bigcup",
        "⋂": r"\bigcap",
        "\u22c1": r"\bigvee",
        "⋀": r"\bigwedge",
    },
}
_ACCENTS = {
    **{"\u0302": r"\hat", "\u0303": r"\tilde", "\u0304": r"\bar", "\u0305": r"\overline"},
    **{"\u0307": r"\dot", "\u0308": r"\ddot", "\u20d7": r"\vec", "\u030c": r"\check"},
}
_BRACKETS = {"{": r"\{", "}": r"\}", "⟨": r"\langle", "⟩": r"\rangle", "": "."}
_ROW = r" \\ "
_APPLIED = re.compile("([A-Za-z]*)\u2061")
"""A name, and the invisible sign for the application of a function."""


def latex(formula: Any) -> str:
    """Return a formula, `m:oMath` or what is in one, as LaTeX."""
    return " ".join("".join(_written(child) for child in formula).split())


def _written(element: Any) -> str:
    name = element.tag.removeprefix(MATH) if isinstance(element.tag, str) else ""
    if name == "t":
        return _APPLIED.sub(_applied, _ESCAPED.sub(_escaped, element.text or ""))
    if name.endswith("Pr") or not name:
        return ""
    return _FORMS[name](element) if name in _FORMS else "".join(map(_written, element))


def _escaped(found: re.Match[str]) -> str:
    return r"\backslash " if found[0] == "\\" else f"\\{found[0]}"


def _applied(found: re.Match[str]) -> str:
    return f"{chr(92) if found[1] in _FUNCTIONS else ''}{found[1]} "


def _part(element: Any, name: str) -> str:
    found = element.find(f"{MATH}{name}")
    return "" if found is None else latex(found)


def _value(element: Any, name: str, otherwise: str) -> str:
    """Return a property: of the element `d` it stands in `dPr`."""
    properties = element.find(f"{element.tag}Pr")
    found = None if properties is None else properties.find(f"{MATH}{name}")
    return otherwise if found is None else str(found.get(f"{MATH}val", ""))


def _scripts(element: Any, base: str) -> str:
    below, above = _part(element, "sub"), _part(element, "sup")
    return base + (f"_{{{below}}}" if below else "") + (f"^{{{above}}}" if above else "")


def _script(element: Any) -> str:
    base = _part(element, "e")
    return _scripts(element, base if len(base) < 2 else f"{{{base}}}")


def _before(element: Any) -> str:
    return f"{_scripts(element, '{}')}{_part(element, 'e')}"


def _fraction(element: Any) -> str:
    above, below = _part(element, "num"), _part(element, "den")
    kind = _value(element, "type", "bar")
    if kind in {"lin", "skw"}:
        return f"{{{above}}}/{{{below}}}"
    return f"{{{above} \\atop {below}}}" if kind == "noBar" else f"\\frac{{{above}}}{{{below}}}"


def _root(element: Any) -> str:
    degree = _part(element, "deg")
    return f"\\sqrt{f'[{degree}]' if degree else ''}{{{_part(element, 'e')}}}"


def _large(element: Any) -> str:
    sign = _value(element, "chr", "∫")
    return f"{_scripts(element, _LARGE.get(sign, sign))} {_part(element, 'e')}"


def _delimited(element: Any) -> str:
    opening, closing = _value(element, "begChr", "("), _value(element, "endChr", ")")
    between = _value(element, "sepChr", "|")
    inner = between.join(latex(one) for one in element.iterchildren(f"{MATH}e"))
    left, right = (_BRACKETS.get(one, one) for one in (opening, closing))
    return f"\\left{left} {inner} \\right{right}"


def _function(element: Any) -> str:
    name = _part(element, "fName")
    word = re.match(r"[A-Za-z]*", name)
    known = word is not None and word[0] in _FUNCTIONS
    return f"{chr(92) if known else ''}{name} {_part(element, 'e')}"


def _limit(mark: str) -> Callable[[Any], str]:
    return lambda element: f"{_part(element, 'e')}{mark}{{{_part(element, 'lim')}}}"


def _accent(element: Any) -> str:
    sign = _ACCENTS.get(_value(element, "chr", "\u0302"), r"\hat")
    return f"{sign}{{{_part(element, 'e')}}}"


def _bar(element: Any) -> str:
    sign = r"\overline" if _value(element, "pos", "bot") == "top" else r"\underline"
    return f"{sign}{{{_part(element, 'e')}}}"


def _matrix(element: Any) -> str:
    rows = (
        " & ".join(latex(cell) for cell in row.iterchildren(f"{MATH}e"))
        for row in element.iterchildren(f"{MATH}mr")
    )
    return f"\\begin{{matrix}} {_ROW.join(rows)} \\end{{matrix}}"


def _equations(element: Any) -> str:
    rows = _ROW.join(latex(one) for one in element.iterchildren(f"{MATH}e"))
    return f"\\begin{{aligned}} {rows} \\end{{aligned}}"


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
    "eqArr": _equations,
    "sSup": _script,
    "sSub": _script,
    "sSubSup": _script,
    "sPre": _before,
}
