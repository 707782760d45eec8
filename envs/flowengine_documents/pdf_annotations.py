"""Annotations on the pages of a PDF: links, values of forms, stamps, files and comments.

Source: ISO 32000-1, 12.5 (annotations) and 12.7 (interactive forms).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from pypdf import PageObject

from flowengine_documents.markdown import target
from flowengine_documents.pdf_layers import Layers
from flowengine_documents.pdf_tags import mapping_of, object_of

_UNSEEN = 0b10_0010
"""Flags of an invisible annotation: hidden, no view."""
_PASSWORD, _PUSH_BUTTON = 1 << 13, 1 << 16
_DEEPEST = 32
"""Maximum depth of nested fields."""
_NO_COMMENT = {"/Link", "/Widget", "/Popup", "/FreeText", "/Stamp"}


class Annotations:
    """The annotations of a page.

    Args:
        page: The page.
        layers: Its layers.
    """

    def __init__(self, page: PageObject, layers: Layers) -> None:
        items = (item.get_object() for item in page.get("/Annots") or ())
        self._page = page
        self._all: list[Any] = []
        for item in items:
            if hasattr(item, "get"):
                is_off = layers.are_off(item.get("/OC"))
                layers.hidden += is_off
                self._all += [] if is_off else [item]

    @property
    def links(self) -> list[str]:
        """The addresses that the page links to, without duplicates."""
        texts: dict[str, None] = {}
        for item in self._all:
            if where := target(_text(mapping_of(item.get("/A")).get("/URI"))):
                texts[where] = None
        return [*texts]

    @property
    def texts(self) -> list[str]:
        """Texts typed onto the page."""
        written = (_text(item.get("/Contents")) for item in self._seen("/FreeText"))
        return [text for text in written if text.strip()]

    @property
    def stamps(self) -> Iterator[str]:
        """What stamps show, or their names."""
        for item in self._seen("/Stamp"):
            drawn = object_of(mapping_of(item.get("/AP")).get("/N"))
            shown = ""
            with suppress(Exception):  # of the library, because the stamp has a name, too
                shown = self._page.extract_xform_text(drawn)
            text = " ".join((shown or _text(item.get("/Contents"))).split())
            yield f"Stamp: {text or str(object_of(item.get('/Name')) or '').removeprefix('/')}"

    @property
    def files(self) -> Iterator[str]:
        """The names of attached files."""
        for item in self._seen("/FileAttachment"):
            yield file_name(item.get("/FS"))

    @property
    def fields(self) -> dict[str, str]:
        """Values of form fields, by the field names that users see."""
        links: dict[str, str] = {}
        for item in self._seen("/Widget"):
            name = _text(_inherited(item, "/TU")) or ".".join(_names(item))
            if value := _value(item):
                links[name or "field"] = value
        return links

    @property
    def comments(self) -> Iterator[tuple[str, str]]:
        """The comments as author and text."""
        for item in self._all:
            if item.get("/Subtype") not in _NO_COMMENT and (
                comment := _text(item.get("/Contents"))
            ):
                yield _text(item.get("/T")), comment

    def _seen(self, kind: str) -> Iterator[Any]:
        for item in self._all:
            flags = item.get("/F", 0)
            if item.get("/Subtype") == kind and not (isinstance(flags, int) and flags & _UNSEEN):
                yield item


def _value(field: Any) -> str:
    """Return the value of a field, empty if there is none or it must not be shown."""
    kind, value = _inherited(field, "/FT"), _inherited(field, "/V")
    flags = _inherited(field, "/Ff")
    flags = flags if isinstance(flags, int) else 0
    if kind == "/Btn":
        state = field.get("/AS")
        shown = str(value if state is None else state).removeprefix("/")
        return "" if flags & _PUSH_BUTTON or shown in {"Off", "None"} else _chosen(shown)
    if kind not in {"/Tx", "/Ch"} or flags & _PASSWORD:
        return ""
    options = _options(field) if kind == "/Ch" else []
    if value is None and isinstance(chosen := _inherited(field, "/I"), list):
        value = [
            options[at][0] for at in chosen if isinstance(at, int) and at in range(len(options))
        ]
    values = (_text(each).strip() for each in (value if isinstance(value, list) else [value]))
    texts = dict(options)
    return "; ".join(filter(None, (texts.get(each, each) for each in values)))


def _options(field: Any) -> list[tuple[str, str]]:
    """Return the values from which users choose, with their texts."""
    options = (object_of(each) for each in _inherited(field, "/Opt") or ())
    pairs = (each if isinstance(each, list) else [each] for each in options)
    return [(_text(each[0]).strip(), _text(each[-1]).strip()) for each in pairs if each]


def file_name(given: Any) -> str:
    """Return the name of a file in a PDF."""
    file = mapping_of(given)
    return _text(file.get("/UF")) or _text(file.get("/F")) or "without a name"


def _chosen(name: str) -> str:
    """Return the state of a box or a radio button, which many programs name just `Yes` or `1`."""
    return "checked" if name in {"Yes", "On", "1"} else f"{name} (checked)"


def _inherited(field: Any, key: str) -> Any:
    for with_parent in _with_parents(field):
        if key in with_parent:
            return object_of(with_parent[key])
    return None


def _names(field: Any) -> list[str]:
    names = [_text(with_parent.get("/T")) for with_parent in _with_parents(field)]
    return [name for name in reversed(names) if name]


def _with_parents(field: Any) -> Iterator[Any]:
    for _ in range(_DEEPEST):
        if not hasattr(field, "get"):
            return
        yield field
        field = object_of(field.get("/Parent"))


def _text(value: Any) -> str:
    """Return a string of a PDF as text, empty for other objects."""
    value = object_of(value)
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return str(value).replace("\r\n", "\n").replace("\r", "\n") if isinstance(value, str) else ""
