# Shows V20, V21
"""Who may do what: every route for every role, what each sees, and where identity comes from."""

from __future__ import annotations

import json
import re
from contextlib import closing
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from flowengine import Engine
from flowengine.engines import deployed_flows
from flowengine.errors import NotFound, UsageError
from flowengine.server import application
from flowengine.server.records import STRANGERS, ServerRecords
from flowengine.server.routes import ROUTES, Route
from tests.replacing import Limits
from tests.server.api import LOCAL, OWNER, Api

ROLES = {
    "viewer": "user:vera",
    "starter": "user:sam",
    "approver": "user:ben",
    "operator": "user:otto",
    "admin": "user:ada",
}
ALL = frozenset(ROLES)
ADMIN = frozenset({"admin"})
STARTS = frozenset({"starter", "operator", "admin"})
DECIDES = frozenset({"approver", "admin"})
OPERATES = frozenset({"operator", "admin"})
ALLOWED: dict[tuple[str, str], frozenset[str]] = {
    ("GET", "/v1/health"): ALL,
    ("GET", "/v1/me"): ALL,
    ("GET", "/v1/flows"): ALL,
    ("POST", "/v1/flows"): ADMIN,
    ("POST", "/v1/flows/check"): ALL,
    ("GET", "/v1/flows/{flow}"): ALL,
    ("GET", "/v1/flows/{flow}/graph"): ALL,
    ("GET", "/v1/flows/{flow}/definition"): ADMIN,
    ("POST", "/v1/flows/{flow}/deploy"): ADMIN,
    ("POST", "/v1/flows/{flow}/undeploy"): ADMIN,
    ("GET", "/v1/schedules"): ALL,
    ("POST", "/v1/schedules/{flow}/pause"): OPERATES,
    ("POST", "/v1/schedules/{flow}/resume"): OPERATES,
    ("POST", "/v1/schedules/{flow}/trigger"): STARTS,
    ("POST", "/v1/schedules/{flow}/backfill"): STARTS,
    ("GET", "/v1/executions"): ALL,
    ("GET", "/v1/counts"): ALL,
    ("POST", "/v1/executions"): STARTS,
    ("GET", "/v1/executions/{execution}"): ALL,
    ("GET", "/v1/executions/{execution}/why"): ALL,
    ("GET", "/v1/executions/{execution}/events"): ADMIN,
    ("GET", "/v1/events"): ALL,
    ("GET", "/v1/executions/{execution}/graph"): ALL,
    ("GET", "/v1/executions/{execution}/diff/{other}"): ADMIN,
    ("GET", "/v1/executions/{execution}/artifacts/{sha256}"): ADMIN,
    ("POST", "/v1/executions/{execution}/cancel"): OPERATES,
    ("POST", "/v1/executions/{execution}/resume"): OPERATES,
    ("POST", "/v1/executions/{execution}/retry"): OPERATES,
    ("POST", "/v1/executions/{execution}/fork"): OPERATES,
    ("POST", "/v1/executions/{execution}/upgrade"): OPERATES,
    ("POST", "/v1/executions/{execution}/signals/{name}"): OPERATES,
    ("POST", "/v1/signals/{name}"): STARTS,
    ("POST", "/v1/hooks/{name}"): frozenset(),
    ("POST", "/v1/artifacts"): ALL,
    ("GET", "/v1/approvals"): ALL,
    ("POST", "/v1/approvals/decisions"): DECIDES,
    ("GET", "/v1/approvals/{approval}"): ALL,
    ("POST", "/v1/approvals/{approval}/decision"): DECIDES,
    ("POST", "/v1/approvals/{approval}/claim"): DECIDES,
    ("POST", "/v1/approvals/{approval}/release"): DECIDES,
    ("POST", "/v1/approvals/{approval}/delegate"): DECIDES,
    ("GET", "/v1/environments"): OPERATES,
    ("GET", "/v1/environments/{environment}"): OPERATES,
    ("POST", "/v1/environments/{environment}/look"): ADMIN,
    ("POST", "/v1/environments/{environment}/release"): OPERATES,
    ("GET", "/v1/grants"): ADMIN,
    ("GET", "/v1/budgets"): ADMIN,
    ("POST", "/v1/grants/{grant}/revoke"): DECIDES,
    ("POST", "/v1/temporal/decode"): ADMIN,
    ("POST", "/v1/temporal/encode"): OPERATES,
    ("GET", "/v1/tokens"): ADMIN,
    ("POST", "/v1/tokens"): ADMIN,
    ("POST", "/v1/tokens/{name}/revoke"): ADMIN,
    ("GET", "/v1/audit"): ADMIN,
}
BODIES: dict[str, Any] = {
    "deploy": {"text": "id: x"},
    "check_flow": {"text": "id: x"},
    "backfill": {"since": "2026-11-20T00:00:00Z"},
    "start_execution": {"flow": "expense", "inputs": {"amount": 1}},
    "resume": {"on_crash": "fail"},
    "fork": {"from_step": "ask"},
    "upgrade": {"flow": "expense"},
    "send_keyed_signal": {"key": "A17"},
    "decide_many": {"decisions": [{"wait": "WAIT", "choice": "approve"}]},
    "decide": {"choice": "approve"},
    "create_token": {"name": "new"},
    "decode": {"payloads": []},
    "encode": {"payloads": []},
    "delegate": {"to": "user:dora"},
}


def test_every_route_has_a_rule_in_the_table() -> None:
    assert {(route.method, route.path) for route in ROUTES} == ALLOWED.keys()


def test_the_page_of_the_docs_names_the_right_of_every_route() -> None:
    page = (Path(__file__).parents[2] / "docs" / "server" / "api.md").read_text()
    rows = re.findall(r"^\| (GET|POST) \| `(\S+)` \| (.+) \|$", page, re.MULTILINE)
    named = {"public": "none", "anyone": "any valid credential", "signed": "a signature"}
    assert rows == [
        (route.method, route.path, named.get(route.need, f"`{route.need}`")) for route in ROUTES
    ]


@pytest.mark.endurance
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_each_route_for_each_role(api: Api, route: Route) -> None:
    api.token("user:ada", "viewer")
    execution, wait = api.started()
    path = route.path.format(
        other=execution,
        sha256="0" * 64,
        execution=execution,
        approval=wait,
        grant=wait,
        environment=_environment(api, execution) if "{environment}" in route.path else "",
        flow="expense",
        name=api.records.tokens()[0].name,
    )
    data = json.loads(json.dumps(BODIES.get(route.answer.__name__, {})).replace("WAIT", wait))
    allowed = ALLOWED[route.method, route.path]

    def is_refused(token: str | None) -> bool:
        """Whether the user may not; an approval that is addressed to others is another matter."""
        response = api.response(route.method, path, data if route.body else None, token=token)
        lacks = "does not have the right" in response.text and response.status_code == 403
        return lacks or response.status_code == 401

    for role, user in ROLES.items():
        assert is_refused(api.token(user)) is (role not in allowed), role
        assert is_refused(api.token(OWNER, role)) is (role not in allowed), f"limited to {role}"
    open_to_all = route.need == "public"
    assert is_refused(None) is not open_to_all
    assert is_refused("fe_unknown") is not open_to_all
    assert is_refused(api.token("user:nobody")) is not (open_to_all or route.need == "anyone")


@pytest.mark.parametrize("damage", [b"", b" \n", b"fe_\n", b"\xff\x00"])
def test_a_damaged_token_file_gives_nobody_access(tmp_path: Path, damage: bytes) -> None:
    with closing(ServerRecords(str(tmp_path))) as records:
        first, path = records.local_token()
        assert records.local_token() == (first, path)
        Path(path).write_bytes(damage)
        second, _ = records.local_token()

        assert second.startswith("fe_")
        assert len(second) == len(first)
        assert second != first
        assert (Path(path).read_text().strip(), records.local_token()[0]) == (second, second)
        assert Path(path).stat().st_mode & 0o777 == 0o600


def _environment(api: Api, execution: str) -> str:
    """Return the id of an open environment of an execution."""
    spec = {"kind": "files", "scope": "execution", "owner_id": execution}
    return api.engine.environments.ensure(spec).id


def test_an_approval_needs_the_right_and_to_be_addressed(api: Api) -> None:
    _, wait = api.started()
    path = f"/v1/approvals/{wait}/decision"

    refused = api("POST", path, {"choice": "approve"}, token=api.token("user:ada"), code=403)
    assert "assignees are user:ben, group:finance" in refused["detail"]
    refused = api("POST", path, {"choice": "approve"}, token=api.token("user:vera"), code=403)
    assert "does not have the right 'decide'" in refused["detail"]
    scoped = api.token("user:ben", "viewer")
    api("POST", path, {"choice": "approve"}, token=scoped, code=403)
    carla = api.token("user:carla", "approver", "expense")
    assert api("POST", path, {"choice": "approve"}, token=carla, code=200)["by"] == "user:carla"


def test_without_the_right_content_nothing_of_a_flow_is_shown(api: Api) -> None:
    execution, wait = api.started(471147114711)
    vera, cora = api.token("user:vera"), api.token("user:cora")
    paths = [
        f"/v1/executions/{execution}",
        f"/v1/executions/{execution}/why",
        "/v1/executions?status=waiting",
        f"/v1/approvals/{wait}",
        "/v1/approvals",
    ]

    for path in paths:
        text = json.dumps(api("GET", path, token=vera, code=200))
        assert "471147114711" not in text, path
        assert "Pay" not in text, path
    assert "471147114711" in json.dumps(api("GET", paths[0], token=cora))
    assert (
        api("GET", f"/v1/approvals/{wait}", token=api.token("user:ben"))["title"]
        == "Pay 471147114711?"
    )
    api("GET", f"/v1/executions/{execution}/events", token=vera, code=403)
    api("GET", f"/v1/executions/{execution}/events", token=cora, code=200)


def test_what_a_user_may_not_see_does_not_exist(api: Api) -> None:
    parcel = api.engine.start(api.flows[1], {"order": "A17"})
    execution, _ = api.started()
    sam = api.token("user:sam")

    unseen = api("GET", f"/v1/executions/{parcel}", token=sam, code=404)
    absent = api("GET", "/v1/executions/absent", token=sam, code=404)
    assert unseen["detail"].replace(parcel, "absent") == absent["detail"]
    [item] = api("GET", "/v1/executions", token=sam)["items"]
    assert item["execution"] == execution
    assert [flow["flow"] for flow in api("GET", "/v1/flows", token=sam)["items"]] == ["expense"]
    for flow in ("parcel", "absent", api.flows[1].form):
        api("POST", "/v1/executions", {"flow": flow, "inputs": {"order": "1"}}, token=sam, code=404)
    key = {"key": "A17"}
    unseen = api("POST", "/v1/signals/arrived", key, token=sam, code=404)
    absent = api("POST", "/v1/signals/absent", key, token=sam, code=404)
    assert unseen["detail"].replace("arrived", "absent") == absent["detail"]


def test_prefixes_are_those_of_the_ids_that_a_user_sees(api: Api) -> None:
    cora, own = api.token("user:cora"), "same-1"
    api.engine.start(api.flows[1], {"order": "1"}, id="same-2")
    assert api("GET", "/v1/executions/same-", token=cora, code=404)
    api.engine.start(api.flows[0], {"amount": 1}, id=own)
    assert api("GET", "/v1/executions/same-", token=cora, code=200)["execution"] == own
    api("GET", "/v1/executions/same-", code=404)
    [wait] = api.engine.resume(own).waits
    api.engine.resume("same-2")
    assert api("GET", f"/v1/approvals/{wait['id'][:4]}", token=cora, code=200)["id"] == wait["id"]


def test_prefixes_of_hashes_are_those_of_the_flows_that_a_user_sees(
    api: Api, limits: Limits
) -> None:
    limits(deployed_flows, SHORTEST_HASH=0)  # the empty text begins all of them
    cora = api.token("user:cora")
    for item in api("GET", "/v1/flows", code=200)["items"]:
        flow, hash = item["flow"], item["hash"]
        code = 200 if flow == "expense" else 404
        for name in (flow, hash, hash[:12]):
            found = api("GET", f"/v1/flows/{name}", token=cora, code=code)
            assert found.get("hash", hash) == hash
        assert api.engine.flows.find("", flows=partial(eq, flow)).id == flow
    with pytest.raises(UsageError, match="fits several deployed flows"):
        api.engine.flows.find("")
    with pytest.raises(NotFound):
        api.engine.flows.find("", flows=partial(eq, "none"))


def test_two_executions_are_compared_by_who_may_see_both(api: Api) -> None:
    parcel = api.engine.start(api.flows[1], {"order": "A17"})
    execution, _ = api.started()
    other, _ = api.started(81)
    cora = api.token("user:cora")

    found = api("GET", f"/v1/executions/{execution}/diff/{other}", token=cora, code=200)
    assert found["parting"]["what"] == "inputs"
    api("GET", f"/v1/executions/{execution}/diff/{parcel}", token=cora, code=404)
    api("GET", f"/v1/executions/{parcel}/diff/{execution}", token=cora, code=404)


def test_a_page_of_a_user_who_sees_few_continues(api: Api) -> None:
    for number in range(9):
        flow, inputs = (0, {"amount": 1}) if number in (0, 8) else (1, {"order": str(number)})
        api.engine.start(api.flows[flow], inputs, id=f"e{number}")
    sam, seen, after = api.token("user:sam"), [], ""
    while after is not None:
        page = api("GET", f"/v1/executions?limit=1{after and '&after=' + after}", token=sam)
        seen += [item["execution"] for item in page["items"]]
        after = page["next"]
    assert seen == ["e8", "e0"]


@pytest.mark.parametrize(
    "headers",
    [
        {"x-forwarded-user": "owner", "x-remote-user": "owner"},
        {"authorization": "Basic b3duZXI6"},
        {"authorization": f"Bearer {LOCAL}x"},
        {"authorization": "Bearer "},
        {"cookie": f"token={LOCAL}"},
    ],
)
def test_identity_comes_from_the_credential_alone(api: Api, headers: dict[str, str]) -> None:
    response = api.response("GET", "/v1/me", token=None, headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"


def test_nobody_names_a_user_in_a_request(api: Api) -> None:
    _, wait = api.started()
    for field in ("by", "as", "user", "entered_by", "via", "resume"):
        body = {"choice": "approve", field: "user:ben"}
        assert (
            f"'{field}'" in api("POST", f"/v1/approvals/{wait}/decision", body, code=422)["detail"]
        )
        api("GET", f"/v1/approvals?{field}=user:ben", code=400)


def test_a_token_is_refused_once_it_is_revoked_or_expired(api: Api) -> None:
    vera = api.token("user:vera")
    name = api("GET", "/v1/me", token=vera, code=200)["token"]
    [item] = api("GET", "/v1/tokens")["items"]
    assert item["used_at"]
    assert vera not in json.dumps(item)

    api("POST", f"/v1/tokens/{name}/revoke", {}, code=200)
    api("GET", "/v1/me", token=vera, code=401)
    expired = api.records.create_token("old", "user:vera", None, OWNER, 1, expires=2)
    api("GET", "/v1/me", token=expired, code=401)
    stored = Path(api.records.folder, "server.db").read_bytes()
    stored += Path(api.records.folder, "server.db-wal").read_bytes()
    assert vera.encode() not in stored
    assert vera.split("_", 2)[2].encode() not in stored


# Shows V23
def test_an_address_that_guesses_is_slowed_down(api: Api) -> None:
    for _ in range(20):
        api("GET", "/v1/me", token="fe_guess", code=401)
    response = api.response("GET", "/v1/me", token="fe_guess")
    assert response.status_code == 429
    assert int(response.headers["retry-after"]) > 0
    api("GET", "/v1/me", code=200)  # guesses of others must not lock out who has a credential


# Shows V22
def test_changes_and_refusals_are_on_record(api: Api) -> None:
    _, wait = api.started()
    vera = api.token("user:vera")
    api("POST", f"/v1/approvals/{wait}/decision", {"choice": "approve"}, token=vera, code=403)
    api("POST", f"/v1/approvals/{wait}/decision", {"choice": "approve"}, token=None, code=401)
    api("GET", "/v1/me", headers={"host": "evil.example"}, code=421)
    api("GET", "/v1/executions", code=200)

    items = api("GET", "/v1/audit", code=200)["items"]
    seen = [(item["method"], item["status"], item["user"]) for item in items]
    assert seen == [
        ("GET", 421, None),
        ("POST", 401, None),
        ("POST", 403, "user:vera"),
        ("POST", 201, OWNER),
    ]
    assert "does not have the right 'decide'" in items[2]["why"]
    assert items[2]["address"] == "127.0.0.1"
    page = api("GET", "/v1/audit?limit=1")
    assert api("GET", f"/v1/audit?limit=1&before={page['next']}")["items"][0]["status"] == 401


# Shows V22
def test_a_flood_without_a_credential_does_not_fill_the_record(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "_now", lambda: 0)  # within a minute
    for _ in range(STRANGERS + 10):
        api("GET", "/v1/me", token=None, code=401)
    api("POST", "/v1/executions", {"flow": "none"}, code=404)

    items = api("GET", "/v1/audit?limit=500")["items"]
    assert [item["status"] for item in items] == [404] + [401] * STRANGERS


def test_a_project_gives_nobody_access(api: Api, tmp_path: Path) -> None:
    (tmp_path / ".flowengine").mkdir()
    (tmp_path / ".flowengine" / "settings.yaml").write_text("access: [{who: [eve], role: admin}]\n")
    with pytest.raises(UsageError, match="a project cannot give access"):
        Engine()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "access must be a list, not {}"),
        ("[{who: [ben], role: king}]", "'0.role' must be one of"),
        ("[{who: ben, role: viewer}]", "'0.who' must be a list"),
        ("[{who: [ben], role: viewer, flow: x}]", "'0' has no 'flow'"),
        ("[{who: [ben], role: viewer, content: 1}]", "'0.content' must be true or false, not 1"),
    ],
)
def test_access_that_is_not_valid_is_refused(
    api: Api, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "config" / "flowengine" / "settings.yaml").write_text(f"access: {text}\n")
    with pytest.raises(UsageError, match=said):
        Engine()


def test_conflicts_quote_nothing_to_users_who_do_not_see_the_data(api: Api) -> None:
    sam, owner = api.token("user:sam"), api.token("user:owner")
    start = {"flow": "expense", "inputs": {"amount": 80, "reason": "secret"}, "id": "e1"}
    api("POST", "/v1/executions", start, token=owner, code=201)
    other = {**start, "inputs": {"amount": 81}}
    told = api("POST", "/v1/executions", other, token=sam, code=409)
    assert told["detail"] == "the id e1 is taken"
    assert "'amount' is 80 there" in api("POST", "/v1/executions", other, token=owner)["detail"]
    api("POST", "/v1/executions", {"flow": "parcel", "inputs": {"order": "A1"}, "id": "p1"})
    told = api("POST", "/v1/executions", {**start, "id": "p1"}, token=sam, code=409)
    assert told["detail"] == "the id p1 is taken"

    api.engine.resume("p1")
    signal = {"data": {"price": 471147114711}, "id": "m1"}
    api("POST", "/v1/executions/p1/signals/arrived", signal, code=202)
    otto = api.token("user:otto")
    told = api(
        "POST", "/v1/executions/p1/signals/arrived", {**signal, "data": {}}, token=otto, code=409
    )
    assert "471147114711" not in str(told)

    [wait] = api.engine.resume("e1").waits
    path = f"/v1/approvals/{wait['id']}/decision"
    api(
        "POST", path, {"choice": "reject", "comment": "hush"}, token=api.token("user:ben"), code=200
    )
    carla, kim = api.token("user:carla"), api.token("user:ben", "approver", "expense")
    for token in (carla, kim):  # they may decide, so they see what was decided
        assert "hush" in api("POST", path, {"choice": "approve"}, token=token, code=409)["detail"]
    dan = api.token("user:ada", "approver", "expense")
    told = api("POST", path, {"choice": "approve"}, token=dan, code=409)
    assert "hush" not in str(told)
    assert told["detail"] == f"{wait['id']} was already decided"


def test_a_search_finds_executions_by_what_the_user_may_see_of_them(api: Api) -> None:
    """Without `content`: by id, flow and labels. Titles and errors are not shown, nor found."""
    id = api.engine.start(api.flows[0], {"amount": 4711}, labels={"team": "sales"})
    blind, seeing = api.token(OWNER, "viewer"), api.token(OWNER, "viewer", content=True)
    for token, search, is_found in (
        *((LOCAL, search, True) for search in ("4711", "amount 47", "sales", "expense", id[:-1])),
        *((LOCAL, search, False) for search in ("4712", '"', "expense OR 4711", "* NEAR (")),
        *((blind, search, True) for search in ("sales", "team=sales", "expense", id[:-1], " ")),
        *((blind, search, False) for search in ("4711", "amount", "sales 4711")),
        (seeing, "4711", api.engine.executions.summary(id).get("key_inputs") == {"amount": 4711}),
    ):
        listed = api("GET", f"/v1/executions?search={quote(search)}", token=token, code=200)
        ids = [item["execution"] for item in listed["items"]]
        assert ids == [id] * is_found, (search, is_found)
        for item in listed["items"]:
            assert ("key_inputs" in item) is (token != blind)
    assert api("GET", "/v1/counts", token=blind, code=200)["counts"]["running"] == 1
    assert api("GET", "/v1/counts?flow=none", code=200)["counts"]["running"] == 0
    other = api.token(OWNER, "viewer", "parcel")
    assert set(api("GET", "/v1/counts", token=other, code=200)["counts"].values()) == {0}
    found = api("GET", "/v1/counts?flow=expense", token=other, code=200)["counts"]
    assert set(found.values()) == {0}
    api("GET", f"/v1/executions?search={'x' * 201}", code=400)
