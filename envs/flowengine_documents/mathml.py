"""Conversion of formulas of web pages and e-books from MathML to LaTeX, without annotations.

Source: MathML Core and MathML 3, chapter 3 (W3C).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flowengine_documents.word_formulas import (
    ACCENTS,
    BRACKETS,
    FUNCTIONS,
    LARGE,
    based,
    delimited,
    escaped,
    fraction,
    root,
    rows,
    scripted,
)

_INVISIBLE = str.maketrans("", "", "\u2061\u2062\u2063\u2064")
"""Invisible operators: function application, multiplication, separation, addition."""
_ABOVE = {
    **ACCENTS,
    **{"^": r"\hat", "\u02c6": r"\hat", "~": r"\tilde", "\u02dc": r"\tilde", "¯": r"\overline"},
    **{"‾": r"\overline", "→": r"\vec", "˙": r"\dot", ".": r"\dot", "¨": r"\ddot", "ˇ": r"\check"},
    "⏞": r"\overbrace",
}
_BELOW = {r"\_": r"\underline", "\u0332": r"\underline", "⏟": r"\underbrace"}
_WITH_LIMITS = frozenset((*LARGE.values(), *(rf"\{name}" for name in FUNCTIONS)))
_SILENT = frozenset(("annotation", "annotation-xml", "mphantom", "none", "mprescripts"))


def latex(formula: Any) -> str:
    """Return a formula, `math`, as LaTeX, or as plain text if it is nested too deeply."""
    try:
        return " ".join(_row(formula).split())
    except RecursionError:
        return " ".join("".join(formula.itertext()).split())


def name_of(element: Any) -> str:
    """Return the name of an element without its prefix. Comments have none."""
    return element.tag.rpartition(":")[2] if isinstance(element.tag, str) else ""


def _children(element: Any) -> Iterator[Any]:
    """Yield the child elements, without comments."""
    return (child for child in element if name_of(child))


def _row(element: Any) -> str:
    parts = [element.text or "" if name_of(element) == "math" else ""]
    parts += map(_written, element)
    return "".join(parts)


def _written(element: Any) -> str:
    name = name_of(element)
    if not name or name in _SILENT:
        return ""
    return _FORMS.get(name, _row)(element).strip("\n")


def _text(element: Any) -> str:
    return " ".join("".join(element.itertext()).split())


def _name(element: Any) -> str:
    text = _text(element).translate(_INVISIBLE)
    return rf"\{text} " if text in FUNCTIONS else escaped(text)


def _operator(element: Any) -> str:
    text = _text(element).translate(_INVISIBLE)
    if text in LARGE:
        return f"{LARGE[text]} "
    if text in BRACKETS:
        return BRACKETS[text] if text else " "
    return escaped(text)


def _parts(element: Any) -> list[str]:
    """Return the arguments of an element. Missing ones are empty."""
    parts = [_written(child).strip() for child in _children(element)]
    return [*parts, *[""] * (3 - len(parts))]


def _fraction(element: Any) -> str:
    above, below, *_ = _parts(element)
    thickness = element.get("linethickness", "").rstrip("%abcdefghijklmnopqrstuvwxyz")
    bar = thickness not in {"0", "0.0"}
    return fraction(above, below, bar=bar, slanted=element.get("bevelled") == "true")


def _below(element: Any) -> str:
    base, below, *_ = _parts(element)
    return scripted(based(base), below, "")


def _above(element: Any) -> str:
    base, above, *_ = _parts(element)
    return scripted(based(base), "", above)


def _both(element: Any) -> str:
    base, below, above, *_ = _parts(element)
    return scripted(based(base), below, above)


def _under(element: Any) -> str:
    base, below, *_ = _parts(element)
    return _stacked(base, below, "")


def _over(element: Any) -> str:
    base, above, *_ = _parts(element)
    return _stacked(base, "", above)


def _under_and_over(element: Any) -> str:
    base, below, above, *_ = _parts(element)
    return _stacked(base, below, above)


def _stacked(base: str, below: str, above: str) -> str:
    """Return a base with limits, an accent or other text below and above it."""
    if base in _WITH_LIMITS:
        return f"{scripted(base, below, above)} "
    if below:
        sign = _BELOW.get(below, rf"\underset{{{below}}}")
        base = f"{sign}{{{base}}}"
    if above:
        sign = _ABOVE.get(above, rf"\overset{{{above}}}")
        base = f"{sign}{{{base}}}"
    return base


def _scripts_around(element: Any) -> str:
    """Return `mmultiscripts`: a base, its scripts in pairs, and the scripts before it."""
    children = [*_children(element)]
    names = [name_of(child) for child in children]
    cut = names.index("mprescripts") if "mprescripts" in names else len(names)
    texts = [_written(child).strip() for child in children]
    base, after, before = "".join(texts[:1]), texts[1:cut], texts[cut + 1 :]
    front = "".join(scripted("{}", *pair) for pair in _pairs(before))
    return front + based(base) + "".join(scripted("", *pair) for pair in _pairs(after))


def _pairs(scripts: list[str]) -> list[tuple[str, str]]:
    return [*zip(scripts[::2], [*scripts[1::2], ""], strict=False)]


def _root(element: Any) -> str:
    of, degree, *_ = _parts(element)
    return root(of, degree)


def _fenced(element: Any) -> str:
    marks = element.get("separators", ",").replace(" ", "")
    inner = [_written(child).strip() for child in _children(element)]
    between = [marks[min(at, len(marks) - 1)] if marks else "" for at in range(len(inner) - 1)]
    joined = "".join(f"{entry}{mark}" for entry, mark in zip(inner, [*between, ""], strict=False))
    return delimited(element.get("open", "("), joined, element.get("close", ")"))


def _table(element: Any) -> str:
    lines = [row for row in element if name_of(row) in {"mtr", "mlabeledtr"}]
    return rows([" & ".join(_written(cell).strip() for cell in row) for row in lines])


_FORMS: Mapping[str, Callable[[Any], str]] = {
    "mi": _name,
    "mn": lambda element: escaped(_text(element)),
    "mo": _operator,
    "mtext": lambda element: rf"\text{{{escaped(_text(element))}}}" if _text(element) else " ",
    "ms": lambda element: rf"\text{{{escaped(_text(element))}}}",
    "mspace": lambda element: " ",
    "mfrac": _fraction,
    "msqrt": lambda element: root(_row(element)),
    "mroot": _root,
    "msub": _below,
    "msup": _above,
    "msubsup": _both,
    "munder": _under,
    "mover": _over,
    "munderover": _under_and_over,
    "mmultiscripts": _scripts_around,
    "mfenced": _fenced,
    "mtable": _table,
}
