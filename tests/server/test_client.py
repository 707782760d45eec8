# Shows V38
"""`Client` and `AsyncClient`: the engine's methods and errors, over HTTP."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from flowengine import AsyncClient, Client, Conflict, Engine, InputError, NotAllowed, NotFound
from flowengine.client import client as client_module
from flowengine.errors import StoreError, UsageError
from flowengine.kernel.notation.times import parse_time
from tests.replacing import Limits
from tests.server.api import EXPENSE, HOST, LOCAL, OWNER, Api
from tests.server.transport import Transport

URL = f"https://{HOST}"
DRIVING = {
    *("run", "take", "hear", "drain", "due", "next_due", "waited", "quarantined", "subscribe"),
    *("open_executions", "updates", "load", "leave", "acting_as", "environments", "store"),
    *("settings", "want_replies", "arriving_replies", "want"),
    *("decode_payloads", "encode_payloads", "carry_traces", "trace_of", "guarded"),
    "sessions",  # over HTTP they are executions of the flow `sessions`
    # in groups
    *("folds", "marks", "feed_all", "consulting", "prune", "past_updates"),
    *("newest", "flow_of", "plan", "kept", "may_answer", "summary", "find", "start_due"),
    *("log_in", "needs_login"),  # of the machine that keeps the tokens
    *("backfill", "move", "interrupted_moves", "deployed_flow", "kept_flow"),
}
"""Methods that need the store itself, or steps of this process."""
GROUPS = ("executions", "approvals", "flows")


@pytest.fixture
def client(api: Api) -> Iterator[Client]:
    with Client(URL, api.token("user:otto", "operator"), transport=Transport(api)) as client:
        yield client


def public(of: type) -> set[str]:
    names = {name for name, _ in inspect.getmembers(of) if not name.startswith("_")}
    return {name.removesuffix("_async") for name in names}


def test_it_has_the_methods_of_the_engine(client: Client) -> None:
    assert public(Engine) - DRIVING <= public(Client)
    assert public(Client) == public(AsyncClient)
    with Engine(None) as engine:
        for group in GROUPS:
            own, served = (public(type(getattr(one, group))) for one in (engine, client))
            assert own - DRIVING <= served, group


def test_events_are_chosen_by_step_type_and_time(api: Api) -> None:
    id, wait = api.started()
    client = Client(URL, LOCAL, transport=Transport(api))
    api.engine.approvals.approve(wait, by="user:ben")
    every = list(client.executions.events(id))
    step, since = every[-1]["address"], parse_time(every[1]["at"])
    for named in (client, api.engine):
        find: Any = partial(named.executions.events, id)
        assert [*find(type="decided")] == [each for each in every if each["type"] == "decided"]
        assert {each["type"] for each in find(step=step, type="decided")} == {"decided"}
        assert [*find(since=since)] == [*find(since=since, follow=True)] == every[1:]
        assert [*find(type="started", since=since)] == [*find(type="failed")] == []
        with pytest.raises(UsageError, match="type is 'gone'"):
            list(find(type="gone"))
    client.close()


def test_its_errors_are_those_of_the_engine(api: Api, client: Client) -> None:
    id, wait = api.started()
    with pytest.raises(NotFound, match="there is no execution 'none'"):
        client.executions.show("none")
    with pytest.raises(InputError, match="amount") as refused:
        client.start("expense", {"amount": "x"})
    assert refused.value.field == "amount"
    with pytest.raises(NotAllowed, match="does not have the right 'decide'"):
        client.approvals.approve(wait)
    with pytest.raises(Conflict, match="only a failed execution"):
        client.executions.retry(id)
    with pytest.raises(UsageError, match="'status'"):
        client.executions.list(status="odd")
    assert client.executions.cancel(id, reason="twice").status == "interrupted"
    stranger = Client(URL, "fe_unknown", transport=Transport(api))
    with stranger, pytest.raises(NotAllowed, match="unknown, expired or revoked"):
        stranger.executions.list()


def test_a_change_whose_answer_is_lost_is_sent_again_and_happens_once(
    api: Api, limits: Limits
) -> None:
    limits(client_module, _PAUSES=(0.0,))
    sent: list[str] = []

    class Losing(Transport):
        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            response = super().handle_request(request)
            sent.append(request.headers["idempotency-key"])
            if len(sent) == 1:
                raise httpx2.ReadError("the connection was cut")
            return response

    with Client(URL, LOCAL, transport=Losing(api)) as client:
        id = client.start("expense", {"amount": 1})
    assert [one["execution"] for one in api.engine.executions.list().items] == [id]
    assert (len(sent), len(set(sent))) == (2, 1)


def test_a_server_that_does_not_answer_or_answers_too_much_is_named(limits: Limits) -> None:
    limits(client_module, _PAUSES=(), LARGEST_ANSWER=10)

    def refuse(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/me"):
            return httpx2.Response(200, content=b'"' + b"x" * 100 + b'"')
        raise httpx2.ConnectError("refused")

    with Client(URL, LOCAL, transport=httpx2.MockTransport(refuse)) as client:
        with pytest.raises(StoreError, match="no answer from https://testserver: refused"):
            client.flows.list()
        with pytest.raises(StoreError, match="more than 10 bytes"):
            client.user()


@pytest.mark.parametrize(
    ("url", "token", "said"),
    [
        ("http://flows.example.com", "fe_x", "plain text"),
        ("ftp://127.0.0.1", "fe_x", "not the address"),
        ("", "fe_x", "not the address"),
        ("https://flows.example.com", "", "needs a token"),
        ("https://flows.example.com", "fe\nx", "needs a token"),
    ],
)
def test_a_token_goes_to_no_other_machine_in_plain_text(
    url: str, token: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLOWENGINE_SERVER", raising=False)
    monkeypatch.delenv("FLOWENGINE_TOKEN", raising=False)
    with pytest.raises(UsageError, match=said):
        Client(url, token)


def test_an_id_cannot_name_another_route(client: Client) -> None:
    for id in ("..", "../audit", "x/cancel", "", "a?b=c"):
        with pytest.raises((NotFound, UsageError)):
            client.executions.show(id)


def test_an_approval_is_claimed_released_and_delegated(api: Api, tmp_path: Path) -> None:
    (tmp_path / "held.yaml").write_text(EXPENSE.replace("claim: false", "claim: true"))
    wait = api.engine.run(tmp_path / "held.yaml", {"amount": 5}).waits[0]["id"]

    def client_of(token: str) -> Client:
        return Client(URL, token, transport=Transport(api))

    with client_of(api.token("user:ben")) as ben, client_of(LOCAL) as owner:
        assert ben.approvals.claim(wait)["claimed_by"] == "user:ben"
        with pytest.raises(NotAllowed, match="may not claim") as refused:
            owner.approvals.claim(wait)
        assert "settings.yaml" not in refused.value.with_hint  # it is the host's
        assert "claimed_by" not in ben.approvals.release(wait)
        with pytest.raises(UsageError, match="group:hr"):
            ben.approvals.delegate(wait, "group:hr")
        handed = ben.approvals.delegate(wait, OWNER)["handed"][-1]
        assert {**handed, "do": "delegated", "by": "user:ben", "to": OWNER} == handed
        with pytest.raises(NotAllowed, match="ben"):
            ben.approvals.approve(wait)
        owner.approvals.claim(wait)
        owner.approvals.approve(wait)
    assert api.engine.approvals.list(status="all").items[0]["decision"]["by"] == OWNER
