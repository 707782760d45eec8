"""ZIP files and XML of unknown origin."""

from __future__ import annotations

import io
import re
import zipfile
from typing import Any

from flowengine_envs.documents.document import Damaged, LimitReached, Limits

_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/")
_TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/"


def open_archive(data: bytes, limits: Limits) -> zipfile.ZipFile:
    """Open a ZIP file whose entries together are no larger than they may be.

    `zipfile` never unpacks more of an entry than the directory says, so the directory can be relied
    on as an upper bound. Nothing is unpacked to disk, so names of entries are harmless.

    Raises:
        Damaged: It is no ZIP file, or a part of it is missing.
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


def read_entry(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return the bytes of an entry.

    Raises:
        Damaged: It is not there, or not what it should be.
    """
    try:
        return archive.read(name)
    except KeyError:
        raise Damaged(f"the archive has no '{name}'") from None
    except (zipfile.BadZipFile, EOFError, OSError, RuntimeError, NotImplementedError) as error:
        raise Damaged(f"'{name}' cannot be unpacked: {error}") from None
    except Exception as error:  # zlib.error, lzma.LZMAError, …
        raise Damaged(f"'{name}' cannot be unpacked: {error}") from None


def transitional(data: bytes, limits: Limits) -> bytes:
    """Return an office file with the namespaces that libraries know.

    Files saved as "Strict Open XML" have others, which differ in their beginning only.

    Raises:
        Damaged: It is no ZIP file, or a part of it is missing.
        LimitReached: It would become too large.
    """
    with open_archive(data, limits) as archive:
        if "_rels/.rels" not in archive.namelist():
            return data
        if b"//purl.oclc.org/ooxml/" not in read_entry(archive, "_rels/.rels"):
            return data
        changed = io.BytesIO()
        with zipfile.ZipFile(changed, "w") as written:
            for name in archive.namelist():
                content = read_entry(archive, name)
                if name.endswith((".xml", ".rels")):
                    content = _STRICT.sub(_TRANSITIONAL, content)
                written.writestr(name, content)
        return changed.getvalue()


def parse_xml(data: bytes) -> Any:
    """Return the root of an XML document; nothing outside of it is loaded.

    Raises:
        Damaged: It is not well-formed.
    """
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    try:
        return etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        raise Damaged(f"its XML is not well-formed: {error}") from None
