"""Input that a server requests from a person during a call (elicitation).

A server asks in one of two ways. In the newest revision of the protocol, its answer to the call is
the request: the call is made again with the input and the server's state. Before, it asks in the
middle of the call: the call is ended then, and made again once the person has answered. Requests
that were answered before are then answered at once.

What a server writes is untrusted. It is bounded here, and shown as plain text of the server.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from flowengine.sdk import NeedsInput, Plain, StepError, ToolError
from flowengine.sdk.texts.visible_text import printable_lines
from flowengine.sdk.values.validation import SchemaError, Validator
from flowengine.sdk.web.urls import UrlRefused, read_url, scheme_of
from flowengine_envs.mcp import library
from flowengine_envs.mcp.messages import brief, unanswered
from flowengine_envs.mcp.oauth_requests import is_protected

MOST = 10
"""Maximum number of questions of one call."""
ROUNDS = 50
"""Maximum number of requests by which one attempt makes a call."""
URL_REQUIRED = -32042
"""Error code of a call that needs a person to open pages first (revision 2025-11-25)."""
_STATE = 256 * 1024
"""Maximum characters of a server's state, which is journaled."""
PAUSES = (0.05, 0.1, 0.2, 0.25)
"""Seconds before a call is made again that is not finished and requests no input."""


class CallInputs:
    """The input that one call requests: the answers so far, and what is not answered yet.

    Args:
        given: `inputs` of the attempt.
        server: Names the server to people.
        tool: The called tool.
        args: Its arguments.

    Raises:
        ToolError: The last answer ends the call.
    """

    def __init__(
        self, given: Mapping[str, Any], server: str, tool: str, args: Mapping[str, Plain]
    ) -> None:
        self._answers: Mapping[str, Mapping[str, Any]] = given.get("answers") or {}
        self._before: Mapping[str, Any] = given.get("before") or {}
        self._by = server
        self._tool = tool
        self._call = [tool, {**args}]
        self._seen: dict[str, int] = {**self._before.get("counted", {})}
        """Digest of a request → how often it was made."""
        self._sent = self._seen
        """Likewise, when the call was sent."""
        action = self._answers.get(str(given.get("key")), {}).get("action")
        if action in self._before.get("ends", ()):
            done = {"decline": "declined", "cancel": "canceled"}[str(action)]
            message = f"{tool}: the input that {server} requests was {done}, and the call ended"
            raise ToolError(message, data={"action": action}, retryable=False)

    def begin(self) -> tuple[dict[str, Any] | None, str | None]:
        """Return the responses and the server's state with which the call continues, if any.

        Raises:
            NeedsInput: Further requests that were made together are not answered yet.
        """
        waiting, state = self._before.get("requests"), self._before.get("state")
        responses = None
        if waiting is not None:
            ends = self._before.get("ends", ())
            requests = _requests().validate_python(waiting)
            responses = self._respond(requests, state, ends, self._before["keys"])
            responses = None if ends else responses  # the server keeps what happened on its pages
        self._sent = dict(self._seen)
        return responses, state

    def forget_state(self) -> bool:
        """Make the call from its beginning, because the server rejects its own state.

        Returns:
            Whether the call was continued with a state.
        """
        was_continued = self._before.get("state") is not None
        self._before, self._seen = {}, {}
        return was_continued

    def responses(self, result: library.InputRequiredResult) -> dict[str, Any] | None:
        """Return the responses to the requests by which a server has answered the call.

        Args:
            result: The answer.

        Raises:
            NeedsInput: One of them has no response yet.
            ToolError: One of them cannot have one.
        """
        if len(result.request_state or "") > _STATE:
            raise self._fault(f"its state has more than {_STATE:,} characters")
        return self._respond(result.input_requests or {}, result.request_state) or None

    def open_pages(self, data: Any) -> None:
        """Request that a person opens the pages without which a server has refused the call.

        Args:
            data: The data of the server's error.

        Raises:
            NeedsInput: They are to be opened.
            ToolError: They are not described.
        """
        listed = data.get("elicitations") if isinstance(data, dict) else None
        pages = listed if isinstance(listed, list) else []
        named = {
            str(number): {"method": "elicitation/create", "params": {**page, "mode": "url"}}
            for number, page in enumerate(pages[: MOST + 1])
            if isinstance(page, dict)
        }
        try:
            requests = _requests().validate_python(named)
        except ValidationError:
            requests = {}
        if not requests:
            raise self._fault("it requires pages to be opened, and does not describe them")
        self._respond(requests, None, ("cancel", "decline"))

    def _respond(
        self,
        requests: Mapping[str, Any],
        state: str | None,
        ends: Sequence[str] = (),
        keys: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Return the responses to requests that were made together.

        Args:
            requests: The requests by name.
            state: The server's state.
            ends: The actions that end the call.
            keys: The keys of the requests, which are masked, if an earlier attempt received them.
        """
        if len(requests) > MOST:
            raise self._fault(f"it requests more than {MOST} inputs at once")
        asked: dict[str, RequestedInput] = {}
        for name, request in requests.items():
            if not isinstance(request, library.ElicitRequest):
                raise self._fault(str(unanswered(str(request.method))))
            asked[name] = requested(request.params)
        keys = {name: self._counted(each) for name, each in asked.items()} if keys is None else keys
        waiting = _requests().dump_python(dict(requests), mode="json", by_alias=True)
        before: dict[str, Plain] = {
            "requests": waiting, "keys": {**keys}, "state": state, "counted": {**self._seen},
        }  # fmt: skip
        before |= {"ends": [*ends]} if ends else {}
        return {name: self._answer(each, keys[name], before) for name, each in asked.items()}

    def knows(self, params: library.ElicitRequestParams) -> bool:
        """Return whether a request in the middle of the call was answered before."""
        with suppress(StepError):
            return self._key(requested(params)) in self._answers
        return False

    def answer(self, params: library.ElicitRequestParams) -> library.ElicitResult:
        """Return the answer to a request in the middle of the call.

        Args:
            params: The request.

        Raises:
            NeedsInput: There is none yet.
            ToolError: The request is not valid, or there were too many.
        """
        before: dict[str, Plain] = {"counted": {**self._sent}, "ends": ["cancel"]}
        asked = requested(params)
        return self._answer(asked, self._counted(asked), before, begun=True)

    def _answer(
        self, asked: RequestedInput, key: str, before: Mapping[str, Plain], *, begun: bool = False
    ) -> library.ElicitResult:
        if key in self._answers:
            given = self._answers[key]
            accepted = given["action"] == "accept" and asked.form is not None
            content = given.get("content") or {} if accepted else None
            return library.ElicitResult(action=given["action"], content=content)
        if len(self._answers) >= MOST:
            raise self._fault(f"it asks more than {MOST} times in one call")
        request: dict[str, Plain] = {"by": self._by, "message": asked.message}
        if asked.url:
            request |= {"url": asked.url, "host": asked.host}
        if asked.note:
            request["note"] = asked.note
        raise NeedsInput(key, request, asked.form, before, begun=begun)

    def _counted(self, asked: RequestedInput) -> str:
        """Return the key of a request that the server makes now."""
        key = self._key(asked)
        base = key.partition("-")[0]
        self._seen[base] = self._seen.get(base, 0) + 1
        return key

    def _key(self, asked: RequestedInput) -> str:
        """Return the key of a request: its digest, and how many equal ones were made before."""
        text = json.dumps([*self._call, asked.message, asked.form, asked.url], sort_keys=True)
        base = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]
        return f"{base}-{self._seen.get(base, 0)}"

    def _fault(self, why: str) -> ToolError:
        return ToolError(f"{self._tool}: {self._by} cannot be answered: {why}", retryable=False)


def _requests() -> Any:
    return TypeAdapter(dict[str, library.InputRequest])


# Requests in the middle of calls, which do not name their call


class OpenCall:
    """A call in progress, during which its server may ask."""

    def __init__(self, inputs: CallInputs | None) -> None:
        self.inputs = inputs
        self.asked: asyncio.Future[library.ElicitResult] = (
            asyncio.get_running_loop().create_future()
        )
        """Fails with the question that ends the call."""
        self.asked.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.ended = asyncio.Event()


class OpenCalls:
    """The calls in progress of a session, to which its requests for input are assigned.

    A request does not name its call. If several calls are open, it waits until it can belong to
    one only. If all of them ask, they are assigned in their order: a wrong assignment costs a
    question, and no answer goes to another request. If neither happens, it is refused, so that no
    call is ended that has asked nothing. From then on, calls are made one at a time.

    Args:
        patience: Seconds for which a request waits.
    """

    def __init__(self, patience: float = 30.0) -> None:
        self._patience = patience
        self._open: list[OpenCall] = []
        self._waiting: list[object] = []
        self._changed = asyncio.Condition()
        self._one = asyncio.Lock()
        self._one_at_a_time = False

    @asynccontextmanager
    async def call(self, inputs: CallInputs | None) -> AsyncIterator[OpenCall]:
        """Yield a call, or another request, that begins now and ends with the context.

        Args:
            inputs: The input that it may request. None: it may request none.
        """
        lock = self._one if self._one_at_a_time and inputs is not None else None
        if lock is not None:
            await lock.acquire()
        call = OpenCall(inputs)
        self._open.append(call)
        try:
            yield call
        finally:
            call.ended.set()
            self._open.remove(call)
            if lock is not None:
                lock.release()
            async with self._changed:
                self._changed.notify_all()

    async def answer(
        self, params: library.ElicitRequestParams
    ) -> library.ElicitResult | library.ErrorData:
        """Return the answer to a request. One that has none yet ends its call first."""
        try:
            async with asyncio.timeout(self._patience):
                call = await self._call_of(params)
        except TimeoutError:
            self._one_at_a_time = True
            why = "it was requested while several calls were open, and does not name its call"
            return library.ErrorData(
                code=library.INVALID_REQUEST, message=f"No input: {why}. Make the call again"
            )
        if call is None or call.inputs is None:
            return library.ErrorData(
                code=library.INVALID_REQUEST, message="Elicitation not supported"
            )
        try:
            return call.inputs.answer(params)
        except StepError as question:
            if not call.asked.done():
                call.asked.set_exception(question)
            await call.ended.wait()  # so that the server does not continue with the answer
            return library.ElicitResult(action="cancel")

    async def _call_of(self, params: library.ElicitRequestParams) -> OpenCall | None:
        mine = object()
        self._waiting.append(mine)
        try:
            async with self._changed:
                self._changed.notify_all()
                while True:
                    open_ = [call for call in self._open if not call.asked.done()]
                    known = [call for call in open_ if call.inputs and call.inputs.knows(params)]
                    if len(known) == 1 or len(open_) <= 1:
                        return next(iter(known or open_), None)
                    if len(self._waiting) >= len(open_):
                        self._one_at_a_time = True
                        return open_[min(self._waiting.index(mine), len(open_) - 1)]
                    await self._changed.wait()
        finally:
            self._waiting.remove(mine)


# What a server requests from a person, bounded so that it can be shown and recorded.

_MESSAGE, _NAME, _TEXT, _URL = 4_000, 100, 1_000, 2_000
"""Maximum characters of a message, a field's name, another text of a field, and an address."""
_FIELDS, _OPTIONS = 50, 200
_NO_SECRETS = (
    "Do not enter a password, code or key: it would be recorded in the journal. A server has to "
    "request secrets on its web page, by a link."
)
_LIMITS: Mapping[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength"),
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
    "boolean": (),
}
"""Type of a field → its limits, which are numbers."""
_FORMATS = frozenset({"email", "uri", "date", "date-time"})


class RequestedInput(NamedTuple):
    """A request of a server for input."""

    message: str
    form: dict[str, Plain] | None
    """JSON Schema of the values. None: there is nothing to fill in."""
    url: str = ""
    """An address to open."""
    host: str = ""
    note: str = ""
    """A warning to the person who answers."""


def requested(params: library.ElicitRequestParams) -> RequestedInput:
    """Return a request of a server, bounded.

    Args:
        params: The request.

    Raises:
        ToolError: It cannot be shown to a person.
    """
    message = printable_lines(params.message[: _MESSAGE + 1]).strip()
    if len(message) > _MESSAGE:
        raise _invalid(f"its message has more than {_MESSAGE} characters")
    if params.mode == "url":
        url, host = _address(params.url)
        return RequestedInput(message, None, url, host)
    form = _form(params.requested_schema)
    fields: Mapping[str, Any] = form["properties"]
    # A person could enter a secret into any of these, whatever the server names it.
    is_typed = any(
        field["type"] in ("string", "integer", "number") and "enum" not in field
        for field in fields.values()
    )
    return RequestedInput(message, form, note=_NO_SECRETS if is_typed else "")


def _address(text: str) -> tuple[str, str]:
    """Return an address that a person may open, and its host.

    Raises:
        ToolError: It is neither https nor on this machine, or not plain.
    """
    try:
        url = read_url(text, longest=_URL)
    except UrlRefused as error:
        raise _invalid(f"its address is not plain: {brief(error.message)}") from None
    is_plain = text.isascii() and text.isprintable() and {*text}.isdisjoint(' \\"<>`{}')
    if not is_plain or url.credentials or not scheme_of(text):
        raise _invalid("its address is not plain")
    if not is_protected(url):
        raise _invalid(f"its address is not https: {brief(url.host)}")
    return text, url.origin.partition("//")[2]


def _form(schema: Mapping[str, Any]) -> dict[str, Plain]:
    """Return the form of a request, with only the parts that forms of the protocol have.

    Raises:
        ToolError: A field is not of a simple type, or a text or list is too long.
    """
    given = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(given, dict):
        raise _invalid("its form is no object with fields")
    if len(given) > _FIELDS:
        raise _invalid(f"its form has more than {_FIELDS} fields")
    fields: dict[str, Plain] = {}
    for name, field in given.items():
        if not 0 < len(name) <= _NAME or not name.isprintable():
            raise _invalid("its form has a field without a readable name")
        fields[name] = _field(name, field)
    required = schema.get("required")
    names = required if isinstance(required, list) else []
    return {
        "type": "object",
        "properties": fields,
        "required": [name for name in fields if name in names],
        "additionalProperties": False,
    }


def _field(name: str, given: Any) -> dict[str, Plain]:
    if not isinstance(given, dict):
        raise _invalid(f"its field {name!r} is not described")
    kind = str(given.get("type"))
    field: dict[str, Plain] = {"type": kind}
    options: dict[str, str] | None = None
    if kind == "array":
        items = given.get("items")
        options = _options(items if isinstance(items, dict) else {}, "anyOf")
        if options is None:
            raise _invalid(f"its field {name!r} is a list without options")
        field["items"] = {"type": "string", "enum": [*options]}
        field["uniqueItems"] = True
        limits: Sequence[str] = ("minItems", "maxItems")
    elif kind in _LIMITS:
        limits = _LIMITS[kind]
        options = _options(given, "oneOf") if kind == "string" else None
        if options is not None:
            field["enum"], limits = [*options], ()
        elif given.get("format") in _FORMATS:
            field["format"] = given["format"]
    else:
        raise _invalid(f"its field {name!r} is of type {brief(kind)}, which no form can have")
    field |= {key: given[key] for key in limits if given.get(key) is not None}
    titles = ", ".join(f"{id}: {label}" for id, label in (options or {}).items() if label != id)
    texts = {"title": given.get("title"), "description": given.get("description")}
    if titles:
        texts["description"] = f"{texts['description'] or ''}\n{titles}".strip()
    for key, text in texts.items():
        if isinstance(text, str) and text:
            field[key] = _short(text, _TEXT if key == "title" else _MESSAGE)
    try:
        validator = Validator(field)
    except SchemaError as error:
        raise _invalid(f"its field {name!r} has invalid limits: {brief(str(error))}") from None
    default = given.get("default")
    if default is not None and len(str(default)) <= _MESSAGE and not validator.misfits(default):
        field["default"] = default
    return field


def _options(given: Mapping[str, Any], key: str) -> dict[str, str] | None:
    """Return the options of a field: value → label. None: it has none."""
    listed, labels = given.get("enum"), given.get("enumNames")
    if listed is None and isinstance(given.get(key), list):
        parts = [part if isinstance(part, dict) else {} for part in given[key]]
        listed = [part.get("const") for part in parts]
        labels = [part.get("title") for part in parts]
    if listed is None:
        return None
    if not isinstance(listed, list) or not 0 < len(listed) <= _OPTIONS:
        raise _invalid(f"a field has no option, or more than {_OPTIONS}")
    if not all(isinstance(option, str) and len(option) <= _TEXT for option in listed):
        raise _invalid("an option of a field is no short text")
    labels = labels if isinstance(labels, list) and len(labels) == len(listed) else listed
    return {
        option: _short(label, _NAME) if isinstance(label, str) else option
        for option, label in zip(listed, labels, strict=True)
    }


def _short(text: str, most: int) -> str:
    shown = printable_lines(text[:most]).strip()
    return f"{shown}…" if len(text) > most else shown


def _invalid(why: str) -> ToolError:
    return ToolError(f"the server requests input that cannot be shown: {why}", retryable=False)
