"""Symbols and names in LaTeX, for all formats with formulas."""

from __future__ import annotations

import re

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
