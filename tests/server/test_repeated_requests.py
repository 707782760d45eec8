# Shows V32
"""`Idempotency-Key`: a repeated request has the same answer, in races and across restarts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from flowengine.server.records import ServerRecords
from tests.server.api import LOCAL, Api

START = {"flow": "expense", "inputs": {"amount": 80}}


def start(api: Api, key: str, body: Any = START, token: str = LOCAL) -> tuple[int, Any]:
    headers = {"idempotency-key": key}
    response = api.response("POST", "/v1/executions", body, headers=headers, token=token)
    return response.status_code, response.json()


def test_the_same_request_has_the_same_answer(api: Api) -> None:
    first, again = start(api, "k1"), start(api, "k1")
    assert first == again
    assert first[0] == 201
    assert start(api, "k2") != first
    assert len(api.engine.executions.list().items) == 2


def test_the_same_key_with_another_request_is_a_conflict(api: Api) -> None:
    start(api, "k1")
    code, problem = start(api, "k1", {"flow": "expense", "inputs": {"amount": 81}})
    assert (code, problem["hint"]) == (409, "use a new key for each new request")
    headers = {"idempotency-key": "k1"}
    api("POST", "/v1/signals/arrived", {"key": "A"}, headers=headers, code=409)


def test_keys_of_users_are_their_own(api: Api) -> None:
    assert start(api, "k1") != start(api, "k1", token=api.token("user:sam"))


def test_a_key_gives_no_right(api: Api) -> None:
    otto = api.token("user:otto")
    assert start(api, "k1", token=otto)[0] == 201
    assert start(api, "k1", token=api.token("user:otto", "viewer"))[0] == 403


def test_an_answer_is_not_given_to_another_credential_of_the_user(api: Api) -> None:
    """It can contain what that credential must not see. Nothing is done a second time."""
    [flow] = [item.id for item in api.flows if item.id == "expense"]
    whole, same = (api.token("user:otto") for _ in range(2))
    narrow = api.token("user:otto", "operator", flow)
    first = start(api, "k1", token=whole)
    assert first[0] == 201
    assert start(api, "k1", token=narrow)[0] == 409
    assert start(api, "k1", token=same) == first
    assert len(api.engine.executions.list().items) == 1


def test_a_request_that_failed_can_be_sent_again(api: Api) -> None:
    body = {"flow": "expense", "inputs": {"amount": 1}, "id": "e1"}
    api("POST", "/v1/executions", {**body, "inputs": {"amount": 2}}, code=201)
    assert start(api, "k1", body)[0] == 409
    assert start(api, "k1", body)[0] == 409
    assert start(api, "k1", {**body, "id": "e2"})[0] == 201


def test_of_many_at_once_one_is_executed(api: Api) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: start(api, "k1"), range(24)))

    started = {answer["execution"] for code, answer in answers if code == 201}
    assert len(started) == 1
    assert {code for code, _ in answers} <= {201, 409}
    assert [item["execution"] for item in api.engine.executions.list().items] == [*started]


@pytest.mark.parametrize("what", ["start", "fork"])
def test_a_server_that_was_killed_before_it_answered_starts_nothing_twice(
    api: Api, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    old, _ = api.started()

    def send() -> tuple[int, Any]:
        if what == "start":
            return start(api, "k1")
        headers, body = {"idempotency-key": "k1"}, {"from_step": "ask"}
        response = api.response("POST", f"/v1/executions/{old}/fork", body, headers=headers)
        return response.status_code, response.json()

    def killed(*_: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(api.records, "end_answer", killed)
        patch.setattr(api.records, "drop_answer", lambda *_: None)
        assert send()[0] == 500
    assert send()[0] == 409  # this server may still be at work on it
    [begun] = {one["execution"] for one in api.engine.executions.list().items} - {old}
    api.records.close()
    api.records = api.application.records = ServerRecords(api.records.folder)
    api.application.identity._records = api.records

    assert send() == (201, {"execution": begun})


@pytest.mark.parametrize("key", ["", "k" * 201, "a b"])
def test_a_key_has_a_form(api: Api, key: str) -> None:
    assert start(api, key)[0] == 400
