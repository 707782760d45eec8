"""Detection of a file's format: by its content, then the declared type, then its name."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from flowengine_documents.document import Damaged, PasswordRequired, UnsupportedFormat
from flowengine_documents.encodings import charset_of, declared_in
from flowengine_documents.text import decode

SIGNATURE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


class CompoundFile:
    """A compound file, which contains streams in storages, like files in directories.

    Args:
        data: Its bytes.

    Raises:
        Damaged: It cannot be opened.
    """

    def __init__(self, data: bytes) -> None:
        import olefile

        self._size = len(data)
        try:
            self._file = olefile.OleFileIO(io.BytesIO(data))
            self.paths = ["/".join(path) for path in self._file.listdir()]
        except Exception as error:  # of the library: it has errors of many types
            raise Damaged(f"the compound file cannot be opened: {error}") from None
        self._by_name = {path.lower(): path for path in self.paths}

    def find(self, *paths: str) -> str:
        """Return the first of some streams that exists, empty if there is none."""
        return next((path for path in paths if path.lower() in self._by_name), "")

    def size(self, path: str) -> int:
        """Return the size of a stream that exists."""
        return int(self._file.get_size(self._by_name[path.lower()]))

    def read(self, path: str) -> bytes:
        """Return the content of a stream.

        Raises:
            Damaged: It does not exist, or cannot be read.
        """
        known = self._by_name.get(path.lower(), path)
        try:
            # A stream of more bytes than the file has would be a loop of sectors.
            if self._file.get_size(known) > self._size:
                raise Damaged(f"'{path}' claims to be larger than the file")
            return bytes(self._file.openstream(known).read())
        except Damaged:
            raise
        except Exception as error:  # of the library: it has errors of many types
            raise Damaged(f"'{path}' cannot be read: {error}") from None


SUFFIXES: Mapping[str, str] = {
    ".pdf": "pdf",
    **dict.fromkeys((".docx", ".docm", ".dotx", ".dotm"), "docx"),
    **dict.fromkeys((".pptx", ".pptm", ".ppsx", ".ppsm", ".potx", ".potm"), "pptx"),
    **dict.fromkeys((".xlsx", ".xlsm", ".xltx", ".xltm"), "xlsx"),
    **dict.fromkeys((".xls", ".xlt"), "xls"),
    ".xlsb": "xlsb",
    **dict.fromkeys((".odt", ".ott"), "odt"),
    **dict.fromkeys((".ods", ".ots"), "ods"),
    ".rtf": "rtf",
    ".epub": "epub",
    ".zip": "zip",
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    **dict.fromkeys((".rss", ".atom"), "feed"),
    ".ipynb": "ipynb",
    **dict.fromkeys((".eml", ".mht", ".mhtml"), "eml"),
    ".msg": "msg",
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".webp"), "image"),
    **dict.fromkeys((".txt", ".md"), "text"),
}
_TYPES = {
    **dict.fromkeys(("text/html", "application/xhtml+xml"), "html"),
    **dict.fromkeys(("text/csv", "text/tab-separated-values"), "csv"),
    **dict.fromkeys(("message/rfc822", "multipart/related", "application/x-mimearchive"), "eml"),
    "application/x-ipynb+json": "ipynb",
    **dict.fromkeys(("application/rss+xml", "application/atom+xml"), "feed"),
}
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image"),
    (b"\xff\xd8\xff", "image"),
    (b"GIF87a", "image"),
    (b"GIF89a", "image"),
    (b"{\\rtf", "rtf"),
)
_OTHERS = (
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\0", "an xz archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive"),
    (b"MZ", "a Windows program"),
    (b"\x7fELF", "a program"),
    (b"ID3", "audio (MP3)"),
    (b"\xff\xfb", "audio (MP3)"),
    (b"OggS", "audio or video (Ogg)"),
    (b"fLaC", "audio (FLAC)"),
    (b"BM", "an image (BMP)"),
    (b"II*\0", "an image (TIFF)"),
    (b"MM\0*", "an image (TIFF)"),
    (b"SQLite format 3\0", "an SQLite database"),
)
_MIMETYPES = {
    "application/epub+zip": "epub",
    "application/vnd.oasis.opendocument.text": "odt",
    "application/vnd.oasis.opendocument.spreadsheet": "ods",
}
_COMPOUND = {"Workbook": "xls", "Book": "xls", "__properties_version1.0": "msg"}
"""Stream of a compound file → its format."""
_OTHER_COMPOUND = {
    "WordDocument": "Word before 2007",
    "PowerPoint Document": "PowerPoint before 2007",
}
_MAIN_PARTS = (
    (re.compile(rb"wordprocessingml\.(document|template)\.main|ms-word\.\w+\.\w+\.main"), "docx"),
    (
        re.compile(
            rb"presentationml\.(presentation|slideshow|template)\.main|"
            rb"ms-powerpoint\.(presentation|slideshow|template)\.macroEnabled\.main"
        ),
        "pptx",
    ),
    (
        re.compile(
            rb"spreadsheetml\.(sheet|template)\.main|"
            rb"ms-excel\.(sheet|template)\.macroEnabled\.main"
        ),
        "xlsx",
    ),
    (re.compile(rb"ms-excel\.sheet\.binary"), "xlsb"),
)
"""Content types of the main part of office files."""
_LONGEST_TYPES = 1024 * 1024
_OFFICE = {"word/": "docx", "ppt/": "pptx", "xl/": "xlsx"}
_PROLOG = rb"(?>\s*(?:<\?.*?\?>|<!--.*?-->))*\s*"
_HTML = re.compile(
    rb"^" + _PROLOG + rb"<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_FEED = re.compile(
    rb"^" + _PROLOG + rb"(?:<!doctype[^>\[]*(?:\[.*?\]\s*)?>\s*)?"
    rb"<(?:rss\b|(?:\w+:)?feed\b[^>]*\bxmlns|rdf:RDF\b[^>]*purl\.org/rss/)",
    re.IGNORECASE | re.DOTALL,
)
_MAIL = re.compile(
    rb"^(from|to|subject|date|mime-version|received|message-id|return-path):", re.IGNORECASE
)
_START = 4_096
_BROKEN = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError, RuntimeError)
"""Exceptions raised while reading an archive. `NotImplementedError` is a `RuntimeError`."""


class DetectedFormat(NamedTuple):
    """The format of a file."""

    format: str
    note: str = ""
    """A note if its name suggests another format."""


def detect(data: bytes, name: str = "", media_type: str = "") -> DetectedFormat:
    """Return the format of a file.

    Args:
        data: Its bytes.
        name: Its name, from which only the suffix is used.
        media_type: The type declared by a server or message.

    Raises:
        UnsupportedFormat: The format is not supported. The message names it.
        PasswordRequired: It is an encrypted Office file.
        Damaged: It is a broken archive.
    """
    suffix = PurePath(name).suffix.lower()
    claimed = SUFFIXES.get(suffix, "")
    detected = _by_content(data)
    if detected == "text":
        declared = _TYPES.get(media_type.partition(";")[0].strip().lower(), "")
        named = claimed if claimed in {"html", "csv", "eml", "ipynb", "feed"} else ""
        detected = _text_format(data) or declared or named or "text"
    if claimed and claimed != detected:
        return DetectedFormat(detected, f"its name suggests {claimed}, but it is {detected}")
    return DetectedFormat(detected)


def _by_content(data: bytes) -> str:
    """Return the format of a binary file, or `text`."""
    if b"%PDF-" in data[:1024]:
        return "pdf"
    for signature, format in _SIGNATURES:
        if data.startswith(signature):
            return format
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image"
    if data[:4] in {b"PK\x03\x04", b"PK\x05\x06"}:
        return _archive(data)
    if data.startswith(SIGNATURE):
        return _compound(data)
    if data.startswith(b"%!PS"):
        raise _unsupported("PostScript")
    if not _reads_as_text(data):
        named = (what for signature, what in _OTHERS if data.startswith(signature))
        raise _unsupported(next(named, "binary data of an unknown format"))
    return "text"


def _compound(data: bytes) -> str:
    file = CompoundFile(data)
    if file.find("EncryptedPackage"):
        raise PasswordRequired("it is an encrypted Office file, which cannot be opened here")
    for stream, format in _COMPOUND.items():
        if file.find(stream):
            return format
    other = next((what for stream, what in _OTHER_COMPOUND.items() if file.find(stream)), "")
    raise _unsupported(other or "a compound file of an unknown format")


def _archive(data: bytes) -> str:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.namelist()
            if "mimetype" in entries:
                with archive.open("mimetype") as file:
                    mimetype = file.read(100).strip().decode("ascii", "replace")
                if format := _MIMETYPES.get(mimetype.removesuffix("-template")):
                    return format
                raise _unsupported(mimetype)
            if "[Content_Types].xml" in entries:
                return _office(archive, entries)
    except _BROKEN as error:
        raise Damaged(f"it is an archive that cannot be opened: {error}") from None
    return "zip"


def _office(archive: zipfile.ZipFile, entries: Sequence[str]) -> str:
    """Return the format of an office file, by the type of its main part, or by a directory."""
    with archive.open("[Content_Types].xml") as file:
        types = file.read(_LONGEST_TYPES)
    for pattern, format in _MAIN_PARTS:
        if pattern.search(types):
            return format
    for folder, format in _OFFICE.items():
        if any(entry.startswith(folder) for entry in entries):
            return format
    raise _unsupported("an Office file of another program")


def _reads_as_text(data: bytes) -> bool:
    sample = data[:_START]
    try:
        text, _ = decode(sample)
    except Damaged:
        return False
    controls = sum(1 for sign in text if sign < " " and sign not in "\t\n\v\f\r\x1b")
    return controls <= len(text) // 50


def _text_format(data: bytes) -> str:
    """Return the format that a text certainly has, or the empty text."""
    start = data[:_START]
    if b"\0" in start:  # UTF-16
        start = decode(start)[0].encode()
    start = start.removeprefix(b"\xef\xbb\xbf")
    if _HTML.match(start):
        return "html"
    if _FEED.match(start):
        return "feed"
    if start.lstrip().startswith(b"{") and b'"nbformat"' in data and b'"cells"' in data:
        return "ipynb"
    head = start.replace(b"\r\n", b"\n").split(b"\n\n", 1)[0].split(b"\n")
    known = {field[1].lower() for line in head if (field := _MAIL.match(line))}
    if len(known) >= 3 and re.match(rb"[\w-]+:", head[0]):
        return "eml"
    return ""


def encoding_of(data: bytes, media_type: str = "") -> str:
    """Return the declared encoding of a text."""
    return charset_of(media_type) or declared_in(data)


def _unsupported(what: str) -> UnsupportedFormat:
    known = ", ".join(dict.fromkeys(SUFFIXES.values()))
    return UnsupportedFormat(f"it is {what}, which cannot be read. Supported are {known}")
