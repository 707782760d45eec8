# Shows V30
"""Tokens that are created, listed and revoked through the API."""

from __future__ import annotations

import time

import pytest

from flowengine import Client
from flowengine.errors import InputError, NotAllowed
from tests.server.api import HOST, OWNER, Api
from tests.server.transport import Transport

NOW = int(time.time() * 1000)


def client(api: Api, token: str) -> Client:
    return Client(f"https://{HOST}", token, transport=Transport(api))


def test_an_admin_creates_lists_and_revokes_tokens(api: Api) -> None:
    with client(api, api.token("user:ada")) as ada:
        token = ada.create_token("ci", role="starter", flows=["expense"], expires_in=60)
        [item] = [one for one in ada.tokens() if one["name"] == "ci"]
        assert token not in str(ada.tokens())
        limits = item["user"], item["role"], item["flows"], item["created_by"], item["status"]
        assert limits == ("user:ada", "starter", ["expense"], "user:ada", "open")
        assert "expires_at" in item
        with client(api, token) as ci:
            assert ci.user() == "user:ada"
            ci.start("expense", {"amount": 1})
            with pytest.raises(NotAllowed):
                ci.tokens()
            assert ada.revoke_token("ci")["status"] == "revoked"
            with pytest.raises(NotAllowed):
                ci.user()


def test_a_token_gives_no_rights_that_its_creator_lacks(api: Api) -> None:
    with client(api, api.token("user:ada")) as ada:
        for role in (None, "approver", "admin"):
            with pytest.raises(NotAllowed, match="in the name of ben"):
                ada.create_token("other", user="user:ben", role=role)
        assert ada.create_token("reader", user="user:ben", role="viewer")
        for user in ("ben", "group:finance", "user:"):
            with pytest.raises(InputError, match="is not a user"):
                ada.create_token("other", user=user, role="viewer")
        with pytest.raises(InputError, match="limit a role"):
            ada.create_token("other", content=True)
    refused = pytest.raises(NotAllowed, match="with limits creates no others")
    with client(api, api.token("user:ada", "admin")) as limited, refused:
        limited.create_token("other", role="viewer")
    with client(api, api.token("user:otto")) as otto, pytest.raises(NotAllowed):
        otto.create_token("other")
    assert {one.name for one in api.records.tokens()}.isdisjoint({"other"})


@pytest.mark.parametrize("name", ["local", "(local)", "(oidc)", "(proxy)"])
def test_a_session_of_a_token_is_never_that_of_another_credential(api: Api, name: str) -> None:
    try:
        token = api.records.create_token(name, "user:ben", None, OWNER, 0, None)
    except InputError:
        assert name != "local"
        api("POST", "/v1/tokens", {"name": name}, code=422)
        return
    assert api("GET", "/v1/me", token=token, code=200)["user"] == "user:ben"
    session = api.application.identity.of_session(api.records.begin_session(name, NOW))
    assert session is not None
    assert session[0].user == "user:ben"


def test_a_token_is_shown_once_and_not_kept_for_repeated_requests(api: Api) -> None:
    headers = {"idempotency-key": "k"}
    first = api("POST", "/v1/tokens", {"name": "ci"}, code=201, headers=headers)
    again = api("POST", "/v1/tokens", {"name": "ci"}, code=201, headers=headers)
    assert first["token"].startswith("fe_")
    assert again == {**first, "token": None}
    kept = b"".join(path.read_bytes() for path in api.folder.glob("server/*") if path.is_file())
    assert first["token"].split("_", 2)[2].encode() not in kept
