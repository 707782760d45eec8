"""The files that users of a server may upload.

    uploads: {mebibytes: 50, types: [pdf, png, jpg]}

It is in the user's `settings.yaml`.
"""

from __future__ import annotations

import os
from typing import Any

from flowengine.errors import InputError, UsageError
from flowengine.named_tuples import NamedTuple

SIGNATURES = {
    ".png": (b"\x89PNG\r\n\x1a\n",),
    ".jpg": (b"\xff\xd8\xff",),
    ".jpeg": (b"\xff\xd8\xff",),
    ".gif": (b"GIF87a", b"GIF89a"),
    ".webp": (b"RIFF",),
    ".pdf": (b"%PDF-",),
}
"""Ending of a name → the first bytes of such files. Files with other content are refused."""
_KEYS = ("mebibytes", "types")
_EXAMPLE = "uploads: {mebibytes: 50, types: [pdf, png]}"


class UploadRules(NamedTuple):
    """What may be uploaded."""

    mebibytes: int = 20
    """Maximum size of a file."""
    types: tuple[str, ...] = ()
    """Endings of names, in lower case: `.pdf`. Empty: any."""

    @property
    def most_bytes(self) -> int:
        """Maximum size of a file in bytes."""
        return self.mebibytes * 1024 * 1024

    def check(self, name: str, start: bytes) -> None:
        """Check the type of a file.

        Args:
            name: Its name.
            start: Its first 8 bytes or more.

        Raises:
            InputError: Such files are not accepted, or its content does not match its name.
        """
        ending = os.path.splitext(name)[1].lower()
        if self.types and ending not in self.types:
            known = ", ".join(type_name.removeprefix(".") for type_name in self.types)
            raise InputError(
                f"files such as {name!r} are not accepted", field="name", hint=f"accepted: {known}"
            )
        if not start.startswith(SIGNATURES.get(ending, (b"",))):
            raise InputError(f"the content of {name!r} does not match its name", field="name")


def read_uploads(path: str, value: Any) -> UploadRules:
    """Read the setting `uploads`.

    Args:
        path: The settings file, for messages.
        value: The value in it.

    Raises:
        UsageError: It is not valid.
    """
    if not isinstance(value, dict) or not value.keys() <= set(_KEYS):
        raise UsageError(f"{path}: uploads must be a map of {', '.join(_KEYS)}", hint=_EXAMPLE)
    size, types = value.get("mebibytes", UploadRules().mebibytes), value.get("types", [])
    if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= 10_000:
        raise UsageError(f"{path}: uploads.mebibytes is {size!r}", hint="write 1 to 10000")
    if not isinstance(types, list) or not all(
        isinstance(suffix, str) and suffix for suffix in types
    ):
        raise UsageError(f"{path}: uploads.types must be a list of endings", hint=_EXAMPLE)
    return UploadRules(size, tuple(f".{suffix.lower().removeprefix('.')}" for suffix in types))
