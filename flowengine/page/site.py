"""The routes of the page: sessions, forms and templates around the views."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from hmac import compare_digest
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import parse_qsl, quote

from jinja2 import Environment, PackageLoader
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route as PathRoute

from flowengine.errors import FlowEngineError, NotAllowed
from flowengine.page import execution_views, flow_views, operations, views
from flowengine.page.readable import FILTERS, between, is_past
from flowengine.page.view import View
from flowengine.sdk.threads import on_thread
from flowengine.server.identity import session_cookie
from flowengine.server.problems import Refused, problem_of, status_of
from flowengine.server.rights import Principal, Right

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from flowengine.server.application import Application
    from flowengine.server.calls import Call
    from flowengine.server.records import Session

_MOST_FIELDS = 500
_LOCAL_PATH = re.compile(r"/(?![/\\])[\w/.~?=&%:-]*", re.ASCII)
"""A path of this server. Two slashes at the start would name another server."""
_STATIC = {"page.css": "text/css; charset=utf-8", "live.js": "text/javascript; charset=utf-8"}


_log = logging.getLogger("flowengine.server")


class Page(NamedTuple):
    """A method of a path."""

    method: Literal["GET", "POST"]
    path: str
    need: Right
    view: Callable[[Any, dict[str, str]], View]

    @property
    def subject(self) -> Literal["execution", "approval"] | None:
        """The object in the path on whose flow the right is needed."""
        if "{execution}" in self.path:
            return "execution"
        return "approval" if "{approval}" in self.path else None


PAGES = (
    Page("GET", "/executions", Right.SEE, views.list_executions),
    Page("GET", "/executions/{execution}", Right.SEE, execution_views.show_execution),
    Page("GET", "/executions/{execution}/step", Right.SEE, execution_views.show_step),
    Page("GET", "/executions/{execution}/timeline", Right.SEE, execution_views.show_timeline),
    Page("GET", "/executions/{execution}/history", Right.CONTENT, execution_views.show_history),
    Page(
        "GET",
        "/executions/{execution}/conversation",
        Right.CONTENT,
        execution_views.show_conversation,
    ),
    Page("GET", "/executions/{execution}/events", Right.CONTENT, execution_views.show_events),
    Page("GET", "/executions/{execution}/compare", Right.CONTENT, execution_views.show_diff),
    Page("POST", "/executions/{execution}/retry", Right.OPERATE, operations.retry),
    Page("POST", "/executions/{execution}/fork", Right.OPERATE, operations.fork),
    Page("POST", "/executions/{execution}/cancel", Right.OPERATE, operations.cancel),
    Page("GET", "/flows", Right.SEE, flow_views.list_flows),
    Page("GET", "/flows/{flow}", Right.SEE, flow_views.show_flow),
    Page("POST", "/flows/{flow}", Right.START, flow_views.start),
    Page("GET", "/approvals", Right.SEE, views.list_approvals),
    Page("GET", "/approvals/{approval}", Right.SEE, views.show_approval),
    Page("POST", "/approvals/{approval}", Right.DECIDE, views.decide),
    Page("POST", "/approvals/{approval}/claim", Right.DECIDE, views.claim),
    Page("POST", "/approvals/{approval}/release", Right.DECIDE, views.release),
    Page("POST", "/approvals/{approval}/delegate", Right.DECIDE, views.delegate),
)
"""Every page, with the right that it needs."""


class Site:
    """The page over an application.

    Args:
        application: Checks credentials and rights, and keeps the records.
    """

    def __init__(self, application: Application) -> None:
        self._application = application
        self._templates = Environment(
            loader=PackageLoader("flowengine.page"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(FILTERS)
        self._templates.globals.update(between=between, is_past=is_past, closed_as=views.closed_as)
        self._static = {
            name: files("flowengine.page").joinpath("static", name).read_bytes() for name in _STATIC
        }

    def routes(self) -> list[PathRoute]:
        """Return the routes for the router of the application."""
        by_path: dict[str, dict[str, Any]] = {
            "/": {"GET": self._home},
            "/sign-in": {"GET": self._sign_in_form, "POST": self._sign_in},
            "/sign-out": {"POST": self._sign_out},
            "/static/{name}": {"GET": self._file},
        }
        for page in PAGES:
            by_path.setdefault(page.path, {})[page.method] = self._handler(page)
        return [PathRoute(path, _Methods(self, methods)) for path, methods in by_path.items()]

    def problem(self, request: Request, error: FlowEngineError) -> Response:
        """Return the page of an error."""
        problem = problem_of(error, "page")
        headers = error.headers if isinstance(error, Refused) else {}
        return self._render("problem.html", {"problem": problem}, status_of(error), headers)

    # Handlers

    async def _home(self, request: Request) -> Response:
        return RedirectResponse("/approvals", 303)

    async def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._static:
            raise Refused(404, f"there is no {request.url.path}")
        headers = {"cache-control": "no-cache"}
        return Response(self._static[name], 200, headers, _STATIC[name])

    async def _sign_in_form(self, request: Request) -> Response:
        return self._render("sign_in.html", {"next": _next(request), "error": None})

    async def _sign_in(self, request: Request) -> Response:
        form = await _form(request)
        following = form.get("next", "")
        try:
            principal = await self._application.identify(
                request, f"Bearer {form.get('token', '').strip()}"
            )
        except Refused as error:
            await self._application.note(request, None, error.status, error.message)
            context = {"next": _local(following), "error": error.message}
            return self._render("sign_in.html", context, error.status)
        records = self._application.records
        secret = await on_thread(lambda: records.begin_session(principal.token, _now()))
        await self._application.note(request, principal, 303, None)
        response = RedirectResponse(_local(following), 303)
        secure = request.url.scheme == "https"
        response.set_cookie(
            session_cookie(request.url.scheme),
            secret,
            httponly=True,
            samesite="strict",
            secure=secure,
        )
        return response

    async def _sign_out(self, request: Request) -> Response:
        found = await self._session(request)
        if found is not None:
            principal, session = found
            _check_form(await _form(request), session)
            records, secret = (
                self._application.records,
                request.cookies[session_cookie(request.url.scheme)],
            )
            await on_thread(lambda: records.end_session(secret))
            await self._application.note(request, principal, 303, None)
        response = RedirectResponse("/sign-in", 303)
        response.delete_cookie(session_cookie(request.url.scheme))
        return response

    def _handler(self, page: Page) -> Callable[[Request], Any]:
        async def handle(request: Request) -> Response:
            found = await self._session(request)
            if found is None:
                following = request.url.path if page.method == "GET" else "/approvals"
                return RedirectResponse(f"/sign-in?next={quote(following)}", 303)
            principal, session = found
            try:
                return await self._answer(page, request, principal, session)
            except FlowEngineError as error:
                if page.method != "GET" or status_of(error) == 403:
                    await self._application.note(
                        request, principal, status_of(error), error.message
                    )
                return self.problem(request, error)

        return handle

    async def _answer(
        self, page: Page, request: Request, principal: Principal, session: Session
    ) -> Response:
        given = dict(request.query_params)
        if page.method == "POST":
            given = await _form(request)
            _check_form(given, session)

        def show(call: Call) -> tuple[View, str]:
            view = page.view(call, given)
            return view, "" if view.redirect else views.open_approvals(call)

        view, count = await self._application.view(page, principal, request.path_params, show)
        if page.method == "POST":
            why = None if view.redirect else str(view.context["error"].message)
            await self._application.note(request, principal, view.status, why)
        if view.redirect is not None:
            return RedirectResponse(view.redirect, 303)
        context = {
            **view.context,
            "user": principal.user,
            "form_token": session.form_token,
            "place": request.url.path,
            "open_approvals": count,
        }
        return self._render(view.template, context, view.status)

    async def _session(self, request: Request) -> tuple[Principal, Session] | None:
        secret = request.cookies.get(session_cookie(request.url.scheme))
        if secret is None:
            return None
        return await on_thread(lambda: self._application.identity.of_session(secret))

    def _render(
        self,
        name: str,
        context: Mapping[str, Any],
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        told = {"user": None, "form_token": "", "place": "", "open_approvals": "", **context}
        text = self._templates.get_template(name).render(told)
        return Response(text, status, dict(headers or {}), "text/html; charset=utf-8")


class _Methods:
    """The methods of one path of the page."""

    def __init__(self, site: Site, methods: Mapping[str, Any]) -> None:
        self._site = site
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        handler = self._methods.get("GET" if request.method == "HEAD" else request.method)
        try:
            if handler is None:
                allowed = ", ".join(sorted(self._methods))
                raise Refused(
                    405, f"this path has no method {request.method}", headers={"allow": allowed}
                )
            response = await handler(request)
        except FlowEngineError as error:
            response = self._site.problem(request, error)
        except Exception:
            _log.exception("%s %s failed", request.method, request.url.path)
            response = self._site.problem(request, Refused(500, "the server failed"))
        await response(scope, receive, send)


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form.

    Raises:
        Refused: The body is not a form.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/x-www-form-urlencoded":
        raise Refused(415, "the body is not a form")
    text = (await request.body()).decode("utf-8", "replace")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise Refused(422, f"the form cannot be read: {error}") from None
    return dict(pairs)


def _check_form(form: Mapping[str, str], session: Session) -> None:
    """Check that a form comes from a page of this session.

    Raises:
        NotAllowed: It does not.
    """
    if not compare_digest(form.get("form_token", "").encode(), session.form_token.encode()):
        raise NotAllowed("this form is not from a page of your session", hint="open the page again")


def _next(request: Request) -> str:
    return _local(request.query_params.get("next", ""))


def _local(path: str) -> str:
    """Return a path of this server, or the first view."""
    return path if _LOCAL_PATH.fullmatch(path) else "/approvals"


def _now() -> int:
    return int(time.time() * 1000)
