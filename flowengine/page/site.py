"""The routes of the page: sessions, forms and templates around the views."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import cache, partial
from hashlib import sha256
from hmac import compare_digest
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, urlsplit
from weakref import WeakValueDictionary

from jinja2 import Environment, PackageLoader
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route as PathRoute

from flowengine.engines.infos import shown_title
from flowengine.errors import FlowEngineError, NotAllowed
from flowengine.kernel.notation.times import format_time
from flowengine.page import (
    approval_views,
    budget_views,
    bulk,
    choices,
    deploying,
    environment_views,
    execution_list,
    execution_views,
    flow_views,
    logins,
    overview,
)
from flowengine.page.fields import files_of, kept_files
from flowengine.page.looks import FILTERS, badge, between, duration, icon, is_past, now
from flowengine.page.sent_forms import Form, SentFile, form_fields, once, read_form
from flowengine.page.static_files import STATIC, static, static_files, static_version
from flowengine.page.view import PageView
from flowengine.sdk.python.user_code import on_thread
from flowengine.sdk.texts.sizes import size_text
from flowengine.server.application import Application, address_of
from flowengine.server.calls import ApiCall, subject_of
from flowengine.server.hooks import Act
from flowengine.server.identity import OIDC, SESSION_COOKIE, cookie_name
from flowengine.server.problems import MethodsOfPath, problem_of, status_of
from flowengine.server.records import SignedInSession
from flowengine.server.refusals import RequestRefused
from flowengine.server.rights import Principal, Right
from flowengine.server.routes import Need, find_route
from flowengine.server.sent_values import TakesFiles
from flowengine.server.sign_in import COOKIE, SECONDS

_LOCAL_PATH = re.compile(r"/(?![/\\])[\w/.~?=&%:-]*", re.ASCII)
"""A path of this server. Two slashes at the start would name another server."""
_SMALL, _LEVEL = 1000, 5
"""Of compression: the size in bytes from which a body is compressed, and the level."""
_COMMAND = re.compile(rb'name="command" value="\w*"')
"""The id of a form, which is new in each view."""
_PATIENCE = 3000
"""Milliseconds within which an idle worker takes an execution that can continue."""
_VIA = "page"
"""The channel of decisions on the page, for the audit trail."""


class PageRoute(NamedTuple):
    """A method of a path."""

    method: Literal["GET", "POST"]
    path: str
    operation: str
    """The operation of the API that it performs or shows, whose right it needs."""
    view: Callable[..., PageView]
    """Takes the call and the fields. If its form has files, also why one of them is refused."""
    takes_files: bool = False
    keep: Callable[[Any, Sequence[SentFile]], dict[str, str]] = kept_files
    """Returns the fields that its files stand for."""

    @property
    def need(self) -> Need:
        """The right that it needs."""
        return find_route(self.operation).need

    @property
    def check_patience(self) -> float | None:
        """As of the operation, which only a form performs."""
        return find_route(self.operation).check_patience if self.method == "POST" else None

    @property
    def subject(self) -> str | None:
        """The object in the path on whose flow the right is needed."""
        return subject_of(self.path)


_EXECUTION = "/executions/{execution}"
_APPROVAL = "/approvals/{approval}"
_ENVIRONMENT = "/environments/{environment}"
PAGES = (
    PageRoute("GET", "/executions", "list_executions", execution_list.list_executions),
    PageRoute("GET", _EXECUTION, "show_execution", overview.show_execution),
    PageRoute("GET", f"{_EXECUTION}/timeline", "show_execution", execution_views.show_timeline),
    PageRoute("GET", f"{_EXECUTION}/history", "list_events", execution_views.show_history),
    PageRoute("GET", f"{_EXECUTION}/conversation", "list_events",
              execution_views.show_conversation),
    PageRoute("GET", f"{_EXECUTION}/events", "list_events", execution_views.show_events),
    PageRoute("GET", f"{_EXECUTION}/compare", "diff", execution_views.show_diff),
    PageRoute("POST", f"{_EXECUTION}/signals/{{name}}", "send_signal", overview.send_signal,
              takes_files=True),
    PageRoute("GET", f"{_EXECUTION}/retry", "retry", bulk.show_retry),
    PageRoute("POST", f"{_EXECUTION}/retry", "retry", bulk.retry),
    PageRoute("GET", f"{_EXECUTION}/fork", "fork", bulk.show_fork),
    PageRoute("POST", f"{_EXECUTION}/fork", "fork", bulk.fork, takes_files=True),
    PageRoute("GET", f"{_EXECUTION}/cancel", "cancel", bulk.show_cancel),
    PageRoute("POST", f"{_EXECUTION}/cancel", "cancel", bulk.cancel),
    PageRoute("GET", "/bulk/executions", "cancel", bulk.plan_executions),
    PageRoute("POST", "/bulk/executions", "cancel", bulk.change_executions),
    PageRoute("GET", "/bulk/approvals", "decide_many", bulk.plan_approvals),
    PageRoute("POST", "/bulk/approvals", "decide_many", bulk.decide_approvals),
    PageRoute("GET", "/flows", "list_flows", flow_views.list_flows),
    PageRoute("GET", "/flows/{flow}", "show_flow", flow_views.show_flow),
    PageRoute("POST", "/flows/{flow}", "start_execution", flow_views.start, takes_files=True),
    PageRoute("GET", "/flows/{flow}/compare", "show_definition", flow_views.compare),
    PageRoute("POST", "/flows/{flow}/pause", "pause_schedules", flow_views.pause),
    PageRoute("POST", "/flows/{flow}/resume", "resume_schedules", flow_views.resume),
    PageRoute("POST", "/flows/{flow}/run", "trigger", flow_views.run_now),
    PageRoute("GET", "/deploy", "deploy", deploying.show_deploy),
    PageRoute("POST", "/deploy", "deploy", deploying.deploy, takes_files=True,
              keep=deploying.text_of_file),
    PageRoute("GET", "/budgets", "list_budgets", budget_views.list_budgets),
    PageRoute("GET", "/environments", "list_environments", environment_views.list_environments),
    PageRoute("POST", f"{_ENVIRONMENT}/look", "look_into_environment", environment_views.look),
    PageRoute("POST", f"{_ENVIRONMENT}/release", "release_environment", environment_views.release),
    PageRoute("GET", "/approvals", "list_approvals", approval_views.list_approvals),
    PageRoute("GET", _APPROVAL, "show_approval", approval_views.show_approval),
    PageRoute("POST", _APPROVAL, "decide", approval_views.decide, takes_files=True),
    PageRoute("POST", f"{_APPROVAL}/log-in", "decide", approval_views.log_in),
    PageRoute("POST", f"{_APPROVAL}/claim", "claim", approval_views.claim),
    PageRoute("POST", f"{_APPROVAL}/release", "release", approval_views.release),
    PageRoute("POST", f"{_APPROVAL}/delegate", "delegate", approval_views.delegate),
)  # fmt: skip
"""Every page, with the operation whose right it needs."""


@cache
def templates() -> Environment:
    """Return the templates. They are compiled once per process."""
    environment = Environment(
        loader=PackageLoader("flowengine.page"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    environment.globals.update(
        badge=badge,
        between=between,
        duration=duration,
        icon=icon,
        shown_title=shown_title,
        titled=flow_views.titled,
        static=static,
        is_past=is_past,
        channels=choices.CHANNELS,
        closed_as=choices.closed_as,
        in_groups=approval_views.in_groups,
        title_of_all=approval_views.title_of_all,
        form_fields=form_fields,
        files_of=files_of,
        size_text=size_text,
    )
    return environment


class Site:
    """The page over an application.

    Args:
        application: Checks credentials and rights, and keeps the records.
    """

    def __init__(self, application: Application) -> None:
        self._application = application
        self._logins = logins.PendingLogins()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Token of a session → held while one of its forms is answered."""

    def routes(self) -> list[PathRoute]:
        """Return the routes for the router of the application."""
        by_path: dict[str, dict[str, Any]] = {
            "/": {"GET": self._home},
            "/sign-in": {"GET": self._sign_in_form, "POST": self._sign_in},
            "/sign-in/provider": {"GET": self._to_provider},
            "/sign-in/callback": {"GET": self._from_provider},
            logins.PATH: {"GET": self._logged_in},
            "/sign-out": {"POST": self._sign_out},
            "/static/{version}/{name}": {"GET": self._file},
        }
        for page in PAGES:
            by_path.setdefault(page.path, {})[page.method] = self._handler(page)
        takes_files = {page.path for page in PAGES if page.takes_files}
        return [
            (TakesFiles if path in takes_files else PathRoute)(
                path,
                MethodsOfPath(
                    {name: _packed(answer) for name, answer in methods.items()}, self.problem
                ),
            )
            for path, methods in by_path.items()
        ]

    def problem(self, error: FlowEngineError, signed_in: Mapping[str, Any] = {}) -> Response:
        """Return the page of an error, with what every view shows a user who has signed in."""
        headers = error.headers if isinstance(error, RequestRefused) else {}
        context = {**signed_in, "problem": problem_of(error, "page")}
        return self._render("problem.html", context, status_of(error), headers)

    # Handlers

    async def _home(self, request: Request) -> Response:
        return RedirectResponse("/approvals", 303)

    async def _file(self, request: Request) -> Response:
        name, found = request.path_params["name"], static_files()
        if name not in found:
            raise RequestRefused(404, f"there is no {request.url.path}")
        is_newest = request.path_params["version"] == static_version()
        caching = "public, max-age=31536000, immutable" if is_newest else "no-cache"
        return Response(found[name], 200, {"cache-control": caching}, STATIC[name])

    async def _sign_in_form(self, request: Request) -> Response:
        return self._sign_in_page(_next(request))

    def _sign_in_page(self, following: str, error: RequestRefused | None = None) -> Response:
        context = {
            "next": following,
            "error": error,
            "has_provider": self._application.identity.code_flow is not None,
        }
        return self._render("sign_in.html", context, 200 if error is None else error.status)

    async def _to_provider(self, request: Request) -> Response:
        identity, following = self._application.identity, _next(request)
        redirect = f"{request.url.scheme}://{request.headers['host']}/sign-in/callback"
        try:
            address, browser = await on_thread(
                lambda: identity.flow_at_provider().begin(redirect, following, address_of(request))
            )
        except RequestRefused as error:
            return self._sign_in_page(following, error)
        response = RedirectResponse(address, 303)
        _set_cookie(response, request, COOKIE, browser, SECONDS)
        return response

    async def _from_provider(self, request: Request) -> Response:
        identity, given = self._application.identity, dict(request.query_params)
        browser = request.cookies.get(cookie_name(COOKIE, request.url), "")
        try:
            principal, begin, following = await on_thread(
                lambda: identity.finish_at_provider(given, browser, address_of(request))
            )
        except RequestRefused as error:
            await self._application.note(request, None, error.status, error.message)
            return self._sign_in_page("/approvals", error)
        async with self._recorded(request, principal):
            secret = await on_thread(begin)
        # Only a page of this server leads on with the cookie: the provider's page led here.
        response = self._render("signed_in.html", {"next": following})
        _delete_cookie(response, request, COOKIE)
        _set_cookie(response, request, SESSION_COOKIE, secret)
        return response

    async def _sign_in(self, request: Request) -> Response:
        form = (await read_form(request, lambda given: None)).fields
        following = form.get("next", "")
        try:
            principal = await self._application.identify(
                request, f"Bearer {form.get('token', '').strip()}"
            )
            if principal.token == OIDC:  # a session of it would need its provider again
                raise RequestRefused(
                    401,
                    "a token of the OpenID provider is for programs only",
                    hint="sign in at the provider, or with a token of this server",
                )
        except RequestRefused as error:
            await self._application.note(request, None, error.status, error.message)
            return self._sign_in_page(_local(following), error)
        async with self._recorded(request, principal) as act:
            act.status = 303
            identity = self._application.identity
            secret = await on_thread(lambda: identity.begin_session(principal))
        response = RedirectResponse(_local(following), 303)
        _set_cookie(response, request, SESSION_COOKIE, secret)
        return response

    async def _sign_out(self, request: Request) -> Response:
        found = await self._session(request)
        if found is not None:
            principal, session = found
            await read_form(request, lambda form: _check_form(form, session))
            secret = request.cookies.get(cookie_name(SESSION_COOKIE, request.url))
            async with self._recorded(request, principal) as act:
                act.status = 303
                if secret is not None:
                    await on_thread(lambda: self._application.records.end_session(secret))
        response = RedirectResponse("/sign-in", 303)
        _delete_cookie(response, request, SESSION_COOKIE)
        return response

    def _handler(self, page: PageRoute) -> Callable[[Request], Any]:
        async def handle(request: Request) -> Response:
            found = await self._session(request)
            if found is None:
                following = request.url.path if page.method == "GET" else "/approvals"
                return RedirectResponse(f"/sign-in?next={quote(following)}", 303)
            principal, session = found
            application = self._application
            try:
                await application.count(principal, request)
            except RequestRefused as error:
                await application.note(request, principal, error.status, error.message)
                raise
            try:
                if page.method == "GET":
                    return await self._answer(page, request, principal, session, Act())
                async with self._recorded(request, principal) as act:
                    return await self._answer(page, request, principal, session, act)
            except FlowEngineError as error:
                if page.method == "GET" and status_of(error) == 403:
                    await application.note(request, principal, 403, error.message)
                return self.problem(error, _signed_in(principal, session, request.url.path))

        return handle

    async def _answer(
        self,
        page: PageRoute,
        request: Request,
        principal: Principal,
        session: SignedInSession,
        act: Act,
    ) -> Response:
        form = Form(dict(request.query_params), [])
        if page.method == "POST":
            check = partial(_check_form, session=session)
            if page.takes_files:
                receive = partial(self._application.received, principal)
                async with self._application.uploads_of(principal):
                    form = await read_form(request, check, receive)
            else:
                form = await read_form(request, check)

        def show(call: ApiCall) -> tuple[PageView, dict[str, Any]]:
            view = _answered(call, page, request.url.path, form)
            if view.redirect:
                return view, {}
            # Every view has open approvals, and the oldest work that no worker takes.
            latest = now() - _PATIENCE
            left = (due.since for due in call.engine.due() if call.may(Right.SEE, due.flow))
            left_since = next((format_time(since) for since in left if since < latest), "")
            count = approval_views.open_approvals(call)
            return view, {"open_approvals": count, "left_since": left_since}

        try:
            async with self._turn(page, session):
                view, more = await self._application.view(
                    page, principal, request.path_params, show, via=_VIA
                )
        finally:
            await form.discard()
        if page.method == "POST":
            error = view.context.get("error")
            act.status, act.why = view.status, None if error is None else str(error.message)
            for item in view.noted:
                await self._application.note(
                    request, principal, item.status, item.why, path=item.path
                )
        if view.redirect is not None:
            return RedirectResponse(view.redirect, 303)
        context = {
            **view.context,
            **_signed_in(principal, session, request.url.path),
            **more,
        }
        if page.view is approval_views.log_in:
            return await self._to_login(request, principal, context)
        return self._render(view.template, context, view.status)

    async def _to_login(
        self, request: Request, principal: Principal, context: dict[str, Any]
    ) -> Response:
        """Show a link to the page of an authorization server. A form could not redirect there."""
        redirect = f"{request.url.scheme}://{request.headers['host']}{logins.PATH}"
        engine, wait = context["engine"], context["wait"]["id"]
        address, browser = await self._logins.begin(engine, wait, principal, redirect)
        host = urlsplit(address).netloc
        response = self._render("log_in.html", {**context, "address": address, "host": host})
        _set_cookie(response, request, logins.COOKIE, browser, logins.SECONDS)
        return response

    async def _logged_in(self, request: Request) -> Response:
        """Receive the redirect of an authorization server, and approve what waited for it."""
        browser = request.cookies.get(cookie_name(logins.COOKIE, request.url), "")
        begun = await self._logins.finish(dict(request.query_params), browser)
        decides = next(page for page in PAGES if page.view is approval_views.log_in)
        async with self._recorded(request, begun.principal, "POST") as act:
            await self._application.view(
                decides,
                begun.principal,
                {"approval": begun.wait},
                approval_views.logged_in,
                via=_VIA,
            )
            act.status = 303
        # Only a page of this server leads on with the cookie of the session.
        following = f"/approvals/{quote(begun.wait)}"
        response = self._render("signed_in.html", {"next": following, "heading": "Logged in"})
        _delete_cookie(response, request, logins.COOKIE)
        return response

    def _recorded(
        self, request: Request, principal: Principal, method: str = ""
    ) -> AbstractAsyncContextManager[Act]:
        """Return what records a change in the block."""
        return self._application.recorded(
            principal, method or request.method, request.url.path, address_of(request)
        )

    def _turn(
        self, page: PageRoute, session: SignedInSession
    ) -> AbstractAsyncContextManager[object]:
        """Return what answers the forms of a session one after another.

        The second request of a double click then finds the answer to the first.
        """
        if page.method != "POST":
            return nullcontext()
        return self._turns.setdefault(session.form_token, asyncio.Lock())

    async def _session(self, request: Request) -> tuple[Principal, SignedInSession] | None:
        try:
            named = await self._application.named_by_proxy(request)
        except RequestRefused as error:
            await self._application.note(request, None, error.status, error.message)
            raise
        if named is not None:
            return named, self._application.identity.proxy_session(named)
        secret = request.cookies.get(cookie_name(SESSION_COOKIE, request.url))
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
        names = {"user": None, "form_token": "", "place": "", **context}
        text = templates().get_template(name).render(names)
        return Response(text, status, dict(headers or {}), "text/html; charset=utf-8")


def _signed_in(principal: Principal, session: SignedInSession, path: str) -> dict[str, Any]:
    """Return what every view has of the user."""
    return {
        "user": principal.user,
        "form_token": session.form_token,
        "place": path,
        "decides": principal.may_somewhere(Right.DECIDE),
        "administers": principal.may_somewhere(Right.ADMINISTER),
        "operates": principal.may_somewhere(Right.OPERATE),
        "reads_all": principal.may(Right.CONTENT, ""),
    }


def _packed(
    answer: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Return what compresses a response, and sends none that the browser has already.

    A view has secrets beside texts of its request, so the size of a compressed one could betray
    them to another site that makes a browser send requests (BREACH). It gets none.
    """

    async def packed(request: Request) -> Response:
        response = await answer(request)
        is_own = request.headers.get("sec-fetch-site", "none") in ("same-origin", "none")
        if response.status_code == 200 and response.media_type:
            body = bytes(response.body)
            tag = f'"{sha256(_COMMAND.sub(b"", body)).hexdigest()[:16]}"'
            response.headers["etag"] = tag
            if request.headers.get("if-none-match") == tag:
                return Response(None, 304, {"etag": tag})
            packs = is_own and "gzip" in request.headers.get("accept-encoding", "")
            if packs and len(body) >= _SMALL:
                response.body = gzip.compress(body, _LEVEL)
                response.headers["content-length"] = str(len(response.body))
                response.headers["content-encoding"] = "gzip"
                response.headers["vary"] = "accept-encoding"
        return response

    return packed


def _answered(call: ApiCall, page: PageRoute, path: str, form: Form) -> PageView:
    """Return the answer to a request of the page, whose files are kept first."""
    if page.method != "POST":
        return page.view(call, form.fields)
    given = form.fields
    if page.takes_files:
        try:
            given = {**given, **page.keep(call, form.files)}
        except FlowEngineError as error:
            return page.view(call, given, error)
    return once(call, path, given, page.view)


def _set_cookie(
    response: Response, request: Request, name: str, secret: str, seconds: float | None = None
) -> None:
    """Set the cookie of a session, or one with which the browser comes back from another page."""
    response.set_cookie(
        cookie_name(name, request.url),
        secret,
        max_age=None if seconds is None else int(seconds),
        httponly=True,
        samesite="strict" if seconds is None else "lax",
        secure=request.url.scheme == "https",
    )


def _delete_cookie(response: Response, request: Request, name: str) -> None:
    secure = request.url.scheme == "https"
    response.delete_cookie(cookie_name(name, request.url), secure=secure)


def _check_form(form: Mapping[str, str], session: SignedInSession) -> None:
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
