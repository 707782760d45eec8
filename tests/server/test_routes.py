# Shows F50, V30, V31
"""What each route does: executions, signals, approvals, and what a program gets for an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.server.api import EXPENSE, OWNER, Api


def test_an_execution_is_started_decided_and_read_and_the_server_drives_nothing(api: Api) -> None:
    started = api("POST", "/v1/executions", {"flow": "expense", "inputs": {"amount": 80}}, code=201)
    id = started["execution"]
    assert api("GET", f"/v1/executions/{id}", code=200)["status"] == "recorded"
    api.engine.resume(id)
    [wait] = api("GET", f"/v1/approvals?execution={id}", code=200)["items"]
    assert wait["title"] == "Pay 80?"

    ben = api.token("user:ben")
    path = f"/v1/approvals/{wait['id']}/decision"
    answer = {"choice": "approve", "edit": {"amount": 60}, "comment": "less"}
    decided = api("POST", path, answer, token=ben, code=200)

    assert (decided["by"], decided["via"], decided["first"]) == ("user:ben", "rest", True)
    assert api("POST", path, answer, token=ben, code=200)["first"] is False
    other = api("POST", path, {"choice": "reject"}, token=api.token("user:carla"), code=409)
    assert other["code"] == "Conflict"
    assert other["standing"]["choice"] == "approve"
    assert api("GET", f"/v1/executions/{id}")["status"] == "interrupted"
    assert [due.execution for due in api.engine.due()] == [id]
    api.engine.resume(id)
    assert api("GET", f"/v1/executions/{id}")["outputs"] == {"choice": "approve"}


# Shows V10
def test_a_flow_is_named_by_version_and_hash_too_and_never_by_a_path(api: Api) -> None:
    flow = api("GET", "/v1/flows/expense", code=200)
    for name in (flow["hash"], f"expense@{flow['version']}"):
        api("POST", "/v1/executions", {"flow": name, "inputs": {"amount": 1}}, code=201)
    api.engine.flows.undeploy("expense")
    for name in (flow["hash"], "expense"):  # the store still keeps it, for its executions
        api("POST", "/v1/executions", {"flow": name, "inputs": {"amount": 1}}, code=404)

    for path in ("flow0.yaml", str(api.engine.store.location), "../flow0.yaml"):
        api("POST", "/v1/executions", {"flow": path, "inputs": {"amount": 1}}, code=404)


def test_an_input_that_is_a_path_on_the_server_is_refused(api: Api, tmp_path: object) -> None:
    flow = EXPENSE.replace("amount: {type: number}", "amount: {type: string, format: path}")
    with open(f"{tmp_path}/paths.yaml", "w") as file:
        file.write(flow.replace("id: expense", "id: expense_paths").replace("edit: [amount]", ""))
    api.engine.flows.deploy(f"{tmp_path}/paths.yaml")

    body = {"flow": "expense_paths", "inputs": {"amount": "/etc/passwd"}}
    problem = api("POST", "/v1/executions", body, code=422)
    assert "path on the server's machine" in problem["detail"]
    assert problem["field"] == "amount"


def test_lists_are_read_page_by_page(api: Api) -> None:
    for number in range(5):
        api.engine.start(api.flows[0], {"amount": number}, id=f"e{number}")
    seen, after = [], ""
    while after is not None:
        page = api("GET", f"/v1/executions?limit=2{after and '&after=' + after}", code=200)
        seen += [item["execution"] for item in page["items"]]
        after = page["next"]

    assert seen == ["e4", "e3", "e2", "e1", "e0"]
    assert api("GET", "/v1/executions?after=x", code=400)["hint"] == (
        "give `next` of the page before"
    )


def test_signals_go_to_an_execution_and_by_key_and_start_one(api: Api) -> None:
    body = {"key": "A17", "data": {"n": 1}, "id": "m1"}
    first = api("POST", "/v1/signals/arrived", body, code=202)
    again = api("POST", "/v1/signals/arrived", body, code=202)

    assert (first["began"], first["first"], again["first"]) == (True, True, False)
    id = first["execution"]
    api.engine.resume(id)
    sent = api("POST", f"/v1/executions/{id}/signals/arrived", {"data": {"n": 2}}, code=202)
    assert sent["execution"] == id
    problem = api("POST", f"/v1/executions/{id}/signals/left", {}, code=422)
    assert problem["hint"] == "signals: arrived"


BROKEN = """
flowengine: 1
id: broken
version: "1"
state: {more: {type: integer, default: 1}, file: {type: string, format: path, default: /}}
steps:
  - {id: stop, when: "${{ state.more == 1 }}", fail: {type: Nope, message: no}}
  - {id: go, approval: {title: Go?}}
"""


def test_a_failed_execution_is_retried_and_forked_and_the_server_drives_neither(
    api: Api, tmp_path: Path
) -> None:
    (tmp_path / "broken.yaml").write_text(BROKEN)
    id = api.engine.run(tmp_path / "broken.yaml").execution
    path = f"/v1/executions/{id}"

    fork = {"from_step": "stop", "set": {"more": 2}, "id": "fork"}
    assert api("POST", f"{path}/fork", fork, code=201) == {"execution": "fork"}
    assert api("GET", "/v1/executions/fork")["forked_from"] == f"{id} at stop"
    assert "already" in api("POST", f"{path}/fork", fork, code=409)["detail"]
    fork["set"] = {"file": "/etc/passwd"}
    assert "path on the server" in api("POST", f"{path}/fork", fork, code=422)["detail"]
    assert api("POST", f"{path}/fork", {"from_step": "other"}, code=404)["code"] == "NotFound"

    fixed = BROKEN.replace("fail: {type: Nope, message: no}", "output: 1")
    api.engine.flows.deploy(_file(tmp_path, fixed))
    assert api("POST", f"{path}/retry", {"flow": "broken"}, code=202) == {"execution": id}
    assert "only a failed execution" in api("POST", f"{path}/retry", {}, code=409)["detail"]
    assert api("GET", path)["status"] == api("GET", "/v1/executions/fork")["status"] == "waiting"


def test_an_open_execution_is_moved_to_another_version(api: Api, tmp_path: Path) -> None:
    id, _ = api.started()
    changed = EXPENSE.replace("id: expense", 'id: expense\nversion: "2"')
    api.engine.flows.deploy(_file(tmp_path, changed))
    path = f"/v1/executions/{id}/upgrade"

    looked = api("POST", path, {"flow": "expense", "check": True}, code=200)
    assert (looked["verdict"], looked["moved"]) == ("continues", False)
    assert api("POST", path, {"flow": "expense"}, code=200)["moved"] is True
    assert api("GET", f"/v1/executions/{id}")["version"] == "2"
    assert "is of the flow" in api("POST", path, {"flow": "parcel"}, code=409)["detail"]
    mapping = {"flow": "expense", "mapping": {"steps": {"none": "ask"}}}
    assert api("POST", path, mapping, code=400)["code"] == "UsageError"


def _file(folder: Path, text: str) -> Path:
    (folder / "changed.yaml").write_text(text)
    return folder / "changed.yaml"


CALL = """
flowengine: 1
id: calling
tools: {write: {python: "acts:write", approval: ask}}
steps:
  - {id: w, call: write, with: {path: a}}
  - {id: ask, approval: {title: Go?}}
"""


def test_an_approval_of_a_call_covers_later_ones_as_on_the_command_line(
    api: Api, tmp_path: Path
) -> None:
    (tmp_path / "acts.py").write_text("def write(path: str) -> str:\n    return path\n")
    result = api.engine.run(_file(tmp_path, CALL))
    body = {"choice": "approve", "grant": {"args": {"path": "*"}, "uses": 2, "expires": "2h"}}

    api("POST", f"/v1/approvals/{result.waits[0]['id']}/decision", body, code=200)
    api.engine.resume(result.execution)
    [grant] = api("GET", f"/v1/grants?execution={result.execution}", code=200)["items"]
    assert (grant["uses"], grant["status"], "until" in grant) == (2, "open", True)
    revoked = api("POST", f"/v1/grants/{grant['id']}/revoke", {}, code=200)
    assert (revoked["status"], revoked["revoked_by"]) == ("revoked", OWNER)
    api("POST", f"/v1/grants/{grant['id']}/revoke", {}, code=409)
    api("GET", f"/v1/grants?execution={result.execution}", token=api.token("user:vera"), code=403)


def test_environments_of_an_execution_are_listed_and_released(api: Api) -> None:
    (id, _), (other, _) = api.started(), api.started()
    manager = api.engine.environments
    opened = {
        owner: manager.ensure({"kind": "files", "scope": scope, "owner_id": owner}).id
        for scope, owner in (("execution", id), ("execution", other), ("session", "ana"))
    }
    otto = api.token("user:otto")
    some = api.token(OWNER, "operator", "parcel")

    def listed(query: str = "", token: str = otto) -> list[str]:
        found = api("GET", f"/v1/environments{query}", token=token, code=200)["items"]
        return [one["id"] for one in found]

    assert set(listed()) == set(opened.values())
    assert listed(f"?execution={id}") == [opened[id]]
    assert listed(token=some) == []
    api("GET", f"/v1/environments/{opened[id]}", token=some, code=404)
    shown = api("GET", f"/v1/environments/{opened[id]}", token=otto, code=200)
    assert (shown["execution"], "workspace" in shown) == (id, False)
    assert "workspace" in api("GET", f"/v1/environments/{opened[id]}", code=200)

    path = f"/v1/environments/{opened[id]}/release"
    assert "in use by process" in api("POST", path, {}, token=otto, code=409)["detail"]
    api("POST", path, {"force": True}, token=otto, code=200)
    assert set(listed()) == {opened[other], opened["ana"]}


def test_many_are_decided_at_once_each_with_its_own_result(api: Api) -> None:
    waits = [api.started(amount)[1] for amount in (1, 2)]
    ben = api.token("user:ben")
    decisions = [{"wait": wait, "choice": "approve"} for wait in [*waits, waits[0][:3]]]
    decisions[1]["choice"] = "maybe"

    results = api("POST", "/v1/approvals/decisions", {"decisions": decisions}, token=ben, code=200)
    assert [one["status"] for one in results["results"]] == [200, 422, 404]


def test_a_file_is_read_through_an_execution_that_keeps_it_and_only_by_its_digest(api: Api) -> None:
    id, _ = api.started()
    other, _ = api.started()
    text = b"<script>alert(1)</script>"
    kept = api.engine.store.put_artifact(id, text, "page.html")
    response = api.response("GET", f"/v1/executions/{id}/artifacts/{kept.sha256}")

    assert response.content == text
    assert response.headers["content-disposition"].startswith("attachment")
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.headers["x-content-type-options"] == "nosniff"
    api("GET", f"/v1/executions/{other}/artifacts/{kept.sha256}", code=404)
    for name in ("%2e%2e%2fflowengine.db", "0" * 64, kept.sha256.upper()):
        api("GET", f"/v1/executions/{id}/artifacts/{name}", code=404)


@pytest.mark.parametrize(
    ("method", "path", "code", "said"),
    [
        ("GET", "/v1/nothing", 404, "there is no /v1/nothing"),
        ("DELETE", "/v1/executions", 405, "this path has no method DELETE"),
        ("TRACE", "/v1/executions/x", 405, "this path has no method TRACE"),
        ("PUT", "/v1/openapi.json", 405, "this path has no method PUT"),
        ("GET", "/v1/executions/none", 404, "there is no execution 'none'"),
        ("GET", "/v1/executions?limit=0", 400, "'limit'"),
        ("GET", "/v1/executions?limit=1&limit=2", 400, "'limit' is given 2 times"),
        ("GET", "/v1/executions?colour=red", 400, "'colour'"),
        ("GET", "/v1/executions?status=odd", 400, "status"),
    ],
)
def test_errors_are_problems(api: Api, method: str, path: str, code: int, said: str) -> None:
    response = api.response(method, path)

    assert response.status_code == code
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert said in problem["detail"]
    assert problem["status"] == code
    if code == 405:
        assert response.headers["allow"]


@pytest.mark.parametrize(
    ("content", "media_type", "code", "said"),
    [
        (b"{", "application/json", 422, "the body cannot be read as JSON"),
        (b'{"flow": "expense", "inputs": {"amount": NaN}}', "application/json", 422, "NaN"),
        (b"[" * 100_000, "application/json", 422, "levels deep"),
        (b"\xff", "application/json", 422, "not UTF-8"),
        (b'{"flow": "expense", "by": "user:ben"}', "application/json", 422, "'by'"),
        (b'{"flow": 1}', "application/json", 422, "field 'flow' must be text"),
        (b"{}", "application/json", 422, "field 'flow' is missing"),
        (b"[]", "application/json", 422, "the body must be a mapping"),
        (b'{"flow": "expense"}', "text/plain", 415, "text/plain"),
        (b'{"flow": "expense"}', "", 415, "no declared type"),
        (b" " * 1_100_000, "application/json", 413, "more than 1 MiB"),
    ],
)
def test_a_body_that_is_not_the_documented_one_is_refused(
    api: Api, content: bytes, media_type: str, code: int, said: str
) -> None:
    headers = {"content-type": media_type} if media_type else {}
    problem = api("POST", "/v1/executions", content=content, headers=headers, code=code)
    assert said in problem["detail"]


def test_a_body_that_is_packed_is_refused(api: Api) -> None:
    for path in ("/v1/executions", "/v1/artifacts?name=a.txt"):
        headers = {"content-type": "application/json", "content-encoding": "gzip"}
        problem = api("POST", path, content=b"\x1f\x8b", headers=headers, code=415)
        assert (problem["detail"], problem["hint"]) == (
            "the body is encoded as gzip",
            "send it unencoded",
        )


def test_hints_are_for_clients_and_name_no_commands(api: Api) -> None:
    id, wait = api.started()
    decision = f"/v1/approvals/{wait}/decision"
    refused = api("POST", decision, {"choice": "approve"}, token=api.token("user:ada"))
    unknown = api("POST", "/v1/signals/arived", {"key": "A1"}, code=404)
    api.engine.executions.cancel(id)
    closed = api("POST", f"/v1/approvals/{wait}/claim", {}, code=409)

    assert refused["code"] == "NotAllowed"
    assert "hint" not in refused
    assert unknown["hint"] == "it may have ended: GET /v1/executions"
    assert closed["hint"] == f"GET /v1/approvals/{wait}"


def test_an_unknown_field_is_named_and_what_stands_has_readable_times(api: Api) -> None:
    told = api("POST", "/v1/executions", {"flow": "expense", "odd": 1}, code=422)
    assert (told["detail"], told["field"]) == ("there is no field 'odd'", "odd")
    assert "there is no parameter 'odd'" in api("GET", "/v1/executions?odd=1", code=400)["detail"]
    _, wait = api.started()
    ben, path = api.token("user:ben"), f"/v1/approvals/{wait}/decision"
    api("POST", path, {"choice": "approve"}, token=ben, code=200)
    told = api("POST", path, {"choice": "reject", "comment": "no"}, token=ben, code=409)
    assert told["standing"]["at"].endswith("Z")


def test_the_same_error_has_the_code_and_hint_of_the_command_line(
    api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    from flowengine.cli import main

    store = str(api.engine.store.location).removesuffix("/flowengine.db")
    main(["--store", store, "--json", "run", "flow0.yaml", "-i", "sum=1"])
    [error] = json.loads(capsys.readouterr().out)["errors"]
    problem = api("POST", "/v1/executions", {"flow": "expense", "inputs": {"sum": 1}}, code=422)

    assert (problem["code"], problem["detail"], problem["hint"]) == (
        error["code"],
        error["message"],
        error["hint"],
    )
