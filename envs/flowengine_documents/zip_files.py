"""ZIP archives: their files, one after the other.

Nothing is unpacked to disk, and an archive in an archive shares the limits of the outer one.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePosixPath

from flowengine_documents.archives import open_archive, read_entry, unpacked_size
from flowengine_documents.document import (
    ConversionLimits,
    PasswordRequired,
    Unreadable,
    WrongPassword,
)
from flowengine_documents.markdown import Writer

Reader = Callable[[bytes, str, ConversionLimits], Writer]
"""Takes the bytes of a file, its name and its limits, and returns the written text."""
_DEEPEST = 3
_ENCRYPTED, _UTF_8 = 0x1, 0x800
_OF_SYSTEMS = frozenset((".DS_Store", "Thumbs.db", "desktop.ini"))


def convert(data: bytes, out: Writer, read: Reader, password: str = "", depth: int = 0) -> None:
    """Convert an archive.

    Args:
        data: Its bytes.
        out: Receives the text.
        read: Converts a file.
        password: The password of encrypted files.
        depth: How many archives enclose it.

    Raises:
        Damaged: It cannot be opened.
        LimitReached: It would become too large.
        PasswordRequired: All of its files are encrypted, and no password was given.
        WrongPassword: The password does not open it.
    """
    if depth >= _DEEPEST:
        raise Unreadable(f"archives in archives are read {_DEEPEST} deep at most")
    with open_archive(data, out.limits) as archive:
        entries = [*_files(archive)]
        locked = sum(entry.flag_bits & _ENCRYPTED for entry in entries)
        if locked == len(entries) and entries and not password:
            raise PasswordRequired("its files are encrypted. Pass their password")
        if not entries:
            out.note("the archive has no files")
        own = sum(entry.file_size for entry in entries)
        for number, entry in enumerate(entries, 1):
            name = _name(entry)
            out.part("file", number, name)
            out.heading(2, name)
            limits = replace(
                out.limits,
                unpacked=max(out.limits.unpacked - own - out.unpacked, 0),
                characters=out.characters_left,
                cells=out.cells_left,
            )
            try:
                content = _content(archive, entry, password)
                out.unpacked += unpacked_size(content)
                written = read(content, PurePosixPath(name).name, limits) if content else None
            except WrongPassword:
                raise
            except Unreadable as error:
                reason = str(error).partition(". Supported are")[0]
                out.paragraph(f"Not read: {reason}")
                out.note("some files of the archive were not read")
                continue
            if written is not None:
                out.unpacked += written.unpacked
                out.include(written.document, name)


def _files(archive: zipfile.ZipFile) -> Iterator[zipfile.ZipInfo]:
    """Yield the files of an archive, except for those that only operating systems use."""
    for entry in archive.infolist():
        path = PurePosixPath(entry.filename)
        is_of_system = path.name in _OF_SYSTEMS or "__MACOSX" in path.parts
        if not entry.is_dir() and not is_of_system:
            yield entry


def _content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, password: str) -> bytes:
    """Return the bytes of a file.

    Raises:
        Damaged: It is invalid.
        PasswordRequired: It is encrypted, and no password was given.
        WrongPassword: The password does not open it.
    """
    if not entry.flag_bits & _ENCRYPTED:
        return read_entry(archive, entry)
    if not password:
        raise PasswordRequired("it is encrypted")
    archive.setpassword(password.encode())
    try:
        return archive.read(entry)
    except NotImplementedError:
        raise Unreadable("its encryption is not supported") from None
    except Exception:  # of zipfile, or of the decompressor, after a wrong password
        raise WrongPassword("the password does not open it") from None


def _name(entry: zipfile.ZipInfo) -> str:
    """Return the name of a file. Many programs write UTF-8 without saying so."""
    if not entry.flag_bits & _UTF_8:
        with suppress(UnicodeError):
            return entry.filename.encode("cp437").decode("utf-8")
    return entry.filename
