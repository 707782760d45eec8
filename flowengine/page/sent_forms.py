"""Forms as browsers send them, with files or without."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

from markupsafe import Markup
from starlette.requests import Request

from flowengine.page.view import PageView, new_id
from flowengine.sdk.python.user_code import on_thread
from flowengine.sdk.texts.sizes import size_text
from flowengine.sdk.texts.visible_text import DISGUISING
from flowengine.server.application import LARGEST_BODY
from flowengine.server.calls import ApiCall
from flowengine.server.refusals import RequestRefused

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
    media_type, options = _options(request.headers.get("content-type", "").encode("latin-1"))
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
            options = _options(head)[1]
            # Without a file name, it is a text. The name is empty if the user chose no file.
            name, file_name = options.get("name", ""), options.get("filename")
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


# Forms that are sent twice, as by a double click, act once: the second answer is the first one.

COMMAND = "command"
"""Field with the id of a form, a new one each time the form is shown."""
_LONGEST = 100


class KeptAnswer(NamedTuple):
    """What is kept of the answer to a form."""

    redirect: str | None
    template: str
    context: dict[str, object]


def form_fields(form_token: str) -> Markup:
    """Return the hidden fields of a form: the token of its session, and the id of its command."""
    field = Markup('<input type="hidden" name="{}" value="{}">')
    return field.format("form_token", form_token) + field.format(COMMAND, new_id())


def once(
    call: ApiCall,
    path: str,
    given: dict[str, str],
    act: Callable[[ApiCall, dict[str, str]], PageView],
) -> PageView:
    """Return the answer to a form. A form sent before receives the stored answer.

    A form that is refused, or changed before it is sent again, is a new command.

    Args:
        call: The request.
        path: The path that it was sent to.
        given: The fields of the form.
        act: Performs the action of the form. Its call has a seed, the same each time.
    """
    command = given.pop(COMMAND, "")[:_LONGEST]
    if not command:
        return act(call, given)
    content = f"{path}\n{urlencode(sorted(given.items()))}".encode()
    digest = hashlib.sha256(content).digest()
    user, records = call.principal.user, call.records
    key = f"page {command} {digest.hex()}"  # no key of the API has a space
    kept = records.begin_answer(user, key, digest, int(time.time() * 1000))
    if kept.status is not None:
        answer = KeptAnswer(*json.loads(kept.body or b"[]"))
        return PageView(answer.template, dict(answer.context), redirect=answer.redirect)
    try:
        view = act(call._replace(seed=kept.seed), given)
    except BaseException:
        records.drop_answer(user, key)
        raise
    if view.redirect is None and not view.is_kept:
        records.drop_answer(user, key)
    else:
        context = view.context if view.is_kept else {}
        body = json.dumps(KeptAnswer(view.redirect, view.template, context))
        records.end_answer(user, key, view.status, body.encode())
    return view


# Texts in the fields of forms: shown with nothing hidden, and read back with nothing lost.
#
# A field shows a character that hides or disguises text as a mark, such as `⟦U+200F⟧`. A browser
# replaces all line endings. The submitted text is therefore compared with the one shown: an
# unchanged text is restored exactly, and the rest of a changed text keeps its characters and line
# endings.

_HIDDEN = re.compile(f"\r\n|⟦(?=U\\+)|{DISGUISING.pattern}")
MARK = re.compile("⟦U\\+([0-9A-F]{4,6})⟧")
_ENDING = re.compile("\r\n|\n")
_MOST_COMPARED = 1_000_000
"""Maximum product of the numbers of lines that are compared with each other."""


def shown_text(text: str) -> str:
    """Return a text as a field shows it. Lines end with a line feed."""
    return _HIDDEN.sub(lambda match: "\n" if match[0] == "\r\n" else _mark(match[0]), text)


def as_sent(text: str) -> str:
    """Return a text as a form sends it back, apart from its line endings.

    Browsers replace each line ending by another, and cannot send a NUL (HTML, 4.10.22).
    """
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\N{REPLACEMENT CHARACTER}")


def restored(original: str, sent: str) -> str:
    """Return the text that a user means who was shown a text and has sent another one.

    Args:
        original: The text. The form showed its `shown_text`.
        sent: The submitted text, see `as_sent`.
    """
    shown = shown_text(original)
    if sent == shown:
        return original
    characters = {_mark(match[0]): match[0] for match in _HIDDEN.finditer(original)}
    lines = sent.split("\n")
    endings = _endings(shown.split("\n"), _ENDING.findall(original), lines)
    known = [MARK.sub(lambda match: characters.get(match[0], match[0]), line) for line in lines]
    return "".join(map("".join, zip(known, [*endings, ""], strict=True)))


def _mark(character: str) -> str:
    return f"⟦U+{ord(character):04X}⟧" if len(character) == 1 else "\n"


def _endings(before: list[str], endings: list[str], after: list[str]) -> list[str]:
    """Return the ending of each line but the last. An unchanged line keeps its own.

    Args:
        before: The lines as shown.
        endings: Their endings, without that of the last line.
        after: The lines as sent.
    """
    counts = Counter(endings)
    usual = counts.most_common(1)[0][0] if counts else "\n"
    found = [usual] * len(after)
    if len(counts) > 1:
        for mine, other, size in _same(before, after):
            own = endings[mine : mine + size]
            found[other : other + len(own)] = own
    return found[: len(after) - 1]


def _same(before: list[str], after: list[str]) -> list[tuple[int, int, int]]:
    """Return the blocks of lines that stand for each other: their places, and their length."""
    most = min(len(before), len(after))
    head = next((n for n in range(most) if before[n] != after[n]), most)
    most -= head
    tail = next((n for n in range(most) if before[-1 - n] != after[-1 - n]), most)
    inside, changed = before[head : len(before) - tail], after[head : len(after) - tail]
    blocks = [(0, 0, head), (len(before) - tail, len(after) - tail, tail)]
    if len(inside) * len(changed) > _MOST_COMPARED:
        return blocks
    for what, first, last, start, end in SequenceMatcher(
        None, inside, changed, autojunk=False
    ).get_opcodes():
        if what in ("equal", "replace"):
            blocks.append((head + first, head + start, min(last - first, end - start)))
    return blocks
