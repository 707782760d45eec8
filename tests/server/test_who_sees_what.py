# Shows V21
"""Nothing that a user may not see is in any answer or error, of any route, page or protocol."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import httpx2
import pytest

from flowengine import Engine
from flowengine.page import site
from flowengine.page.site import PAGES, Site
from flowengine.server.application import Application
from flowengine.server.guard import Hosts
from flowengine.server.routes import ROUTES
from flowengine.server.talk_routes import talk_routes
from tests.replacing import Limits
from tests.server.api import HOST, LOCAL, Api

DATA, FLOW, ID = "zdata", "zflow", "zid"
"""Beginnings of texts: data of executions, what flows declare, and ids of executions."""
ASKING = """
flowengine: 1
id: zflow
inputs: {amount: {type: number, maximum: 99}, note: {type: string, default: ""}}
state: {zflow_state: {type: string, default: zdata_initial}}
signals: {placed: {data: {type: object}, key: "${{ inputs.note }}"}}
start:
  - {schedule: "0 9 * * *", with: {amount: 1, note: "${{ string(execution.labels.zdata_label) }}"}}
  - {signal: placed, with: {amount: 1, note: "${{ 'zdata_' + signal.data.text }}"}}
steps:
  - id: ask
    approval:
      title: zdata_title ${{ inputs.note }}
      assignees: ["user:ben"]
      claim: CLAIM
      subject: {zdata_field: "${{ inputs.note }}"}
      edit: [zdata_field]
      choices:
        - {id: approve, counts_as: approve}
        - {id: zdata_choice, counts_as: reject, label: zdata_label}
      form:
        type: object
        properties: {zdata_form: {type: string, enum: [zdata_enum, other]}}
        required: [zdata_form]
outputs: {chosen: "${{ steps.ask.outcome }}"}
"""
FAILING = """
flowengine: 1
id: zflow_failing
inputs: {note: {type: string, default: ""}}
steps:
  - {id: stop, fail: {type: Refused, message: "zdata_error ${{ inputs.note }}"}}
"""
WAITING = """
flowengine: 1
id: zflow_waiting
inputs: {order: {type: string}}
signals:
  arrived: {data: {type: object}, key: "${{ inputs.order }}"}
  price: {data: {type: string, enum: [zflow_word]}, key: "${{ inputs.order }}"}
start: [{signal: arrived, with: {order: "${{ signal.key }}"}}]
steps:
  - {id: come, wait: {signal: arrived}}
  - {id: again, wait: {signal: price}}
"""
PARENT = """
flowengine: 1
id: zflow_parent
flows: {other: {steps: [{id: rest, wait: {for: 1h}}]}}
steps: [{id: begin, flow: other, background: true}]
"""
LOCKED = """
flowengine: 1
id: zflow_locked
steps:
  - {id: g, lock: {key: shared, scope: global}, group: [{id: ask, approval: {title: Go?}}]}
"""
KEYED = """
flowengine: 1
id: zflow_keyed
inputs: {note: {type: string}, fails: {type: boolean}}
concurrency: {key: "zdata_place ${{ inputs.note }}", max: 1, then: reject}
flows: {inner: {steps: [{id: ask, approval: {title: Go?, assignees: ["user:ben"],
  batch: "zdata_batch ${{ inputs.n }}"}}],
  inputs: {n: {type: string}}}}
steps:
  - id: each
    lock: {key: "zdata_lock ${{ inputs.note }}"}
    map: {over: [1, 2], key: "${{ 'zdata_item' + string(item) }}"}
    group:
      - {id: stop, when: "${{ inputs.fails }}", fail: {type: Refused, message: no}}
      - {id: call, flow: inner, with: {n: "${{ key }}"}}
"""
OTHER = """
flowengine: 1
id: other
inputs: {name: {type: string, default: x}}
signals: {elsewhere: {key: "${{ inputs.name }}"}}
start: [{signal: elsewhere, with: {name: "${{ signal.key }}"}}]
steps:
  - {id: ask, approval: {title: Well?, assignees: ["user:ben"]}}
  - {id: g, lock: {key: shared, scope: global}, group: [{id: more, approval: {title: Go?}}]}
"""
KINDS = ("approval", "signal", "timer")
WHOLE = ("viewer", "starter", "approver", "operator")


@pytest.fixture
def flows() -> tuple[str, ...]:
    claimed = ASKING.replace("id: zflow\n", "id: zflow_claimed\n")
    claimed = claimed.replace("CLAIM", "true").replace("placed", "taken")
    return (
        *(ASKING.replace("CLAIM", "false"), claimed, FAILING, WAITING, PARENT, LOCKED, OTHER),
        KEYED,
    )


class World:
    """A server with marked executions in many states, and one client of all its surfaces."""

    def __init__(self, api: Api) -> None:
        self.api = api
        asking, claimed, failing, waiting, parent, locked, other, keyed = api.flows
        engine = api.engine
        note = {"note": "zdata_input"}
        for name, flow, inputs in (
            ("asks", asking, {"amount": 7, **note}),
            ("asked", asking, {"amount": 7, **note}),
            ("claimed", claimed, {"amount": 7, **note}),
            ("failed", failing, note),
            ("waits", waiting, {"order": "zdata_key"}),
            ("began", waiting, {"order": "known"}),
            ("keyed-1", keyed, {"fails": True, **note}),
            ("keyed-2", keyed, {"fails": False, **note}),
        ):
            engine.run(flow, inputs, id=f"zid-{name}", labels={"team": "sales"})
        engine.run(parent, {}, id="began-it")  # of an execution of the flow 'other'
        engine.run(locked, {}, id="zid-lock")
        engine.run(other, {}, id="own-1")
        with Engine(api.folder / "store", user="user:ben", linger=0) as patient:
            patient.approvals.decide(self.wait("own-1"), "approve")  # it waits for the lock
        ben = engine.acting_as("user:ben", via="test")
        answer: Any = {"comment": "zdata_comment", "form": {"zdata_form": "zdata_enum"}}
        ben.approvals.decide(self.wait("zid-asked"), "approve", **answer)
        ben.approvals.claim(self.wait("zid-claimed"))
        engine.signal("arrived", {"price": "zdata_sent"}, execution="zid-began", id="m1")
        self.executions = [item["execution"] for item in engine.executions.list().items]
        waits = engine.approvals.list(status="all", kinds=KINDS).items
        self.waits = [wait["id"] for wait in waits]
        self.hidden = [wait["id"] for wait in waits if wait["flow"] != "other"]
        self.application = Application(
            engine,
            api.records,
            Hosts(frozenset({HOST}), ()),
            LOCAL,
            lambda it: [
                *Site(it).routes(), *talk_routes(it)
            ],
            per_minute=1_000_000,
        )  # fmt: skip

    def wait(self, execution: str) -> str:
        return str(self.api.engine.approvals.list(execution=execution, status="all").items[0]["id"])

    def requests(self) -> Iterator[tuple[str, str, Any]]:
        """Yield requests of all routes and pages, first those that only read."""
        for route in (*ROUTES, *PAGES):
            if route.method == "GET":
                yield from (("GET", path, None) for path in self._paths(route.path))
        for query in (
            "/v1/executions?label=team=sales", "/v1/executions?flow=zflow", "/v1/events?after=0",
            "/v1/approvals?status=all", "/v1/approvals?execution=zid-", "/v1/flows?versions=true",
            "/v1/approvals?execution=zid-asks", "/v1/executions/zid-a", "/v1/schedules?flow=zflow",
            "/v1/environments?execution=zid-asks", "/v1/grants?execution=zid-asks",
            "/v1/executions/zid-keyed-2?step=each[zdata_item1]", "/v1/approvals?batch=zdata_batch",
            "/v1/executions/zid-asks?step=absent", "/executions?search=zid-",
            "/executions?search=zid-asks",
            "/approvals?for=all&status=closed", "/approvals?for=all", "/executions/own-1/compare"
            "?with=zid-asks", "/bulk/executions?do=retry&all=1", "/executions/zid-asks/fork?at=ask",
            "/bulk/approvals?all=1&choice=approve",
        ):  # fmt: skip
            yield "GET", query, None
        for route in ROUTES:
            if route.method == "POST" and not route.uploads:
                for body in BODIES.get(route.answer.__name__, [{}]):
                    text = json.dumps(body)
                    filled = text if "WAIT" not in text else text.replace("WAIT", self.waits[0])
                    yield from (
                        ("POST", path, json.loads(filled)) for path in self._paths(route.path)
                    )
        yield "POST", "/ag-ui/zflow", {
            "threadId": "t", "runId": "r", "state": {}, "messages": [], "tools": [], "context": [],
            "forwardedProps": {"inputs": {"amount": 1000}},
        }  # fmt: skip

    def _paths(self, path: str) -> set[str]:
        ids = self.executions if "{execution}" in path else [""]
        waits = self.waits if "{approval}" in path or "{grant}" in path else [""]
        flows = ["zflow", "zflow_waiting", "other"] if "{flow}" in path else [""]
        signals = ["arrived", "pric", "placed"] if "signals/{name}" in path else ["absent"]
        return {
            path.format(
                execution=id, other="zid-asks", approval=wait, grant=wait, flow=flow, name=name,
                environment="absent", sha256="0" * 64,
            )
            for id in ids for wait in waits for flow in flows for name in signals
        }  # fmt: skip

    async def texts(self, token: str, renamed: Callable[[str], str] = str) -> list[tuple[str, str]]:
        """Return each request of a user with the whole answer.

        Args:
            token: That of the user.
            renamed: Changes the names in the requests.
        """
        identity = self.application.identity
        principal = identity.of(f"Bearer {token}", "")
        secret = identity.begin_session(principal)
        found = identity.of_session(secret)
        assert found is not None
        cookie = {"cookie": f"flowengine_session={secret}"}
        bearer = {"authorization": f"Bearer {token}"}
        seen = []
        transport = httpx2.ASGITransport(app=self.application.asgi)
        async with httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
            for method, old_path, old_body in self.requests():
                path, body = renamed(old_path), json.loads(renamed(json.dumps(old_body)))
                headers = bearer if path.startswith(("/v1", "/ag-ui", "/openai")) else cookie
                answer = await client.request(method, path, json=body, headers=headers)
                place = answer.headers.get("location", "")
                seen.append((f"{method} {path} {json.dumps(body)}", f"{place} {answer.text}"))
            for page in PAGES:
                if page.method == "POST" and "cancel" not in page.path:
                    for path in map(renamed, self._paths(page.path)):
                        picked = map(renamed, (*self.executions, *self.waits))
                        form = {**FORMS.get(page.path, {}), **{f"pick.{id}": "on" for id in picked}}
                        form["form_token"] = found[1].form_token
                        answer = await client.post(path, data=form, headers=cookie)
                        seen.append((f"POST {path} {json.dumps(form)}", answer.text))
        return seen


BODIES: dict[str, list[Any]] = {
    "check_flow": [{"text": "id: x"}],
    "deploy": [{"text": "id: x"}],
    "trigger": [{}, {"schedule": "absent"}],
    "backfill": [{"since": "2026-11-20T00:00:00Z", "until": "2026-11-23T00:00:00Z"}],
    "start_execution": [
        {"flow": "zflow", "inputs": {"amount": 8}, "id": "zid-asks"},
        {"flow": "zflow", "inputs": {"amount": 7, "note": "zdata_input"}, "id": "zid-asks"},
        {"flow": "zflow", "inputs": {"amount": 1000}},
        {"flow": "other", "id": "zid-asks"},
        {"flow": "zflow_absent"},
    ],
    "resume": [{"on_crash": "fail"}],
    "retry": [{}, {"step": "absent"}, {"step": "each"}, {"flow": "zflow"}],
    "fork": [
        {"from_step": "absent"}, {"from_step": "ask", "set": {"absent": 1}},
        {"from_step": "ask", "set": {"zflow_state": 1}}, {"from_step": "ask", "id": "zid-failed"},
        {"from_step": "ask", "flow": "zflow_failing"}, {"from_step": "each"},
    ],
    "upgrade": [
        {"flow": "zflow", "mapping": {"state": {"absent": "absent"}}},
        {"flow": "zflow_waiting", "mapping": {"values": {"state": {"absent": 1}}}, "check": True},
    ],
    "send_signal": [{"data": {}, "id": "m1"}, {"data": "no", "id": "m2"}],
    "send_keyed_signal": [
        {"key": "zdata_key", "data": {}}, {"key": "new", "data": {"text": "x"}},
        {"key": "known", "data": {}, "id": "m1"}, {"key": "odd", "data": {}},
    ],
    "decide_many": [
        {"decisions": [{"wait": "WAIT", "choice": "approve"}, {"wait": "absent", "choice": "x"}]}
    ],
    "decide": [
        {"choice": "approve"}, {"choice": "absent"}, {"choice": "approve", "form": {"x": 1}},
        {"choice": "approve", "edit": {"absent": 1}, "comment": "mine"},
        {"choice": "approve", "form": {"zdata_form": {"path": "/etc/passwd"}}},
    ],
    "delegate": [{"to": "user:dora"}, {"to": "group:x"}],
    "create_token": [{"name": "new"}],
    "decode": [{"payloads": []}],
    "encode": [{"payloads": []}],
}  # fmt: skip
FORMS: dict[str, dict[str, str]] = {
    "/executions/{execution}/fork": {"from_step": "ask", "flow": "", "set.zflow_state": "x"},
    "/bulk/executions": {"do": "retry"},
    "/bulk/approvals": {"choice": "approve"},
    "/approvals/{approval}/delegate": {"to": "user:dora"},
}


@pytest.fixture
def world(api: Api) -> World:
    return World(api)


def marked(answers: list[tuple[str, str]], *markers: str) -> str:
    """Return the answers that have a marker which their requests do not have."""
    return "\n".join(
        f"{request}: {text[max(0, text.find(marker) - 120) : text.find(marker) + 60]}"
        for request, answer in answers
        for text in [_without(answer, request)]
        for marker in markers
        if marker in text
    )


def _without(text: str, request: str) -> str:
    """Return an answer without the marked words that are in the request."""
    words = re.findall(r"\bz(?:data|flow|id)[\w-]*|began-it|\b[0-9a-f]{16}\b", request)
    for word in sorted({*words}, key=len, reverse=True):
        text = text.replace(word, "")
    return text


@pytest.mark.endurance
@pytest.mark.parametrize("role", WHOLE)
def test_without_content_no_data_of_a_flow_is_told(world: World, role: str) -> None:
    answers = asyncio.run(world.texts(world.api.token("user:ada", role)))
    assert marked(answers, DATA) == ""


@pytest.mark.endurance
@pytest.mark.parametrize("role", [*WHOLE, "admin"])
def test_without_see_what_is_hidden_does_not_exist(world: World, role: str, limits: Limits) -> None:
    limits(site, _PATIENCE=inf)  # the second time, more of its own work is ready
    waits = {wait: wait[::-1] for wait in world.hidden}
    others = {**waits, "zid-": "zie-", "zflow": "zfloz", "zdata_key": "zdata_kez"}

    def renamed(text: str) -> str:
        if '"id": "zid-' in text:
            return text  # the id of a new execution is taken
        for name, other in others.items():
            text = text.replace(name, other)
        return text

    has_content = role in ("operator", "admin")
    token = world.api.token("user:ada", role, "other", content=has_content)
    # A journal has the id of the execution that has started another one.
    parent = [] if has_content else ["began-it"]
    hidden = asyncio.run(world.texts(token))
    assert marked(hidden, DATA, FLOW, ID, *waits, *parent) == ""
    absent = asyncio.run(world.texts(token, renamed))
    for (request, told), (_, without) in zip(hidden, absent, strict=True):
        if renamed(request) != request and "own-1" not in request:
            assert _lasting(renamed(told)) == _lasting(without), request


def _lasting(text: str) -> str:
    """Return an answer without what differs each time: times, numbers, ids of forms."""
    return re.sub(r"value=\"[\w-]+\"|\d+|[0-9a-z]{26}", "", text)


@pytest.mark.endurance
def test_who_may_see_everything_is_told_each_marker(world: World) -> None:
    """Otherwise the tests above would show nothing."""
    texts = "".join(text for _, text in asyncio.run(world.texts(LOCAL)))
    names = ("title", "input", "comment", "form", "enum", "choice", "error", "sent", "key")
    missing = [name for name in names if f"zdata_{name}" not in texts]
    assert missing == []


def test_an_item_is_named_without_its_key(api: Api) -> None:
    keyed = api.flows[-1]
    api.engine.run(keyed, {"note": "a", "fails": True}, id="it")
    operator, path = api.token("user:ada", "operator"), "/v1/executions/it"
    steps = api("GET", path, token=operator)["steps"]
    [shown] = [step["address"] for step in steps if step["step"] == "stop"][:1]
    assert re.fullmatch(r"each\[~[0-9a-f]{8}\]/stop", shown)
    [step] = api("GET", f"{path}?step={shown}", token=operator, code=200)["steps"]
    assert step["address"] == shown
    [real] = api("GET", path)["steps"][1:2]
    for guessed in (real["address"], "each[zdata_item9]/stop"):
        refused = api("GET", f"{path}?step={guessed}", token=operator, code=404)
        assert "zdata" not in str(refused)
    api.engine.run(keyed, {"note": "b", "fails": True}, id="own")  # with keys that were guessed
    own = {step["address"] for step in api("GET", "/v1/executions/own", token=operator)["steps"]}
    assert own.isdisjoint(step["address"] for step in steps if "[" in step["address"])
    api("POST", f"{path}/retry", {"step": shown}, token=operator, code=202)


def test_inputs_of_a_schedule_are_quoted_to_those_who_see_its_flow(api: Api) -> None:
    body = {"since": "2026-11-20T00:00:00Z", "until": "2026-11-20T12:00:00Z"}
    errors = {}
    for token in (LOCAL, api.token("user:ada", "starter")):
        [item] = api("POST", "/v1/schedules/zflow/backfill", body, token=token, code=201)["items"]
        errors[token] = item["error"]
        refused = api("POST", "/v1/schedules/zflow/trigger", {}, token=token, code=422)
        assert refused["detail"] == item["error"]
    told, plain = errors.values()
    assert "zdata_label" in told
    assert plain == "'start' on schedule '0 9 * * * UTC': its inputs are refused"
