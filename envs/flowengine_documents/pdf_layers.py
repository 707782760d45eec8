"""Layers of a PDF, which a reader shows or hides.

Source: ISO 32000-1, 8.11 (optional content).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pypdf import PageObject
from pypdf.generic import ContentStream, NameObject

from flowengine_documents.pdf_tags import list_of, mapping_of

_TEXTS = frozenset({b"Tj", b"TJ", b"'", b'"'})
_PAINTS = frozenset({b"S", b"s", b"f", b"F", b"f*", b"B", b"B*", b"b", b"b*"})
_KEPT = ("/Type", "/Subtype", "/BBox", "/Matrix", "/Resources")


class Layers:
    """The layers of a page that are off when the file is opened.

    Args:
        page: The page.
    """

    def __init__(self, page: PageObject) -> None:
        root = getattr(page.pdf, "root_object", None)
        properties = mapping_of(mapping_of(root).get("/OCProperties"))
        default = mapping_of(properties.get("/D"))
        self._off = _ids(default.get("/OFF"))
        if default.get("/BaseState") == "/OFF":
            self._off |= _ids(properties.get("/OCGs")) - _ids(default.get("/ON"))
        self._pdf = page.pdf
        self._resources = mapping_of(page.get("/Resources"))
        self.hidden = 0
        """Number of texts and forms left out."""

    def __bool__(self) -> bool:
        return bool(self._off)

    def are_off(self, given: Any) -> bool:
        """Return whether a layer, or a group of layers, is off."""
        if getattr(given, "idnum", 0) in self._off:
            return True
        group = mapping_of(given)
        if not self._off or group.get("/Type") != "/OCMD":
            return False
        states = [self.are_off(each) for each in list_of(group.get("/OCGs"))]
        match group.get("/P", "/AnyOn"):
            case "/AllOn":
                return any(states)
            case "/AnyOff":
                return not any(states)
            case "/AllOff":
                return not all(states)
        return bool(states) and all(states)

    def shown(self, operations: Iterable[tuple[Any, bytes]]) -> Iterator[tuple[Any, bytes]]:
        """Yield the operations of a page without what layers hide."""
        self.hidden = 0
        return self._shown(operations, self._resources)

    def _shown(
        self, operations: Iterable[tuple[Any, bytes]], resources: Mapping[str, Any]
    ) -> Iterator[tuple[Any, bytes]]:
        named = mapping_of(resources.get("/Properties"))
        objects = mapping_of(resources.get("/XObject"))
        around: list[bool] = []
        """For each enclosing mark, whether its content is hidden."""
        for operands, operator in operations:
            is_hidden = bool(around) and around[-1]
            if operator in (b"BDC", b"BMC"):
                is_layer = len(operands) > 1 and operands[0] == "/OC"
                layer = named.get(str(operands[1])) if is_layer else None
                around.append(is_hidden or self.are_off(layer))
            elif operator == b"EMC" and around:
                around.pop()
            elif operator == b"Do" and operands and not is_hidden:
                name = str(operands[0])
                form = mapping_of(objects.get(name))
                is_hidden = self.are_off(form.get("/OC"))
                if form.get("/Subtype") == "/Form" and not is_hidden:
                    self._filter(objects, name, form)
            if is_hidden and operator in _TEXTS | {b"Do"}:
                self.hidden += 1
                if operator in (b"'", b'"'):
                    yield [], b"T*"
            elif is_hidden and operator in _PAINTS:
                yield [], b"n"
            else:
                yield operands, operator

    def _filter(self, objects: Any, name: str, form: Any) -> None:
        """Put a form without what layers hide in its place."""
        if isinstance(form, ContentStream):  # It was drawn before.
            self.hidden += vars(form).get("hidden", 0)
            return
        before = self.hidden
        stream = ContentStream(form, self._pdf, "bytes")
        stream.update({key: form[key] for key in _KEPT if key in form})
        objects[NameObject(name)] = stream
        stream.operations = [*self._shown(stream.operations, mapping_of(form.get("/Resources")))]
        vars(stream)["hidden"] = self.hidden - before


def _ids(layers: Any) -> set[int]:
    return {getattr(each, "idnum", 0) for each in list_of(layers)} - {0}
