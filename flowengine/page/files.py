"""The kept files that values name, and the fields of forms that files are chosen in.

A form sends its files in parts of its body. They are kept as uploads of the user, and the field
then names them, so that a form that is refused, or sent twice, has them still.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flowengine.errors import InputError
from flowengine.sdk.file_names import SHA256, clean_name
from flowengine.server.models import UploadQuery
from flowengine.server.uploads import upload

if TYPE_CHECKING:
    from flowengine.page.sent_forms import SentFile
    from flowengine.server.calls import ApiCall

FILES = ("file", "files")
"""Kinds of fields: for one file, and for several."""
_SENT = ".file"
"""End of the name of a field in which a browser sends files."""
_FILE = {"path", "name", "size", "sha256"}
_NAMED = _FILE - {"path"}


def kept_files(call: ApiCall, files: Sequence[SentFile]) -> dict[str, str]:
    """Keep the files of a form as uploads of the user, and return field → its new text.

    Raises:
        FlowEngineError: The type of one is not accepted, or the user has uploaded too much.
    """
    names: dict[str, list[Any]] = {}
    for file in files:
        query = UploadQuery(name=clean_name(file.name))
        names.setdefault(file.field, []).append(upload(call._replace(query=query, body=file.path)))
    return {field: json.dumps(kept) for field, kept in names.items()}


def files_sent(kind: str, name: str, given: Mapping[str, str], value: Any) -> str:
    """Return the text of a field of files: JSON, empty without files.

    Args:
        kind: One of `FILES`.
        name: Name of the field.
        given: Name → text, as submitted. Empty: the form is shown for the first time.
        value: The value to show then.
    """
    if not given:
        values = value if isinstance(value, list) else [value]
        kept = [
            without_path(file) for file in values if isinstance(file, dict) and file.keys() == _FILE
        ]
    else:
        kept = files_of(given.get(name, ""))
    new = files_of(given.get(name + _SENT, ""))
    files = (new or kept)[-1:] if kind == "file" else kept + new
    return json.dumps(files) if files else ""


def files_of(text: str) -> list[dict[str, Any]]:
    """Return the files that the text of a field names.

    Raises:
        InputError: It is not of a form of this page.
    """
    if not text:
        return []
    try:
        names = json.loads(text)
        if all(item.keys() == _NAMED and SHA256.fullmatch(item["sha256"]) for item in names):
            return list(names)
    except (ValueError, TypeError, AttributeError, RecursionError):
        pass
    raise InputError("a file of the form cannot be read", hint="choose it again")


def with_file_names(value: Any) -> Any:
    """Return a value with a text for each file, to be read by people."""
    if isinstance(value, Mapping):
        if value.keys() >= _FILE:
            return f"{value['name']}, {value['size']} bytes"
        return {key: with_file_names(part) for key, part in value.items()}
    return [with_file_names(part) for part in value] if isinstance(value, list) else value


def without_path(value: Any) -> Any:
    """Return a file as a request names it, without its path on this machine, or another value."""
    if isinstance(value, Mapping) and value.keys() >= _FILE:
        return {key: part for key, part in value.items() if key != "path"}
    return value
