"""Values that requests send for inputs, state, forms, decisions and signals.

A request names no file of this machine. Where a value is a file, only an upload of the user who
sends it passes, and its path is set here. Fields with `format: path` accept no value at all.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import unquote

from starlette.routing import Route as PathRoute

from flowengine.errors import InputError, NotAllowed, NotFound
from flowengine.sdk.files.file_names import clean_name
from flowengine.sdk.python.user_code import on_thread
from flowengine.server.calls import ApiCall
from flowengine.server.records import ServerRecords, StoredUpload
from flowengine.server.rights import Principal, Right
from flowengine.server_settings import UploadRules
from flowengine.util.files import make_folder

FORMAT = "file"
"""`format` of the schema of a file."""
_FILE = frozenset({"name", "size", "sha256"})

_NO_PATHS = {
    "properties": {"name": {"$ref": "#"}, "sha256": {"$ref": "#"}},
    "additionalProperties": {"$ref": "#"},
    "items": {"$ref": "#"},
}
"""JSON Schema of data in which each map may be a file."""

Uploads = Callable[[str], dict[str, Any]]
"""Digest → the file that a flow receives, `{path, name, size, sha256}`. Raises `NotFound`."""


def uploads_of(call: ApiCall) -> Uploads:
    """Return the uploads of the user who sends a request."""

    def find(digest: str) -> dict[str, Any]:
        kept = call.records.upload(call.principal.user, digest)
        return {"path": str(call.engine.store.fetch_artifact(kept.sha256)), **kept._asdict()}

    return find


def no_uploads(digest: str) -> dict[str, Any]:
    """Refuse a file of a sender that cannot upload any, such as another service.

    Raises:
        NotFound: Always.
    """
    raise NotFound(f"the sender has uploaded no file {digest!r}")


def sent_values(
    uploads: Uploads, schemas: Mapping[str, Any], given: Any, what: str, root: Any = None
) -> Any:
    """Return the values of a request, with each file as a flow receives it.

    Args:
        uploads: The files that the sender may name.
        schemas: Field → JSON Schema. Others have none.
        given: Field → value. Another type is returned unchanged.
        what: The kind of field, for messages.
        root: The JSON Schema that contains those of the fields, for their references.

    Raises:
        InputError: A value names a path of this machine.
        NotFound: The sender has not uploaded one of the files.
    """
    if not isinstance(given, Mapping):
        return given
    values = {}
    for name, value in given.items():
        field = _Field(uploads, f"{what} '{name}'", name, schemas.get(name, True), root)
        values[name] = field.value(value, [field.schema])
    return values


def sent_edits(uploads: Uploads, wait: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """Return the edits of an approval's subject, each under the dotted path of its field.

    What is a file before is one afterwards, also in a field without a schema.

    Args:
        uploads: The files that the sender may name.
        wait: The approval.
        given: Dotted path → value.

    Raises:
        InputError: A value names a path of this machine, or a path leads into a file.
        NotFound: The sender has not uploaded one of the files.
    """
    root, subject = wait.get("edit_schema") or {}, wait.get("subject")
    before = subject if isinstance(subject, Mapping) else {}
    edits = {}
    for path, edit in given.items():
        field, *parts = path.split(".")
        value = edit
        for part in reversed(parts):
            value = {part: value}
        schema = {"allOf": [root.get("properties", {}).get(field, True), _like(before.get(field))]}
        value = sent_values(uploads, {field: schema}, {field: value}, "field", root)[field]
        for part in parts:
            value = value[part]
        edits[path] = value
    return edits


def _like(value: Any) -> dict[str, Any]:
    """Return a JSON Schema that has the files of a value."""
    if isinstance(value, Mapping):
        if value.keys() == {"path", *_FILE}:
            return {"format": FORMAT}
        return {"properties": {key: _like(part) for key, part in value.items()}}
    if isinstance(value, list):
        kinds = {repr(kind): kind for kind in map(_like, value)}
        return {"items": {"anyOf": [*kinds.values()]}}
    return {"type": "string"} if isinstance(value, str) else {}


def starting_data(
    uploads: Uploads, inputs: Mapping[str, Any], given: Mapping[str, Any], data: Any
) -> Any:
    """Return the data of a signal that starts a flow, which computes its inputs from them.

    Any part of the data may become the value of an input. So none is a path if an input is a file.

    Args:
        uploads: The files that the sender may name.
        inputs: Input → JSON Schema.
        given: Input → compiled value, of those that `start.with` gives.
        data: The data.

    Raises:
        InputError: The data contain a path, or an input is one.
        NotFound: The sender has not uploaded one of the files.
    """
    computed = {name: inputs.get(name) for name, value in given.items() if value[0] != "const"}
    for name, schema in computed.items():
        if names_path(schema):
            sent_values(uploads, {name: {"format": "path"}}, {name: data}, "input")
    if any(is_file(part) for part in _parts([*computed.values()])):
        return sent_values(uploads, {"data": _NO_PATHS}, {"data": data}, "signal's")["data"]
    return data


def names_path(schema: Any) -> bool:
    """Return whether a JSON Schema has `format: path` anywhere."""
    return any(part.get("format") == "path" for part in _parts(schema))


def is_file(schema: Any) -> bool:
    """Return whether values of a schema are files: by its format, or by the parts of a file."""
    if not isinstance(schema, Mapping):
        return False
    properties = schema.get("properties")
    parts = properties.keys() if isinstance(properties, Mapping) else ()
    return schema.get("format") == FORMAT or {"name", "sha256"} <= {*parts}


class _Field(NamedTuple):
    """One field of a request."""

    uploads: Uploads
    """The files that the sender may name."""
    what: str
    """The field, for messages."""
    name: str
    schema: Any
    """Its JSON Schema."""
    root: Any
    """The JSON Schema that contains it."""

    def value(self, value: Any, schemas: Iterable[Any]) -> Any:
        """Return the value of a part of the field, which has these schemas, with its files."""
        flat = [*self._flat(schemas)]
        are_files = any(schema.get("format") == FORMAT for schema in flat)
        if any(schema.get("format") == "path" for schema in flat):
            raise InputError(
                f"{self.what} is a path on the server's machine, which the API does not accept",
                field=self.name,
                hint="start it with the command line on that machine",
            )
        if isinstance(value, list):
            return [self.value(part, _items(flat, at)) for at, part in enumerate(value)]
        is_refused = False
        if isinstance(value, Mapping):
            digest = value.get("sha256")
            if value.keys() - {"path"} == _FILE and isinstance(digest, str):
                return self.uploads(digest)
            is_refused = are_files or ("path" in value and any(map(is_file, flat)))
        elif isinstance(value, str) and are_files:
            texts = (schema for schema in flat if not is_file(schema))
            is_refused = not any("string" in _types(schema) for schema in texts)
        if is_refused:
            raise InputError(
                f"{self.what} must name a file that was uploaded, as {{name, size, sha256}}",
                field=self.name,
                hint="upload it: POST /v1/artifacts?name=NAME returns these",
            )
        if isinstance(value, Mapping):
            return {key: self.value(part, _members(flat, key)) for key, part in value.items()}
        return value

    def _flat(self, schemas: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
        """Yield schemas with those that they refer to or combine, each once."""
        pending, seen = [*schemas], set[int]()
        for schema in pending:
            if not isinstance(schema, Mapping) or id(schema) in seen:
                continue
            seen.add(id(schema))
            yield schema
            for word in ("anyOf", "oneOf", "allOf"):
                branches = schema.get(word)
                pending += branches if isinstance(branches, list) else []
            pending += [schema[word] for word in ("if", "then", "else", "not") if word in schema]
            dependent = schema.get("dependentSchemas")
            pending += dependent.values() if isinstance(dependent, Mapping) else ()
            for reference in (schema.get(word) for word in ("$ref", "$dynamicRef")):
                if isinstance(reference, str):
                    pending += _referred(self.schema, reference)
                    pending += _referred(self.root, reference)


def _referred(root: Any, reference: str) -> Iterator[Any]:
    """Yield the parts of a schema that a reference may name."""
    name = unquote(reference.removeprefix("#"))
    if name and not name.startswith("/"):
        yield from (
            part
            for part in _parts(root)
            if any(part.get(word) == name for word in ("$anchor", "$dynamicAnchor"))
        )
        return
    part = root
    for each in name.split("/")[1:]:
        key = each.replace("~1", "/").replace("~0", "~")
        if isinstance(part, list):
            part = part[int(key)] if key.isdecimal() and int(key) < len(part) else None
        else:
            part = part.get(key) if isinstance(part, Mapping) else None
    yield part


def _parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    pending = [schema]
    for part in pending:
        if isinstance(part, Mapping):
            yield part
            pending += part.values()
        elif isinstance(part, list):
            pending += part


def _members(schemas: list[Mapping[str, Any]], key: str) -> Iterator[Any]:
    for schema in schemas:
        properties = schema.get("properties")
        if isinstance(properties, Mapping) and key in properties:
            yield properties[key]
        else:
            yield schema.get("additionalProperties")
            yield schema.get("unevaluatedProperties")
        patterns = schema.get("patternProperties")
        yield from patterns.values() if isinstance(patterns, Mapping) else ()


def _items(schemas: list[Mapping[str, Any]], at: int) -> Iterator[Any]:
    for schema in schemas:
        first = schema.get("prefixItems")
        if isinstance(first, list) and at < len(first):
            yield first[at]
        else:
            yield schema.get("items")
            yield schema.get("unevaluatedItems")
        yield schema.get("contains")


def _types(schema: Mapping[str, Any]) -> list[Any]:
    declared = schema.get("type", [])
    return declared if isinstance(declared, list) else [declared]


# Files that users upload, to be named in inputs, forms, signals and decisions.
#
# A file is kept in the store for a week, and longer once an execution refers to it. Requests name
# it by its digest, and only those of the user who has uploaded it: knowing a digest gives no
# access, and no request names a path of this machine.

_PIECE = 1024 * 1024
_ABANDONED_SECONDS = 24 * 3600
_RIGHTS = (Right.START, Right.DECIDE, Right.OPERATE)


class TakesFiles(PathRoute):
    """A path whose forms have files, and are therefore as large as an upload."""


async def received(records: ServerRecords, parts: AsyncIterator[bytes]) -> Path:
    """Write a body to a temporary file, whose size the guard in front has bounded.

    Args:
        records: Whose directory it is written to.
        parts: The body.

    Returns:
        The file, which the caller removes.
    """
    file = await on_thread(lambda: NamedTemporaryFile(dir=_incoming(records), delete=False))  # noqa: SIM115
    try:
        with file:
            piece = bytearray()
            async for part in parts:
                piece += part
                if len(piece) >= _PIECE:
                    full, piece = bytes(piece), bytearray()
                    await on_thread(lambda full=full: file.write(full))  # type: ignore[misc]
            await on_thread(lambda: file.write(piece))
    except BaseException:
        os.unlink(file.name)
        raise
    return Path(file.name)


def _incoming(records: ServerRecords) -> str:
    """Return the directory of files that are being received, without those of dead servers."""
    folder = os.path.join(records.folder, "incoming")
    make_folder(folder, synced=False)
    oldest = time.time() - _ABANDONED_SECONDS
    for entry in os.scandir(folder):
        with suppress(FileNotFoundError):  # it is received now
            if entry.stat().st_mtime < oldest:
                os.unlink(entry.path)
    return folder


def check_may_upload(principal: Principal) -> None:
    """Check that a user may use files in any request.

    Raises:
        NotAllowed: The user is not allowed to.
    """
    if not any(principal.may_somewhere(right) for right in _RIGHTS):
        raise NotAllowed(
            f"{principal.user} does not have the right to start, decide or operate anything",
            hint="rights come from 'access' in the host's settings.yaml and the token's scope",
        )


def upload(call: ApiCall) -> Any:
    """Keep a file, to be named in later requests of the same user. The body is its content."""
    name, path = clean_name(call.query.name), call.body
    rules = call.engine.settings.uploads or UploadRules()
    now, user = int(time.time() * 1000), call.principal.user
    with path.open("rb") as file:
        rules.check(name, file.read(8))
    call.records.check_uploads(user, path.stat().st_size, now)
    kept = StoredUpload(*call.engine.store.hold_artifact(path, name))
    call.records.end_upload(user, kept, now)
    return kept._asdict()


@contextmanager
def attached(call: ApiCall, digests: Sequence[str]) -> Iterator[list[str]]:
    """Return paths of uploaded files with their names, in the block only.

    Raises:
        NotFound: The user has not uploaded one of them.
    """
    files = [call.records.upload(call.principal.user, digest) for digest in digests]
    with TemporaryDirectory(dir=call.records.folder) as folder:
        paths = []
        for number, file in enumerate(files):
            place = Path(folder, str(number))
            place.mkdir()
            (place / file.name).symlink_to(call.engine.store.fetch_artifact(file.sha256))
            paths.append(str(place / file.name))
        yield paths
