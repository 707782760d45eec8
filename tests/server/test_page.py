# Shows F50, V23, V50, V51
"""The page without JavaScript: signing in, reading, deciding, and who sees what."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import urlencode

import httpx2
import pytest
from starlette.datastructures import URL

from flowengine.page import site
from flowengine.page.looks import as_text, beginning
from flowengine.page.site import PAGES, PageRoute
from flowengine.server.guard import Hosts
from flowengine.server.identity import Identity, cookie_name
from tests.engines.world import until
from tests.replacing import Limits
from tests.server.api import LOCAL, OWNER, Api
from tests.server.test_access import ROLES

ALLOWED = {
    ("GET", "/executions"): frozenset(ROLES),
    ("GET", "/executions/{execution}"): frozenset(ROLES),
    ("POST", "/executions/{execution}/signals/{name}"): frozenset({"operator", "admin"}),
    ("GET", "/executions/{execution}/retry"): frozenset({"operator", "admin"}),
    ("POST", "/executions/{execution}/retry"): frozenset({"operator", "admin"}),
    ("GET", "/executions/{execution}/fork"): frozenset({"operator", "admin"}),
    ("POST", "/executions/{execution}/fork"): frozenset({"operator", "admin"}),
    ("GET", "/executions/{execution}/cancel"): frozenset({"operator", "admin"}),
    ("POST", "/executions/{execution}/cancel"): frozenset({"operator", "admin"}),
    ("GET", "/executions/{execution}/timeline"): frozenset(ROLES),
    ("GET", "/executions/{execution}/history"): frozenset({"admin"}),
    ("GET", "/executions/{execution}/conversation"): frozenset({"admin"}),
    ("GET", "/executions/{execution}/events"): frozenset({"admin"}),
    ("GET", "/executions/{execution}/compare"): frozenset({"admin"}),
    ("GET", "/bulk/executions"): frozenset({"operator", "admin"}),
    ("POST", "/bulk/executions"): frozenset({"operator", "admin"}),
    ("GET", "/bulk/approvals"): frozenset({"approver", "admin"}),
    ("POST", "/bulk/approvals"): frozenset({"approver", "admin"}),
    ("GET", "/flows"): frozenset(ROLES),
    ("GET", "/flows/{flow}"): frozenset(ROLES),
    ("POST", "/flows/{flow}"): frozenset({"starter", "operator", "admin"}),
    ("GET", "/flows/{flow}/compare"): frozenset({"admin"}),
    ("POST", "/flows/{flow}/pause"): frozenset({"operator", "admin"}),
    ("POST", "/flows/{flow}/resume"): frozenset({"operator", "admin"}),
    ("POST", "/flows/{flow}/run"): frozenset({"starter", "operator", "admin"}),
    ("GET", "/deploy"): frozenset({"admin"}),
    ("POST", "/deploy"): frozenset({"admin"}),
    ("GET", "/budgets"): frozenset({"admin"}),
    ("GET", "/environments"): frozenset({"operator", "admin"}),
    ("POST", "/environments/{environment}/look"): frozenset({"admin"}),
    ("POST", "/environments/{environment}/release"): frozenset({"operator", "admin"}),
    ("GET", "/approvals"): frozenset(ROLES),
    ("GET", "/approvals/{approval}"): frozenset(ROLES),
    ("POST", "/approvals/{approval}"): frozenset({"approver", "admin"}),
    ("POST", "/approvals/{approval}/log-in"): frozenset({"approver", "admin"}),
    ("POST", "/approvals/{approval}/claim"): frozenset({"approver", "admin"}),
    ("POST", "/approvals/{approval}/release"): frozenset({"approver", "admin"}),
    ("POST", "/approvals/{approval}/delegate"): frozenset({"approver", "admin"}),
}
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{ 7 * 7 }}"
FORM = """
flowengine: 1
id: hire
inputs: {name: {type: string}}
steps:
  - id: ask
    approval:
      title: Hire ${{ inputs.name }}?
      body: "About ${{ inputs.name }}"
      assignees: ["user:ben"]
      subject: {name: "${{ inputs.name }}", level: 3, remote: true}
      edit: [level]
      form:
        type: object
        properties:
          grade: {type: string, enum: [junior, senior]}
          salary: {type: number, title: Salary}
          urgent: {type: boolean}
        required: [grade, salary]
outputs: {form: "${{ steps.ask.output }}"}
"""


class Browser:
    """A user with cookies, who follows no redirect by itself."""

    def __init__(self, api: Api, token: str = LOCAL) -> None:
        self.api = api
        self.cookie = ""
        response = self("POST", "/sign-in", {"token": token, "next": "/executions"})
        assert response.status_code == 303, response.text
        assert response.headers["location"] == "/executions"
        self.set_cookie = response.headers["set-cookie"]
        self.cookie = self.set_cookie.partition(";")[0]

    def __call__(
        self, method: str, path: str, form: dict[str, str] | None = None, **headers: str
    ) -> httpx2.Response:
        sent = {"cookie": self.cookie, **headers}
        content = None
        if form is not None:
            sent.setdefault("content-type", "application/x-www-form-urlencoded")
            content = urlencode(form).encode()
        return self.api.response(method, path, token=None, headers=sent, content=content)

    def form_token(self, path: str) -> str:
        found = re.search(r'name="form_token" value="([\w-]+)"', self("GET", path).text)
        assert found
        return found[1]


@pytest.fixture
def ben(api: Api) -> Browser:
    return Browser(api, api.token("user:ben"))


def waiting(api: Api, name: str = "Ada") -> tuple[str, str]:
    with open("hire.yaml", "w") as file:
        file.write(FORM)
    result = api.engine.run("hire.yaml", {"name": name})
    return result.execution, result.waits[0]["id"]


# Shows V54
def test_an_approver_signs_in_decides_and_signs_out(api: Api, ben: Browser) -> None:
    _, wait = waiting(api)
    assert "Hire Ada?" in ben("GET", "/approvals").text
    path = f"/approvals/{wait}"
    form = {"form_token": ben.form_token(path), "choice": "approve", "comment": "good"}
    refused = ben("POST", path, {**form, "form.salary": "much", "edit.level": "3"})
    assert refused.status_code == 422
    assert "must be a number" in refused.text
    assert 'value="much"' in refused.text
    form |= {"form.grade": "senior", "form.salary": "50", "edit.level": "4"}
    done = ben("POST", path, form)

    assert (done.status_code, done.headers["location"]) == (303, path)
    decision = api.engine.approvals.show(wait)["decision"]
    assert (decision["by"], decision["via"], decision["comment"]) == ("user:ben", "page", "good")
    assert decision["form"] == {"grade": "senior", "salary": 50, "urgent": False}
    assert decision["edits"] == {"level": 4}
    shown = ben("GET", path).text
    assert '<form method="post" class' not in shown
    for part in ("approved by ben", "good", "3 → 4", "senior", "on this page"):
        assert part in shown[shown.index('id="decision"') : shown.index("About Ada")], part
    assert "approve" in ben("GET", "/approvals?for=all&status=closed").text
    late = ben("POST", path, {**form, "choice": "reject"})
    assert late.status_code == 409
    out = ben("POST", "/sign-out", {"form_token": form["form_token"]})
    assert out.status_code == 303
    assert ben("GET", "/approvals").headers["location"] == "/sign-in?next=/approvals"


# Shows P13
def test_an_empty_required_field_is_reported_as_missing(api: Api, ben: Browser) -> None:
    with open("hire.yaml", "w") as file:
        file.write(FORM.replace("enum: [junior, senior]", 'pattern: "^[a-z]+$"'))
    wait = api.engine.run("hire.yaml", {"name": "Ada"}).waits[0]["id"]
    form = {"form_token": ben.form_token(f"/approvals/{wait}"), "choice": "approve"}
    answer = ben("POST", f"/approvals/{wait}", {**form, "form.grade": "", "form.salary": "5"})
    assert answer.status_code == 422
    [message] = re.findall(r'role="alert">(.*?)</p>', answer.text)
    assert message == "One field needs a change: grade"
    assert "&#39;grade&#39; is required" in answer.text
    text = ben("POST", f"/approvals/{wait}", {**form, "form.grade": "7", "form.salary": "x"}).text
    assert "2 fields need a change: grade, Salary" in text
    assert 'name="form.salary" value="x" inputmode="decimal" aria-invalid="true"' in text
    assert re.findall(r'name="([^"]+)"[^>]*autofocus', text) == ["form.grade"]
    assert "&#39;Salary&#39; must be a number, not &#39;x&#39;" in text
    rejected = ben("POST", f"/approvals/{wait}", {**form, "choice": "reject"})
    assert rejected.status_code == 303  # without the form


# Shows V54
def test_opening_a_link_decides_nothing(api: Api, ben: Browser) -> None:
    _, wait = waiting(api)
    for path in (f"/approvals/{wait}?choice=approve", f"/approvals/{wait}/decision?choice=approve"):
        ben("GET", path)
        ben("HEAD", path)
    assert api.engine.approvals.show(wait)["status"] == "pending"


@pytest.mark.parametrize(
    ("token", "headers", "code"),
    [
        ("", {}, 403),
        ("x", {}, 403),
        ("other", {}, 403),
        ("own", {"content-type": "text/plain"}, 415),
        ("own", {"origin": "null"}, 403),
        ("own", {"origin": "http://evil.example"}, 403),
        ("own", {"sec-fetch-site": "cross-site"}, 403),
    ],
)
def test_a_form_of_another_page_changes_nothing(
    api: Api, ben: Browser, token: str, headers: dict[str, str], code: int
) -> None:
    _, wait = waiting(api)
    path = f"/approvals/{wait}"
    carla = Browser(api, api.token("user:ben"))
    tokens = {"own": ben.form_token(path), "other": carla.form_token(path)}
    form = {"choice": "reject", "form_token": tokens.get(token, token)}

    assert ben("POST", path, form, **headers).status_code == code
    assert api.engine.approvals.show(wait)["status"] == "pending"


def test_a_cookie_is_for_the_page_and_reads_and_changes_nothing_of_the_api(
    api: Api, ben: Browser
) -> None:
    _, wait = waiting(api)
    assert "HttpOnly" in ben.set_cookie
    assert "SameSite=strict" in ben.set_cookie
    headers = {"cookie": ben.cookie}
    assert api("GET", "/v1/me", token=None, headers=headers, code=200)["user"] == "user:ben"
    path = f"/v1/approvals/{wait}/decision"
    api("POST", path, {"choice": "reject"}, token=None, headers=headers, code=401)


def test_a_cookie_is_that_of_one_port_of_the_host(api: Api) -> None:
    """Browsers send cookies to all ports of a host: servers must not replace or take others'."""
    first, second = "testserver:8383", "testserver:8384"
    api.hosts = Hosts(frozenset({first, second}))
    api.application = api.new_application(api.records)
    sent = {"host": first, "content-type": "application/x-www-form-urlencoded"}
    signed_in = api.response(
        "POST", "/sign-in", token=None, headers=sent, content=urlencode({"token": LOCAL}).encode()
    )
    cookie = signed_in.headers["set-cookie"].partition(";")[0]
    assert cookie.startswith("flowengine_session_8383=")
    for host, code in ((first, 200), (second, 401)):
        api("GET", "/v1/me", token=None, headers={"host": host, "cookie": cookie}, code=code)
    named = {
        url: cookie_name("session", URL(url))
        for url in ("https://flows.example.com/", "https://example.com:8443/", "http://[::1]:9/")
    }
    assert [*named.values()] == ["__Host-session", "__Host-session_8443", "session_9"]


def test_a_session_ends_with_its_token(api: Api, ben: Browser) -> None:
    name = api.records.tokens()[0].name
    assert ben("GET", "/approvals").status_code == 200
    api.records.revoke_token(name, 1)
    assert ben("GET", "/approvals").status_code == 303
    stored = "".join(map(str, api.records._read("SELECT * FROM browsers")))
    assert ben.cookie.partition("=")[2] not in stored


def test_a_session_ends_with_the_token_of_the_user_who_runs_the_server(api: Api) -> None:
    identity = api.application.identity
    secret = identity.begin_session(identity.local())
    replaced = Identity(api.records, api.engine.settings, OWNER, "fe_other")
    assert identity.of_session(secret) is not None
    assert replaced.of_session(secret) is None


# Shows V22
def test_what_cannot_be_recorded_does_not_happen(api: Api, ben: Browser) -> None:
    execution, wait = api.started()
    place = f"/approvals/{wait}"
    form = {"form_token": ben.form_token(place), "choice": "approve"}
    api.records._write("ALTER TABLE audit RENAME TO lost", ())
    told = api("POST", f"/v1{place}/decision", {"choice": "approve"}, code=503)
    assert told["detail"] == "the audit record cannot be written"
    api("POST", f"/v1/executions/{execution}/cancel", {}, code=503)
    api("POST", "/v1/executions", {"flow": "expense", "inputs": {"amount": 1}}, code=503)
    assert ben("POST", place, form).status_code == 503
    assert ben("POST", "/sign-out", {"form_token": form["form_token"]}).status_code == 503
    assert ben("GET", place).status_code == 200
    assert api.engine.approvals.show(wait)["status"] == "pending"
    assert len(api.engine.executions.list().items) == 1
    assert api.engine.executions.result(execution).status == "waiting"
    api("GET", "/v1/executions", code=200)

    api.records._write("ALTER TABLE lost RENAME TO audit", ())
    assert ben("POST", place, form).status_code == 303
    [entry] = [one for one in api.records.audited(None, 50) if one["path"] == place]
    assert (entry["user"], entry["status"], entry["why"]) == ("user:ben", 200, None)


def test_a_cancelled_change_is_not_recorded_as_a_failure(api: Api) -> None:
    sender = api.application.identity.local()

    async def change() -> None:
        async with api.application.recorded(sender, "POST", "/v1/x", ""):
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(change())
    [entry] = api.records.audited(None, 1)
    assert entry["status"] == 0
    assert "may have taken effect" in entry["why"]


@pytest.mark.endurance(sample=8)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.method} {page.path}")
def test_each_page_for_each_role(api: Api, page: PageRoute) -> None:
    assert {(one.method, one.path) for one in PAGES} == ALLOWED.keys()
    method, path = page.method, page.path
    execution, wait = waiting(api)
    address = path.format(
        execution=execution, approval=wait, flow="expense", environment="x", name="x"
    )
    for role, user in ROLES.items():
        browser = Browser(api, api.token(user))
        form = None
        if method == "POST":
            form = {"form_token": browser.form_token("/approvals"), "choice": "approve"}
        answer = browser(method, address, form)
        lacks = answer.status_code == 403 and "does not have the right" in answer.text
        assert lacks is (role not in ALLOWED[method, path]), role


def test_who_does_not_see_the_content_sees_no_title(api: Api) -> None:
    execution, wait = waiting(api, "Zoe4711")
    vera = Browser(api, api.token("user:vera"))
    for path in ("/approvals?for=all", f"/approvals/{wait}", f"/executions/{execution}"):
        answer = vera("GET", path)
        assert answer.status_code == 200
        assert "Zoe4711" not in answer.text
    hidden = vera("POST", f"/approvals/{wait}", {"form_token": vera.form_token("/approvals")})
    assert hidden.status_code == 403


# Shows V57
def test_hostile_text_is_only_text(api: Api, ben: Browser) -> None:
    execution, wait = waiting(api, HOSTILE)
    owner = Browser(api)
    api.engine.start("hire.yaml", {"name": "x"}, labels={"a": HOSTILE})
    for browser, path in (
        (ben, "/approvals"),
        (ben, f"/approvals/{wait}"),
        (owner, f"/executions/{execution}"),
        (owner, "/executions?flow=" + HOSTILE.replace(" ", "%20").replace("{", "%7B")),
    ):
        text = browser("GET", path).text
        assert "<script>alert" not in text
        assert "<img" not in text
        assert "49" not in re.sub(
            r'"[^"]*"|<code>.*?</code>|<time.*?</time>|\b01[0-9a-z]+', "", text
        )


@pytest.mark.parametrize(
    "path",
    [
        "//evil.example",
        "/\\evil.example",
        "https://evil.example",
        "/%5cx\n",
        "/a\r\nb: c",
        "/a b",
        "",
    ],
)
def test_signing_in_leads_to_a_path_of_this_server(api: Api, path: str) -> None:
    form = urlencode({"token": LOCAL, "next": path}).encode()
    headers = {"content-type": "application/x-www-form-urlencoded"}
    answer = api.response("POST", "/sign-in", token=None, headers=headers, content=form)
    assert answer.headers["location"] == "/approvals"


def test_a_wrong_token_signs_nobody_in_and_is_on_record(api: Api) -> None:
    form = urlencode({"token": "fe_wrong", "next": "/executions"}).encode()
    headers = {"content-type": "application/x-www-form-urlencoded"}
    answer = api.response("POST", "/sign-in", token=None, headers=headers, content=form)
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert api.records.audited(None, 1)[0]["path"] == "/sign-in"


# Shows P16
def test_an_unchanged_view_is_not_sent_again(api: Api) -> None:
    waiting(api)
    owner = Browser(api)
    first = owner("GET", "/executions", None, **{"accept-encoding": "gzip"})
    assert first.headers["content-encoding"] == "gzip"
    assert int(first.headers["content-length"]) * 3 < len(first.text)
    foreign = {"accept-encoding": "gzip", "sec-fetch-site": "cross-site"}
    assert "content-encoding" not in owner("GET", "/executions", None, **foreign).headers
    same = {"if-none-match": first.headers["etag"]}
    assert owner("GET", "/executions", None, **same).status_code == 304
    waiting(api, "Bea")
    assert owner("GET", "/executions", None, **same).status_code == 200


# Shows P17
def test_the_page_of_an_error_shows_the_user(api: Api) -> None:
    answer = Browser(api)("GET", "/executions/none")
    assert answer.status_code == 404
    assert "Sign out" in answer.text
    assert "Sign out" not in api.response("GET", "/sign-in", token=None).text


def words(html: str) -> str:
    """Return the text of a page, with single spaces."""
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


NOTIFYING = """
flowengine: 1
id: tells
tools: {tell: {python: "tools:tell"}}
steps:
  - {id: ask, approval: {title: Pay?, notify: [tell]}}
"""


# Shows P9
def test_notifications_are_listed_on_request_and_outcomes_are_drawn_over_time(api: Api) -> None:
    (api.folder / "tools.py").write_text("def tell(**what): pass\n")
    (api.folder / "tells.yaml").write_text(NOTIFYING)
    wait = api.engine.run("tells.yaml").waits[0]["id"]
    until(lambda: api.engine.executions.list(flow="_notify.tell").items)
    owner = Browser(api)
    assert "notification by " not in owner("GET", "/executions").text
    assert "notification by " in owner("GET", "/executions?notifications=on").text
    api.engine.approvals.approve(wait)
    text = owner("GET", "/executions?flow=tells").text
    assert "1 succeeded" in words(text[text.index('class="charted flat"') :])


# Shows P17
def test_work_that_no_worker_takes_is_told_to_those_who_see_it(api: Api, limits: Limits) -> None:
    owner, sam = Browser(api), Browser(api, api.token("user:sam"))
    left = "No worker has taken work"
    id = api.engine.start(api.flows[1], {"order": "a"})
    assert left not in owner("GET", "/flows").text
    limits(site, _PATIENCE=-1)
    assert left in owner("GET", "/flows").text
    assert left not in sam("GET", "/flows").text
    api.engine.resume(id)
    assert left not in owner("GET", "/flows").text


# Shows P9
def test_the_list_is_filtered_searched_and_live(api: Api) -> None:
    mine, wait = waiting(api)
    other = api.engine.run(api.flows[1], {"order": "a"}, labels={"team": "red & blue"}).execution
    owner, ben = Browser(api), Browser(api, api.token("user:ben"))

    def listed(browser: Browser, query: str) -> set[str]:
        text = browser("GET", f"/executions?{query}").text
        return {id for id in (mine, other) if f'href="/executions/{id}"' in text}

    assert listed(owner, "") == {mine, other}
    assert "data-poll" in owner("GET", "/executions").text
    assert listed(owner, "label=team%3Dred+%26+blue") == {other}
    assert "?label=team%3Dred+%26+blue" in owner("GET", "/executions").text
    assert listed(owner, "since=2000-01-01") == {mine, other}
    assert listed(owner, "since=2999-01-01") == set()
    assert owner("GET", "/executions?since=soon").status_code == 422
    assert listed(ben, "for=me") == {mine}
    assert listed(ben, "for=me&status=waiting&flow=hire&since=2000-01-01") == {mine}
    for without in ("status=failed", "flow=parcel", "label=a%3Db", "since=2999-01-01"):
        assert listed(ben, f"for=me&{without}") == set()
    api.engine.approvals.decide(wait, "reject", by="user:ben")
    assert listed(ben, "for=me") == set()


def test_an_execution_is_found_by_the_beginning_of_its_id_by_those_who_may_see_it(api: Api) -> None:
    execution, _ = waiting(api)
    limited = Browser(api, api.token("user:owner", "admin", "parcel"))
    found = Browser(api)("GET", f"/executions?search={execution[:-2]}")
    assert found.headers["location"] == f"/executions/{execution}"
    unknown = limited("GET", "/executions?search=zzzz").text.replace("zzzz", "")
    assert limited("GET", f"/executions?search={execution}").text.replace(execution, "") == unknown


MANY = """
flowengine: 1
id: many
steps:
  - id: each
    map: {over: "${{ range(130) }}"}
    group:
      - {id: check, when: "${{ item == 120 }}", fail: {type: Broke, message: It broke}}
"""


# Shows P1
def test_colors_are_given_by_tokens(api: Api) -> None:
    text = Browser(api)("GET", "/approvals").text
    [address] = re.findall(r'href="(/static/\w+/page.css)"', text)
    sheet = api.response("GET", address, token=None).text
    [tokens] = re.findall(r":root \{.*?\n\}", sheet, re.DOTALL)
    color = re.compile(r"#[0-9a-f]{3,8}(?=[;,) ])|(?:rgb|hsl|lab|lch|hwb)a?\(|:[^;{}]*\bwhite\b")
    assert len(color.findall(tokens)) > 20
    assert color.findall(sheet.replace(tokens, "")) == []


# Shows P2
def test_each_color_of_the_graph_has_a_class_that_the_style_sheet_sets(api: Api) -> None:
    execution, _ = waiting(api)
    text = Browser(api)("GET", f"/executions/{execution}").text
    [graph] = re.findall(r'<svg xmlns=.*?class="flow".*?</svg>', text, re.DOTALL)
    colored = re.findall(r"<[^>]*(?:fill|stroke)=\"(?:#|white)[^>]*>", graph)
    [address] = re.findall(r'href="(/static/\w+/page.css)"', text)
    sheet = api.response("GET", address, token=None).text
    assert colored
    for element in colored:
        names = re.findall(r'class="([\w ]+)"', element)[0].split()
        assert any(f".{name}" in sheet for name in names), element
    assert set(re.findall(r"url\(#(\w+)\)", graph)) == {"graph_head", "graph_took"}


def test_an_approval_is_claimed_released_and_delegated(api: Api, ben: Browser) -> None:
    with open("held.yaml", "w") as file:
        file.write(FORM.replace("title: Hire", "claim: true\n      title: Hire"))
    wait = api.engine.run("held.yaml", {"name": "Ada"}).waits[0]["id"]
    path = f"/approvals/{wait}"
    form = {"form_token": ben.form_token(path)}
    assert 'name="choice"' not in ben("GET", path).text
    assert ben("POST", f"{path}/claim", form).headers["location"] == path
    assert 'name="choice"' in ben("GET", path).text
    assert ben("POST", f"{path}/release", form).status_code == 303
    assert "claimed_by" not in api.engine.approvals.show(wait)
    assert ben("POST", f"{path}/delegate", {**form, "to": " "}).status_code == 422
    assert ben("POST", f"{path}/delegate", {**form, "to": "group:hr"}).status_code == 400
    assert ben("POST", f"{path}/delegate", {**form, "to": "cleo"}).status_code == 303
    assert api.engine.approvals.show(wait)["handed"][-1]["to"] == "user:cleo"
    assert "Delegated by ben to cleo" in Browser(api)("GET", path).text


NESTED = """
flowengine: 1
id: nested
steps:
  - id: each
    map: {over: "${{ range(3) }}"}
    group:
      - {id: check, approval: {title: Good?}}
"""


# Shows V58
def test_a_map_is_one_fold_that_shows_what_failed_first_in_pages(api: Api) -> None:
    with open("many.yaml", "w") as file:
        file.write(MANY)
    path = f"/executions/{api.engine.run('many.yaml').execution}"
    owner = Browser(api)
    text = owner("GET", path).text
    [fold] = re.findall(r'<details data-fold="each">(.*?)</summary>', text, re.DOTALL)
    assert "1 failed" in words(fold)
    assert text.index('title="each[120]"') < text.index('title="each[0]"')
    assert 'title="each[119]"' not in text
    last = owner("GET", f"{path}?at=each&from=100").text
    assert 'title="each[119]"' in last
    assert 'title="each[0]"' not in last
    assert owner("GET", f"{path}?at=each&from=-1").status_code == 200
    assert owner("GET", f"{path}?at=none").status_code == 404
    assert "0 attempts" not in text


def test_values_are_shown_in_full_or_cut_and_without_characters_that_disguise_them() -> None:
    assert as_text({"a": [1, b"x"]}) == '{\n  "a": [\n    1,\n    "eA=="\n  ]\n}'
    assert as_text("a\u202eb") == '"a\ufffdb"'
    assert beginning("a\nb\u200fc") == "a\nb\ufffdc"
    long = beginning("x" * 20_005)
    assert long.startswith("x" * 20_000 + "\n… 5 more")


def test_filters_that_are_not_valid_are_errors_and_a_fault_shows_nothing_of_itself(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = Browser(api)
    assert owner("GET", "/executions?status=odd").status_code == 422
    assert owner("GET", "/approvals?after=" + "x" * 300).status_code == 422
    assert owner("GET", "/approvals?after=x").status_code == 400
    monkeypatch.setattr("flowengine.server.approvals.visible_page", lambda *_: 1 / 0)
    answer = owner("GET", "/approvals")
    assert answer.status_code == 500
    assert "division" not in answer.text


# Shows P16
def test_pages_without_a_session_lead_to_signing_in_and_other_methods_are_refused(api: Api) -> None:
    assert api.response("GET", "/", token=None).headers["location"] == "/approvals"
    found = api.response("GET", "/executions/x", token=None)
    assert found.headers["location"] == "/sign-in?next=/executions/x"
    assert api.response("DELETE", "/executions", token=None).status_code == 405
    assert api.response("GET", "/static/none.js", token=None).status_code == 404
    sign_in = api.response("GET", "/sign-in", token=None).text
    for name in ("page.css", "live.js"):
        [address] = re.findall(rf'"(/static/\w+/{name})"', sign_in)
        answer = api.response("GET", address, token=None)
        assert "max-age=31536000" in answer.headers["cache-control"]
        old = api.response("GET", f"/static/old/{name}", token=None)
        assert (old.text, old.headers["cache-control"]) == (answer.text, "no-cache")
    assert OWNER in Browser(api)("GET", "/executions").text
