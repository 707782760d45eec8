"""Forms as browsers send them, with files or without."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import FormParser, MultiPartException, MultiPartParser
from starlette.requests import Request

from flowengine.page.view import PageView, new_id
from flowengine.sdk.python.user_code import on_thread
from flowengine.sdk.texts.visible_text import DISGUISING
from flowengine.server.application import LARGEST_BODY
from flowengine.server.calls import ApiCall
from flowengine.server.refusals import RequestRefused

_MOST_FIELDS = 500
_MOST_FILES = 20
_PIECE = 1024 * 1024


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
        check: Is called with the fields. It raises to refuse the form.
        receive: Writes a file to a temporary file. None: the form takes no files.

    Raises:
        RequestRefused: The body is not a form, or has too many fields or files.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in _PARSERS:
        raise RequestRefused(415, "the body is not a form")
    parser = _PARSERS[media_type](
        request.headers, request.stream(), max_fields=_MOST_FIELDS, max_part_size=LARGEST_BODY
    )
    try:
        sent = await parser.parse()
    except MultiPartException as error:
        raise RequestRefused(422, f"the form cannot be read: {error.message}") from None
    form = Form({name: text for name, text in sent.items() if isinstance(text, str)}, [])
    try:
        check(form.fields)
        for name, file in sent.multi_items():
            if isinstance(file, str) or not file.filename:  # the user chose no file
                continue
            if receive is None or len(form.files) == _MOST_FILES:
                raise RequestRefused(422, f"this form takes at most {_MOST_FILES} files, or none")
            form.files.append(SentFile(name, file.filename, await receive(_pieces(file))))
    except BaseException:
        await form.discard()
        raise
    finally:
        await sent.close()
    return form


class _WholeForm(MultiPartParser):
    """Reads a form in parts, and refuses one that ends too early."""

    is_whole = False

    def on_end(self) -> None:
        self.is_whole = True

    async def parse(self) -> FormData:
        form = await super().parse()
        if not self.is_whole:
            for file in self._files_to_close_on_error:
                file.close()
            raise MultiPartException("it ends too early")
        return form


_PARSERS: dict[str, Callable[..., FormParser | MultiPartParser]] = {
    "application/x-www-form-urlencoded": FormParser,
    "multipart/form-data": _WholeForm,
}


async def _pieces(file: UploadFile) -> AsyncIterator[bytes]:
    while piece := await file.read(_PIECE):
        yield piece


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
# unchanged text is restored exactly. A changed text keeps these characters, and its lines end as
# most lines of the original do.

_HIDDEN = re.compile(f"\r\n|⟦(?=U\\+)|{DISGUISING.pattern}")
MARK = re.compile("⟦U\\+([0-9A-F]{4,6})⟧")


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
    lines = MARK.sub(lambda match: characters.get(match[0], match[0]), sent).split("\n")
    windows = original.count("\r\n")
    return ("\r\n" if 2 * windows > original.count("\n") else "\n").join(lines)


def _mark(character: str) -> str:
    return f"⟦U+{ord(character):04X}⟧" if len(character) == 1 else "\n"
