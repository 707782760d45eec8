"""The ASGI application: from a request to the function that answers it."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import sqlite3
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, get_origin

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute
from starlette.routing import Route as PathRoute
from starlette.types import ASGIApp, Scope

from flowengine.engines.arriving_replies import WANTED_SECONDS, ReplyReader
from flowengine.engines.engine import Engine
from flowengine.errors import FlowEngineError, InputError, UsageError
from flowengine.sdk.python.user_code import on_thread
from flowengine.sdk.texts.json_values import read_json
from flowengine.sdk.texts.validation_messages import predicate
from flowengine.server.calls import FLOWS, ApiCall, engine_for, lacks
from flowengine.server.guard import PER_MINUTE, Hosts, Rates, RequestGuard
from flowengine.server.hooks import Act, Delivery, signed_delivery
from flowengine.server.identity import SESSION_COOKIE, Identity, cookie_name
from flowengine.server.openapi import document
from flowengine.server.places import Places
from flowengine.server.problems import MethodsOfPath, as_json, problem_response, status_of
from flowengine.server.records import ServerRecords
from flowengine.server.refusals import RequestRefused
from flowengine.server.rights import Principal, Right
from flowengine.server.routes import ROUTES, UPLOADS, Need, Route, find_route
from flowengine.server.sent_values import TakesFiles, check_may_upload, received
from flowengine.server.streams import EventStreams, StoreChanges
from flowengine.server_settings import UploadRules

VIA = "rest"
"""The channel of decisions through the API, for the audit trail."""
LARGEST_BODY = 1024 * 1024
"""Maximum number of bytes of a request's body."""
_LARGEST_PAYLOADS = 6 * 1024 * 1024
"""The same for payloads of Temporal, which has messages of at most 4 MiB, in base64."""
_AT_ONCE = 16
"""Maximum number of requests that use the store at the same time, and of uploads."""
_CHECKS = 2
"""Maximum number of flows that are checked at the same time."""
MOST_OPEN = 200
"""Maximum number of open requests of a user, answers that last included. As for an address."""
_MEDIA_TYPE = "application/json"
_KEY_FORM = re.compile(r"[!-~]{1,200}")
OPENAPI = "/v1/openapi.json"

_Found = TypeVar("_Found")


class Guarded(Protocol):
    """A route of the API or of the page."""

    @property
    def need(self) -> Need:
        """The right that it needs."""

    @property
    def subject(self) -> str | None:
        """The object in the path on whose flow the right is needed."""

    @property
    def check_patience(self) -> float | None:
        """It checks a flow, and waits so many seconds for checks of others. None: it does not."""


_log = logging.getLogger("flowengine.server")


class Application:
    """The API over one store.

    Args:
        engine: The store's engine. Its user runs the server and has all rights.
        records: The tokens, the sessions and the audit record.
        hosts: The names under which the server is reached.
        local_token: The token of the user who runs the server.
        pages: Returns the routes of the page.
        per_minute: Requests of each identity in a minute.
    """

    def __init__(
        self,
        engine: Engine,
        records: ServerRecords,
        hosts: Hosts,
        local_token: str,
        pages: Callable[[Application], Sequence[BaseRoute]] = lambda application: (),
        per_minute: int = PER_MINUTE,
    ) -> None:
        self._engine = engine
        self.records = records
        self.identity = Identity(records, engine.settings, engine.user, local_token)
        self._rates = Rates(per_minute)
        self._open = Places("open requests", MOST_OPEN)
        self._working = Places("requests", _AT_ONCE // 2, _AT_ONCE, waits=True)
        self._uploading = Places("uploads", _AT_ONCE // 4, _AT_ONCE, waits=True)
        self._checking = Places("checks of flows", _CHECKS // 2, _CHECKS)
        self.changes = StoreChanges(engine)
        self.streams = EventStreams(engine, self.changes)
        engine.want_replies()
        self.is_closing = False
        self.closing: list[Callable[[], None]] = [self.streams.close, self.changes.close]
        """Functions that end long-lived answers, called when the server stops."""
        open_paths = [route.path for route in ROUTES if route.is_open]
        largest = dict.fromkeys(open_paths, _LARGEST_PAYLOADS)
        uploaded = (engine.settings.uploads or UploadRules()).most_bytes
        largest[UPLOADS] = uploaded
        paths = pages(self)
        forms = [path.path_regex for path in paths if isinstance(path, TakesFiles)]

        def largest_body(path: str) -> int:
            if any(form.match(path) for form in forms):
                return uploaded + LARGEST_BODY
            return largest.get(path, LARGEST_BODY)

        self.asgi: ASGIApp = RequestGuard(
            self._router(paths, hosts.pages),
            hosts,
            largest_body,
            self.note_refusal,
            frozenset(open_paths),
        )

    def _router(self, pages: Sequence[BaseRoute], origins: Sequence[str]) -> Starlette:
        by_path: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        for route in ROUTES:
            by_path[route.path][route.method] = partial(self.answer, route)
        open_paths = {route.path for route in ROUTES if route.is_open}
        crossing = Middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["POST"],
            allow_headers=["Authorization", "Content-Type", "X-Namespace"],
            allow_credentials=True,
        )
        paths = [
            PathRoute(
                path,
                MethodsOfPath(methods),
                middleware=[crossing] if path in open_paths else None,
            )
            for path, methods in by_path.items()
        ]
        paths.append(PathRoute(OPENAPI, MethodsOfPath({"GET": _document}), name="openapi"))
        router = Starlette(routes=[*paths, *pages], exception_handlers={HTTPException: _http_error})
        router.router.redirect_slashes = False
        return router

    async def answer(self, route: Route, request: Request) -> Response:
        """Return the answer to a request. Changes and refusals are recorded."""
        changes = route.method != "GET" and not route.is_open
        sender = None
        try:
            sender = await self._sender(route, request)
            if isinstance(sender, Principal):
                await self.count(sender, request)
        except FlowEngineError as error:
            await self.note(request, sender, status_of(error), error.message)
            return problem_response(error)
        try:
            if changes and sender is not None:
                path, address = request.url.path, address_of(request)
                async with self.recorded(sender, request.method, path, address) as act:
                    response = await self._answer(route, request, sender)
                    act.status = response.status_code
                return response
            return await self._answer(route, request, sender)
        except FlowEngineError as error:
            if not changes and isinstance(sender, Principal) and status_of(error) in {403, 429}:
                await self.note(request, sender, status_of(error), error.message)
            return problem_response(error)

    @asynccontextmanager
    async def recorded(
        self, sender: Principal | Delivery, method: str, path: str, address: str
    ) -> AsyncIterator[Act]:
        """Record a change of a user before it takes effect, and afterwards how it ended.

        Args:
            sender: Who makes the change.
            method: Of the request, or the protocol.
            path: Of the object that is changed.
            address: The address of the client.

        Yields:
            How it ends. An error in the block is its end, too. Until then, the entry has the status
            0, and also if the block is cancelled, which does not stop running work.

        Raises:
            RequestRefused: It cannot be recorded, so it must not take effect.
        """
        act = Act()
        number = await self.note_act(sender, method, path, 0, address)
        if number is None:
            raise RequestRefused(503, "the audit record cannot be written")
        try:
            yield act
        except FlowEngineError as error:
            act.status, act.why = status_of(error), error.message
            raise
        except Exception:
            act.status, act.why = 500, "the server failed"
            raise
        except BaseException:
            act.status, act.why = 0, "it was cancelled, and may have taken effect"
            raise
        finally:
            await self._recorded(lambda: self.records.end_act(number, act.status, act.why))

    def arriving_replies(self, execution: str) -> ReplyReader | None:
        """Return a reader of replies. The caller has checked the right to content."""
        return self._engine.arriving_replies(execution)

    async def want_replies(self) -> None:
        """Let workers pass on the replies that models are writing, as long as this is awaited."""
        while True:
            await on_thread(self._engine.want_replies)
            await asyncio.sleep(WANTED_SECONDS / 4)

    def close(self) -> None:
        """End the answers that last."""
        self.is_closing = True
        for close in self.closing:
            close()

    async def ask(
        self,
        principal: Principal,
        name: str,
        *,
        ids: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        seed: str | None = None,
        via: str = VIA,
    ) -> Any:
        """Return the answer of an operation of the table, for other protocols.

        Rights are checked, and content is left out, as for a request.

        Args:
            principal: The user, whose credential was checked.
            name: Of the operation.
            ids: The parts of the path, by name.
            query: The parameters.
            body: The fields of the body.
            seed: The id of the created object.
            via: The channel of decisions, for the audit trail.

        Raises:
            FlowEngineError: As the operation does.
        """
        route = find_route(name)
        call = self._call(route, principal, ids or {}, via)
        try:
            call = call._replace(
                query=route.query.model_validate(dict(query or {})),
                body=None if route.body is None else route.body.model_validate(dict(body or {})),
                seed=seed,
            )
        except ValidationError as error:
            message, field = _first(error, "field")
            raise InputError(message, field=field) from None
        async with self._place(route, principal):
            return await on_thread(lambda: route.answer(_checked(route, call)))

    async def change(
        self,
        principal: Principal,
        address: str,
        name: str,
        *,
        ids: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        seed: str | None = None,
        via: str,
    ) -> Any:
        """Make a change by an operation of the table, and record it or its refusal. See `ask`.

        Args:
            principal: The user.
            address: Of the client, for the audit record.
            name: Of the operation.
            ids: As for `ask`.
            body: As for `ask`.
            seed: As for `ask`.
            via: The channel, also for the audit record.
        """
        path = find_route(name).path.format(**(ids or {}))
        await on_thread(lambda: principal.check(anew=True))
        async with self.recorded(principal, via.upper(), path, address):
            return await self.ask(principal, name, ids=ids, body=body, seed=seed, via=via)

    async def identify(self, request: HTTPConnection, authorization: str | None) -> Principal:
        """Return the user of a request by its credential."""
        return await on_thread(lambda: self.identity.of(authorization, address_of(request)))

    async def admit(self, request: Request) -> Principal:
        """Return the user of a request of another protocol, and count the request.

        Raises:
            RequestRefused: The credential is not valid, or the user has sent too many requests.
        """
        principal = await self.named_by_proxy(request)
        if principal is None:
            principal = await self.identify(request, request.headers.get("authorization"))
        await self.count(principal, request)
        return principal

    async def view(
        self,
        route: Guarded,
        principal: Principal,
        path: Mapping[str, str],
        work: Callable[[ApiCall], _Found],
        *,
        via: str = VIA,
    ) -> _Found:
        """Check the right of a route, and return the result of a function of the call.

        Args:
            route: The route.
            principal: The user.
            path: The parts of the path, by name.
            work: The function.
            via: The channel of the function's decisions, for the audit trail.
        """
        call = self._call(route, principal, path, via)
        async with self._place(route, principal):
            return await on_thread(lambda: work(_checked(route, call)))

    async def note(
        self,
        request: Request,
        sender: Principal | Delivery | None,
        status: int,
        why: str | None,
        *,
        path: str | None = None,
    ) -> None:
        """Record a change or a refusal. `path`: of one of several objects of the request."""
        await self.note_act(
            sender, request.method, path or request.url.path, status, address_of(request), why
        )

    async def note_act(
        self,
        sender: Principal | Delivery | None,
        method: str,
        path: str,
        status: int,
        address: str,
        why: str | None = None,
    ) -> int | None:
        """Record a refusal, or a part of a change, and return the number of its entry.

        None: it cannot be recorded.
        """
        user, token = (None, None) if sender is None else (sender.user, sender.token)
        audit = partial(self.records.audit, _now(), method, path, status)
        return await self._recorded(lambda: audit(user=user, token=token, address=address, why=why))

    async def _recorded(self, write: Callable[[], _Found]) -> _Found | None:
        """Write to the audit record. None: that failed, on which nothing else depends."""
        try:
            return await on_thread(write)
        except (sqlite3.Error, OSError) as error:
            folder = self.records.folder
            _log.error("the audit record in %s cannot be written: %s", folder, error)
            return None

    async def _sender(self, route: Route, request: Request) -> Principal | Delivery | None:
        """Return who sends a request, as a credential or signature proves. None: it needs none.

        Raises:
            RequestRefused: The proof is not valid.
        """
        if route.need == "public":
            return None
        if route.need != "signed":
            return await self._principal(request, route)
        headers = {name.lower(): value for name, value in request.headers.items()}
        name, body = request.path_params["name"], await request.body()
        try:
            return await on_thread(lambda: signed_delivery(self._engine, name, headers, body))
        except RequestRefused as error:
            if error.status == 401:
                self.identity.note_failure(address_of(request))
            raise

    async def named_by_proxy(self, request: HTTPConnection) -> Principal | None:
        """Return the user whom the trusted proxy names, if it names one."""
        headers: dict[str, list[str]] = {}
        for name, value in request.headers.items():
            headers.setdefault(name.lower(), []).append(value)
        return await on_thread(lambda: self.identity.of_proxy(headers, address_of(request)))

    async def _principal(self, request: Request, route: Route) -> Principal:
        named = await self.named_by_proxy(request)
        if named is not None:
            return named
        authorization = request.headers.get("authorization")
        secret = request.cookies.get(cookie_name(SESSION_COOKIE, request.url))
        # The guard has checked the origin of an open route, which browsers always send with POST.
        is_open = route.is_open and "origin" in request.headers
        reads = request.method in ("GET", "HEAD") or is_open
        if authorization is None and secret is not None and reads:
            session = await on_thread(lambda: self.identity.of_session(secret))
            if session is not None:
                return session[0]
        return await self.identify(request, authorization)

    async def count(self, principal: Principal, request: HTTPConnection | None = None) -> None:
        """Count a request.

        Args:
            principal: The user.
            request: It takes one of the user's places until it is answered. None: it has one.

        Raises:
            RequestRefused: The user has sent too many, or too many are open.
        """
        self._rates.count(principal.user, principal.token)
        if request is not None:
            await self._open.hold(principal.user, request.scope)

    def _call(
        self, route: Guarded, principal: Principal, path: Mapping[str, str], via: str = VIA
    ) -> ApiCall:
        """Return a call without parameters and body."""
        if isinstance(route.need, Right) and not principal.may_somewhere(route.need):
            raise lacks(principal, route.need)
        engine = engine_for(self._engine, principal, via)
        return ApiCall(engine, principal, self.records, path, None, None, None, "")

    def _place(
        self, route: Guarded, sender: Principal | Delivery
    ) -> AbstractAsyncContextManager[None]:
        """Return a place in which a route is answered."""
        if route.check_patience is not None:
            return self._checking.of(sender.user, route.check_patience)
        return self._working.of(sender.user)

    async def _answer(
        self, route: Route, request: Request, sender: Principal | Delivery | None
    ) -> Response:
        if sender is None:
            return _json(route.status, as_json(route.answer(None)))
        if isinstance(sender, Delivery):
            async with self._place(route, sender):
                return _json(route.status, as_json(await on_thread(lambda: route.answer(sender))))
        principal = sender
        call = self._call(route, principal, request.path_params)
        query = _query(route, request)
        if route.uploads:
            return await self._upload(route, request, call._replace(query=query))
        raw = await request.body() if route.body is not None else b""
        body = None if route.body is None else body_as(route.body, request, raw)
        key = request.headers.get("idempotency-key") if route.method == "POST" else None
        if key is not None and _KEY_FORM.fullmatch(key) is None:
            raise UsageError(
                "Idempotency-Key is not valid", hint="up to 200 visible ASCII characters"
            )
        namespace = request.headers.get("x-namespace")
        call = call._replace(query=query, body=body, namespace=namespace)
        if route.streams and "text/event-stream" in request.headers.get("accept", ""):
            async with self._place(route, principal):
                checked = await on_thread(lambda: _checked(route, call))
            return await self.streams.response(checked, request.headers.get("last-event-id"))
        async with self._place(route, principal):
            if key is None or route.is_anew:
                answer = await on_thread(lambda: route.answer(_checked(route, call)))
                if isinstance(answer, Path):
                    name = request.path_params["sha256"]
                    return FileResponse(
                        answer, filename=name, media_type="application/octet-stream"
                    )
                return _json(route.status, as_json(answer))
            # Another credential of the user may have other rights, so it is another request.
            rights = repr((principal.access, principal.scope))
            named = f"{request.url.path}\n{rights}\n".encode()
            request_digest = hashlib.sha256(named + raw).digest()
            return await on_thread(lambda: self._once(route, call, key, request_digest))

    async def _upload(self, route: Route, request: Request, call: ApiCall) -> Response:
        """Return the answer to a request whose body is a file."""
        _refuse_packed(request)
        async with self.uploads_of(call.principal):
            path = await self.received(call.principal, request.stream())
        try:
            async with self._place(route, call.principal):
                checked = call._replace(body=path)
                result = await on_thread(lambda: route.answer(_checked(route, checked)))
        finally:
            await on_thread(path.unlink)
        return _json(route.status, as_json(result))

    async def received(self, principal: Principal, parts: AsyncIterator[bytes]) -> Path:
        """Write a file to a temporary file, which the caller removes.

        Raises:
            NotAllowed: The user is not allowed to upload files.
        """
        check_may_upload(principal)
        return await received(self.records, parts)

    def uploads_of(self, principal: Principal) -> AbstractAsyncContextManager[None]:
        """Return a place in which files of a user are received."""
        return self._uploading.of(principal.user)

    def _once(self, route: Route, call: ApiCall, key: str, digest: bytes) -> Response:
        """Answer a request with an idempotency key: the same answer each time."""
        user, records = call.principal.user, self.records
        checked = _checked(route, call)
        kept = records.begin_answer(user, key, digest, _now())
        if kept.status is not None:
            return _json(kept.status, kept.body or b"")
        try:
            answer = route.answer(checked._replace(seed=kept.seed))
            body = as_json(answer)
        except BaseException:
            records.drop_answer(user, key)
            raise
        again = body if route.secret is None else as_json({**answer, route.secret: None})
        records.end_answer(user, key, route.status, again)
        return _json(route.status, body)

    async def note_refusal(self, scope: Scope, refused: RequestRefused) -> None:
        """Record a request that was refused before its route saw it."""
        method, address = scope["method"], address_of(HTTPConnection(scope))
        await self.note_act(None, method, scope["path"], refused.status, address, refused.message)


async def _document(request: Request) -> Response:
    """Return the OpenAPI document. It contains nothing of the store and needs no credential."""
    return _json(200, as_json(document()))


async def _http_error(request: Request, error: Exception) -> Response:
    """Return the problem of a path that does not exist."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    hint = f"see {OPENAPI}" if status == 404 else None
    return problem_response(RequestRefused(status, f"there is no {request.url.path}", hint=hint))


def _checked(route: Guarded, call: ApiCall) -> ApiCall:
    """Return a call whose user still has the right of its route on the object in the path."""
    call.principal.check()
    if route.subject is None:
        return call
    flow = FLOWS[route.subject](call.engine, call.principal, call.path[route.subject])
    if isinstance(route.need, Right):
        call.need(route.need, flow.flow)
    return call._replace(flow=flow.flow, path={**call.path, route.subject: flow.id})


def _query(route: Route, request: Request) -> Any:
    """Return the parameters behind the `?`, checked.

    Raises:
        UsageError: They are not those of the route.
    """
    given: dict[str, Any] = {}
    fields = route.query.model_fields
    for name in request.query_params:
        values = request.query_params.getlist(name)
        is_list = name in fields and get_origin(fields[name].annotation) is list
        if not is_list and len(values) > 1:
            raise UsageError(f"the parameter '{name}' is given {len(values)} times")
        given[name] = values if is_list else values[0]
    try:
        return route.query.model_validate(given)
    except ValidationError as error:
        raise UsageError(_first(error, "parameter")[0]) from None


def body_as(model: type[BaseModel], request: HTTPConnection, raw: bytes) -> Any:
    """Return a body, checked against its model.

    Raises:
        RequestRefused: It is not declared as JSON, or compressed.
        InputError: It does not match the model.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if raw and media_type != _MEDIA_TYPE:
        raise RequestRefused(
            415, f"the body is {media_type or 'of no declared type'}", hint=f"send {_MEDIA_TYPE}"
        )
    _refuse_packed(request)
    try:
        return model.model_validate(read_json(raw, "the body", "") if raw else {})
    except ValidationError as error:
        message, field = _first(error, "field")
        raise InputError(message, field=field) from None


def _refuse_packed(request: HTTPConnection) -> None:
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in {"", "identity"}:
        raise RequestRefused(415, f"the body is encoded as {encoding}", hint="send it unencoded")


def _first(error: ValidationError, what: str) -> tuple[str, str]:
    """Return the first fault, as a sentence and the name of its field."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    named = f"{what} '{place}'" if place else "the body"
    if first["type"] == "extra_forbidden":
        return f"there is no {named}", place
    if first["type"] == "missing":
        return f"{named} is missing", place
    text = predicate(first)
    return f"{named}{' ' if text.startswith('must ') else ': '}{text}", place


def _json(status: int, body: bytes) -> Response:
    return Response(body, status, media_type=_MEDIA_TYPE)


def address_of(request: HTTPConnection) -> str:
    """Return the address of the client."""
    return request.client.host if request.client is not None else ""


def _now() -> int:
    return int(time.time() * 1000)
