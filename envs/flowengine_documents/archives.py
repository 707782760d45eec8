"""ZIP files and XML of unknown origin."""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote

from lxml import etree

from flowengine_documents.document import ConversionLimits, Damaged, LimitReached

_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/")
_TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/"


def open_archive(data: bytes, limits: ConversionLimits) -> zipfile.ZipFile:
    """Open a ZIP file whose entries together do not exceed the limits.

    `zipfile` never unpacks more of an entry than the directory declares, so the directory is a
    reliable upper bound. Nothing is unpacked to disk, so names of entries are harmless.

    Raises:
        Damaged: It is not a ZIP file, or a part of it is missing.
        LimitReached: It would become too large.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise Damaged(f"the archive cannot be opened: {error}") from None
    entries = archive.infolist()
    if len(entries) > limits.entries:
        raise LimitReached("entries", limits.entries, f"the archive has {len(entries):,} entries")
    size = sum(entry.file_size for entry in entries)
    if size > limits.unpacked:
        raise LimitReached("unpacked", limits.unpacked, f"the archive unpacks to {size:,} bytes")
    return archive


def unpacked_size(data: bytes) -> int:
    """Return the size to which a ZIP file unpacks, 0 for other files."""
    if not data.startswith(b"PK"):
        return 0
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError):
        return 0


def read_entry(archive: zipfile.ZipFile, entry: str | zipfile.ZipInfo) -> bytes:
    """Return the bytes of an entry, given by its name, which several entries may share.

    Raises:
        Damaged: It is missing or invalid.
    """
    name = entry if isinstance(entry, str) else entry.filename
    try:
        return archive.read(entry)
    except KeyError:
        raise Damaged(f"the archive has no '{name}'") from None
    except Exception as error:  # zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, …
        raise Damaged(f"'{name}' cannot be unpacked: {error}") from None


def readable(data: bytes, limits: ConversionLimits) -> bytes:
    """Return an office file in a form that libraries can read.

    Files saved as "Strict Open XML" have namespaces that differ only in their beginning. Some
    programs omit a part, such as an image, to which another part still has a relationship.
    Libraries would refuse such a file.

    Raises:
        Damaged: It is not a ZIP file, or a part of it is missing.
        LimitReached: It would become too large.
    """
    with open_archive(data, limits) as archive:
        names = archive.namelist()
        if "_rels/.rels" not in names:
            return data
        strict = b"//purl.oclc.org/ooxml/" in read_entry(archive, "_rels/.rels")
        changes = _whole_relationships(archive)
        if not strict and not changes:
            return data
        changed = io.BytesIO()
        with zipfile.ZipFile(changed, "w") as written:
            for name in dict.fromkeys(names):
                content = changes.get(name) or read_entry(archive, name)
                if strict and name.endswith((".xml", ".rels")):
                    content = _STRICT.sub(_TRANSITIONAL, content)
                written.writestr(name, content)
        return changed.getvalue()


def _whole_relationships(archive: zipfile.ZipFile) -> dict[str, bytes]:
    """Return the relationship lists with relationships to missing parts, without these."""
    known = {name.lower() for name in archive.namelist()}
    changes: dict[str, bytes] = {}
    for name in archive.namelist():
        folder, parent, _ = name.rpartition("_rels/")
        if not parent or not name.endswith(".rels"):
            continue
        root = parse_xml(read_entry(archive, name))
        lost = [
            item for item in root.iterchildren("{*}Relationship") if _is_lost(item, folder, known)
        ]
        for item in lost:
            root.remove(item)
        if lost:
            changes[name] = etree.tostring(root)
    return changes


def _is_lost(relationship: Any, folder: str, known: Collection[str]) -> bool:
    """Return whether a relationship of a part in a directory leads to a missing part."""
    target = relationship.get("Target", "").partition("#")[0]
    if not target or relationship.get("TargetMode", "").lower() == "external":
        return False
    path = posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/").lower()
    return path not in known and unquote(path) not in known


class Relationship(NamedTuple):
    """A relationship of a part of an office file."""

    id: str
    kind: str
    """The last word of its type: `comments`, `hyperlink`, …"""
    target: str
    """The path of a part in the archive, or an address."""
    is_external: bool


def relationships(archive: zipfile.ZipFile, part: str) -> Iterator[Relationship]:
    folder, name = posixpath.split(part)
    path = posixpath.join(folder, "_rels", f"{name}.rels")
    if path not in archive.NameToInfo:
        return
    for item in parse_xml(read_entry(archive, path)).iterchildren("{*}Relationship"):
        target, is_external = item.get("Target", ""), item.get("TargetMode", "") == "External"
        if not is_external:
            target = posixpath.normpath(posixpath.join("/", folder, target))[1:]
        kind = item.get("Type", "").rpartition("/")[2]
        yield Relationship(item.get("Id", ""), kind, target, is_external)


def title_of(package: Any) -> str:
    """Return the title of an office file. Errors in its properties are ignored.

    Args:
        package: The library's object for the file, which has `core_properties`.
    """
    try:
        return package.core_properties.title or ""
    except Exception:  # of the library, or of its XML parser
        return ""


XML_OPTIONS: dict[str, Any] = {
    **{"resolve_entities": False, "no_network": True, "load_dtd": False},
    **{"remove_comments": True, "remove_pis": True},
}
"""Options of a parser that loads nothing, and keeps the text around a comment whole."""


def parse_xml(data: bytes) -> Any:
    """Return the root of an XML document, without loading any external resource.

    Raises:
        Damaged: It is not well-formed.
    """
    try:
        return etree.fromstring(data, etree.XMLParser(**XML_OPTIONS))
    except etree.XMLSyntaxError as error:
        raise Damaged(f"its XML is not well-formed: {error}") from None
