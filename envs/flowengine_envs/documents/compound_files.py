"""Compound files of unknown origin: the containers of Office files before 2007, and of mails.

Source: [MS-CFB].
"""

from __future__ import annotations

import io

from flowengine_envs.documents.document import Damaged

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
