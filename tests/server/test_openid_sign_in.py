# Shows V20
"""Sign-in on the page with an OpenID provider on this machine (V20)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import pytest

from flowengine.server import sign_in
from flowengine.server.oidc import OidcProvider
from flowengine.server.refusals import RequestRefused
from flowengine.server_settings import OidcSignIn
from tests.replacing import Limits
from tests.server.api import HOST, Api
from tests.server.conftest import SETTINGS
from tests.server.test_openid_users import AUDIENCE, Idp, issuer, token

__all__ = ["issuer"]
CLIENT = "page"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, issuer: str) -> Iterator[Api]:
    config = tmp_path / "config" / "flowengine"
    config.mkdir(parents=True)
    oidc = {"issuer": issuer, "audience": AUDIENCE, "client": CLIENT,
            "client_secret": {"env": "CLIENT_SECRET"}}  # fmt: skip
    (config / "settings.yaml").write_text(f"{SETTINGS}sign_in: {json.dumps({'oidc': oidc})}\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("CLIENT_SECRET", "hush")
    monkeypatch.chdir(tmp_path)
    api = Api(tmp_path)
    yield api
    api.close()


class Visitor:
    """A browser that signs in at the provider, with its cookies."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.cookies: dict[str, str] = {}

    def get(self, path: str) -> httpx2.Response:
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        answer = self.api.response("GET", path, token=None, headers={"cookie": cookie})
        for one in answer.headers.get_list("set-cookie"):
            name, _, value = one.partition(";")[0].partition("=")
            self.cookies[name] = value
        return answer

    def begin(self, following: str = "/executions") -> dict[str, str]:
        """Go to the provider, and return what it is asked for."""
        address = self.get(f"/sign-in/provider?{urlencode({'next': following})}").headers[
            "location"
        ]
        assert address.startswith(f"{Idp.issuer}/authorize?tenant=a&")
        return dict(parse_qsl(urlsplit(address).query))

    def come_back(self, asked: dict[str, str], code: str = "c1", **given: Any) -> httpx2.Response:
        """Come back from the provider, with a code for a token with some claims."""
        more = {name: given.pop(name) for name in ("state", "iss_given") if name in given}
        claims = {"aud": CLIENT, "nonce": asked["nonce"], **given}
        Idp.given.setdefault(code, (asked, token(**claims)))
        query = {"code": code, "state": more.get("state", asked["state"])}
        if "iss_given" in more:
            query["iss"] = more["iss_given"]
        return self.get(f"/sign-in/callback?{urlencode(query)}")


def is_signed_in(visitor: Visitor) -> bool:
    return visitor.get("/executions").status_code == 200


def test_a_user_signs_in_with_the_provider_and_out(api: Api) -> None:
    visitor = Visitor(api)
    assert "/sign-in/provider?next=%2Fexecutions" in visitor.get("/sign-in?next=/executions").text
    asked = visitor.begin()
    assert asked["scope"].split()[0] == "openid"
    assert asked["redirect_uri"] == f"http://{HOST}/sign-in/callback"
    back = visitor.come_back(asked, sub="zoe", groups=["finance"])
    assert back.status_code == 200
    assert '<meta http-equiv="refresh" content="0;url=/executions">' in back.text
    [session] = [one for one in back.headers.get_list("set-cookie") if "session" in one]
    assert "HttpOnly" in session
    assert "SameSite=strict" in session
    shown = visitor.get("/executions")
    assert "user:zoe" in shown.text
    assert api("GET", "/v1/audit")["items"][0]["user"] == "user:zoe"
    me = visitor.get("/v1/me")
    assert me.json()["user"] == "user:zoe"

    restarted = api.new_application(api.records)
    found = restarted.identity.of_session(visitor.cookies["flowengine_session"])
    assert found is not None
    assert found[0].access  # of the group in the token, which is kept on the server
    form = {"form_token": re.findall(r'name="form_token" value="([\w-]+)"', shown.text)[0]}
    headers = {"content-type": "application/x-www-form-urlencoded",
               "cookie": f"flowengine_session={visitor.cookies['flowengine_session']}"}  # fmt: skip
    api.response("POST", "/sign-out", token=None, headers=headers, content=urlencode(form).encode())
    assert api.application.identity.of_session(visitor.cookies["flowengine_session"]) is None
    assert "zoe" not in str(api.records._read("SELECT * FROM browsers", ()))


def test_no_address_drops_the_sign_ins_of_others(api: Api, limits: Limits) -> None:
    limits(sign_in, _MOST=10, _OF_ADDRESS=5)
    visitor = Visitor(api)
    asked = visitor.begin()
    flow = api.application.identity.code_flow
    assert flow is not None
    for _ in range(20):
        flow.begin("https://flows.example/sign-in/callback", "/", "10.0.0.7")
    assert visitor.come_back(asked).status_code == 200


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"nonce": 7},
        {"aud": AUDIENCE},
        {"aud": None},
        {"aud": [CLIENT, "another"]},
        {"aud": [CLIENT, "another"], "azp": "another"},
        {"azp": "another"},
        {"iss": "https://evil.example"},
        {"exp": 1},
        {"sub": "ada ben"},
        {"key": "foreign", "kid": "one"},
        {"iss_given": "https://evil.example"},
        {"state": "forged"},
        {"state": ""},
    ],
)
def test_what_belongs_to_another_sign_in_is_refused(api: Api, claims: dict[str, Any]) -> None:
    visitor = Visitor(api)
    back = visitor.come_back(visitor.begin(), **claims)
    assert back.status_code == 401
    assert "flowengine_session" not in visitor.cookies
    assert not is_signed_in(visitor)
    assert api("GET", "/v1/audit")["items"][0]["status"] == 401


def test_a_sign_in_is_used_once_by_the_browser_that_began_it(api: Api, limits: Limits) -> None:
    visitor, victim = Visitor(api), Visitor(api)
    asked = visitor.begin()
    assert visitor.come_back(asked).status_code == 200
    Idp.given["c1"] = (asked, token(aud=CLIENT, nonce=asked["nonce"]))  # the provider forgets
    assert victim.come_back(asked).status_code == 401
    assert visitor.come_back(asked).status_code == 401  # replayed
    # The page of an attacker leads a victim to the attacker's own sign-in.
    assert victim.come_back(visitor.begin(), "c2").status_code == 401
    victim.begin()
    assert victim.come_back(visitor.begin(), "c3").status_code == 401
    assert not is_signed_in(victim)
    # A code that was given to another browser does not fit the verifier of this one.
    stolen, mine = victim.begin(), visitor.begin()
    Idp.given["c4"] = (stolen, token(aud=CLIENT, nonce=mine["nonce"]))
    assert visitor.come_back(mine, "c4").status_code == 401
    late = visitor.begin()
    limits(sign_in, SECONDS=-1)
    assert visitor.come_back(late, "c5").status_code == 401


def test_the_owner_has_no_rights_through_the_provider_and_guesses_are_slowed(api: Api) -> None:
    visitor = Visitor(api)
    visitor.come_back(visitor.begin(), sub="owner")
    assert visitor.get("/executions").status_code == 403
    for _ in range(20):
        visitor.come_back(visitor.begin(), state="forged")
    assert visitor.come_back(visitor.begin()).status_code == 429


@pytest.mark.parametrize("user", ["ada ben", "group:finance", "", "a,b", "x" * 201])
def test_a_provider_that_names_no_valid_user_signs_nobody_in(api: Api, user: str) -> None:
    visitor = Visitor(api)
    answer = visitor.come_back(visitor.begin(), sub=user)
    assert answer.status_code == 401
    assert "names no valid user" in answer.text
    assert not is_signed_in(visitor)


@pytest.mark.parametrize("secret", ["", " \t\n"])
def test_a_blank_secret_of_the_client_is_not_sent(
    api: Api, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLIENT_SECRET", secret)
    visitor = Visitor(api)
    answer = visitor.come_back(visitor.begin())
    assert answer.status_code == 503
    assert "the secret of the OpenID client is not available" in answer.text
    assert "/token" not in Idp.asked


def test_a_refusal_of_the_user_is_no_guess_and_says_so(api: Api) -> None:
    visitor = Visitor(api)
    asked = visitor.begin()
    query = urlencode({"error": "access_denied", "state": asked["state"]})
    assert "did not sign you in" in visitor.get(f"/sign-in/callback?{query}").text
    assert visitor.come_back(visitor.begin()).status_code == 200


def test_without_a_client_or_a_provider_there_is_no_sign_in(issuer: str) -> None:
    down = OidcProvider(OidcSignIn("http://127.0.0.1:9", AUDIENCE, client=CLIENT))
    flow = sign_in.CodeFlow(down, OidcSignIn("http://127.0.0.1:9", AUDIENCE, client=CLIENT))
    with pytest.raises(RequestRefused) as refused:
        flow.begin("http://testserver/sign-in/callback", "/", "::1")
    assert refused.value.status == 503
    plain = {"issuer": issuer, "authorization_endpoint": "http://evil.example/a"}
    open_one = OidcProvider(OidcSignIn(issuer, AUDIENCE, client=CLIENT), lambda url: plain)
    with pytest.raises(RequestRefused):
        open_one.endpoint("authorization_endpoint")
