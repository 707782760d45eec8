"""The content of the fields of HTML forms."""

from __future__ import annotations

from typing import Any

_UNSHOWN = frozenset({"hidden", "password", "image", "file"})
_TICKS = frozenset({"checkbox", "radio"})
_TICKED, _OPEN = "[x]", "[ ]"


class FormFields:
    """The fields of a page, which are read in their order."""

    def __init__(self) -> None:
        self._chosen: set[Any] = set()
        """The chosen options of the last `select`."""

    def text(self, element: Any) -> str:
        """Return the text that a field shows before its content."""
        if element.tag == "input":
            return _text_of_input(element)
        if element.tag == "option":
            return self._mark_of_option(element)
        if element.tag == "select":
            self._chosen = _chosen_options(element)
        return element.get("label", "") if element.tag == "optgroup" else ""

    def _mark_of_option(self, option: Any) -> str:
        """Return whether an option is chosen, and its label if it has no text."""
        text, label = "".join(option.itertext()).strip(), option.get("label", "").strip()
        if not text and not label:
            return ""
        return f"{_TICKED if option in self._chosen else _OPEN} {'' if text else label}"


def _text_of_input(field: Any) -> str:
    kind = field.get("type", "text").lower()
    if kind in _TICKS:
        return f" {_TICKED if 'checked' in field.attrib else _OPEN} "
    return "" if kind in _UNSHOWN else f" {field.get('value') or field.get('placeholder') or ''} "


def _chosen_options(select: Any) -> set[Any]:
    """Return the options that a browser shows as chosen."""
    options = [*select.iter("option")]
    selected = [option for option in options if "selected" in option.attrib]
    if "multiple" in select.attrib:
        return set(selected)
    if not selected and select.get("size", "1") in {"", "0", "1"}:
        selected = [option for option in options if not _is_disabled(option)][:1]
    return set(selected[-1:])


def _is_disabled(option: Any) -> bool:
    group = option.getparent()
    return "disabled" in option.attrib or (group.tag == "optgroup" and "disabled" in group.attrib)
