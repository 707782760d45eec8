"""Forms as browsers send them, with files or without."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl

from flowengine.sdk.sizes import size_text
from flowengine.sdk.threads import on_thread
from flowengine.server.application import LARGEST_BODY
from flowengine.server.problems import RequestRefused

if TYPE_CHECKING:
    from starlette.requests import Request

_MOST_FIELDS = 500
_MOST_FILES = 20
_TOO_MANY = "the form has too many fields"
_ENDED = "the form cannot be read: it ends too early"
_NO_FILES = "this form takes no files"


class SentFile(NamedTuple):
    """A file of a form, in a temporary file."""

    field: str
    name: str
    """As the browser gave it: not to be trusted."""
    path: Path


class Form:
    """A submitted form.

    Args:
        fields: Name → text.
        files: Its files, in their order.
    """

    def __init__(self, fields: dict[str, str], files: list[SentFile]) -> None:
        self.fields = fields
        self.files = files

    async def discard(self) -> None:
        """Remove the temporary files."""
        for file in self.files:
            await on_thread(file.path.unlink)
        self.files = []


async def read_form(
    request: Request,
    check: Callable[[Mapping[str, str]], None],
    receive: Callable[[AsyncIterator[bytes]], Awaitable[Path]] | None = None,
) -> Form:
    """Return the form in the body of a request.

    Args:
        request: The request.
        check: Is called with the fields before the first file, and at the end. It raises to refuse
            the form, so that a form of another page leaves no file.
        receive: Writes a file to a temporary file. None: the form takes no files.

    Raises:
        RequestRefused: The body is not a form, or has too many fields or files.
    """
    media_type, options = _content_type(request)
    if media_type == "application/x-www-form-urlencoded":
        form = Form(await _plain_fields(request), [])
    elif media_type == "multipart/form-data" and options.get("boundary"):
        form = await _with_parts(request, options["boundary"], check, receive)
    else:
        raise RequestRefused(415, "the body is not a form")
    try:
        check(form.fields)
    except BaseException:
        await form.discard()
        raise
    return form


async def _plain_fields(request: Request) -> dict[str, str]:
    body = bytearray()
    async for part in request.stream():
        body += part
        _check_size(len(body))
    try:
        text = body.decode("utf-8", "replace")
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError as error:
        raise RequestRefused(422, f"the form cannot be read: {error}") from None


async def _with_parts(
    request: Request,
    boundary: str,
    check: Callable[[Mapping[str, str]], None],
    receive: Callable[[AsyncIterator[bytes]], Awaitable[Path]] | None,
) -> Form:
    """Return a form in parts. Each file is written as it arrives."""
    form, size, parts = Form({}, []), 0, 0
    body = _events(request, boundary)

    async def content() -> AsyncIterator[bytes]:
        async for kind, data in body:
            if kind == "end":
                return
            yield data
        raise RequestRefused(422, _ENDED)

    try:
        async for _, head in body:
            name, file_name = _names(head)
            parts += 1
            if parts > _MOST_FIELDS:
                raise RequestRefused(422, _TOO_MANY)
            if file_name:
                if receive is None or len(form.files) == _MOST_FILES:
                    raise RequestRefused(422, _NO_FILES if receive is None else _TOO_MANY)
                check(form.fields)
                path = await receive(content())
                form.files.append(SentFile(name, file_name, path))
                continue
            text = bytearray()
            async for data in content():
                text += data
                _check_size(size + len(text))
            size += len(text)
            if file_name is None:
                form.fields[name] = text.decode("utf-8", "replace")
    except BaseException:
        await form.discard()
        raise
    finally:
        await body.aclose()
    return form


async def _events(request: Request, boundary: str) -> AsyncGenerator[tuple[str, bytes]]:
    """Yield the events of a body in parts: each has a `head`, `data` and an `end`.

    Raises:
        RequestRefused: It is not valid, or ends too early.
    """
    from python_multipart.exceptions import FormParserError
    from python_multipart.multipart import MultipartParser

    parts: list[tuple[str, bytes]] = []
    name, value, head = bytearray(), bytearray(), bytearray()
    is_ended = False

    def begin() -> None:
        head.clear()

    def end_of_header() -> None:
        if bytes(name).lower() == b"content-disposition":
            head[:] = value
        name.clear()
        value.clear()

    def end() -> None:
        nonlocal is_ended
        is_ended = True

    try:
        parser = MultipartParser(
            boundary,
            {
                "on_part_begin": begin,
                "on_header_field": lambda data, start, stop: name.extend(data[start:stop]),
                "on_header_value": lambda data, start, stop: value.extend(data[start:stop]),
                "on_header_end": end_of_header,
                "on_headers_finished": lambda: parts.append(("head", bytes(head))),
                "on_part_data": lambda data, start, stop: parts.append(("data", data[start:stop])),
                "on_part_end": lambda: parts.append(("end", b"")),
                "on_end": end,
            },
        )
        async for piece in request.stream():
            parser.write(piece)
            for event in parts:
                yield event
            parts.clear()
    except FormParserError as error:
        raise RequestRefused(422, f"the form cannot be read: {error}") from None
    if not is_ended:
        raise RequestRefused(422, _ENDED)


def _names(head: bytes) -> tuple[str, str | None]:
    """Return the names of the field of a part and of its file: None if it is a text.

    The name of a file is empty where the user has chosen none.
    """
    options = _options(head)[1]
    return options.get("name", ""), options.get("filename")


def _content_type(request: Request) -> tuple[str, dict[str, str]]:
    return _options(request.headers.get("content-type", "").encode("latin-1"))


def _options(header: bytes) -> tuple[str, dict[str, str]]:
    """Return a header's value in lower case, and its options. Browsers write names in UTF-8."""
    from python_multipart.multipart import parse_options_header

    value, options = parse_options_header(header.decode("latin-1"))
    return value.decode("latin-1").strip(), {
        name.decode("latin-1"): text.decode("utf-8", "replace") for name, text in options.items()
    }


def _check_size(size: int) -> None:
    if size > LARGEST_BODY:
        raise RequestRefused(
            413,
            f"the fields of the form have more than {size_text(LARGEST_BODY)}",
            headers={"connection": "close"},
        )
