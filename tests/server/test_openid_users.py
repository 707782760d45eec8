# Shows V20
"""Users whom an OpenID provider names, with a provider on this machine (V20)."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlencode

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from jwt.algorithms import ECAlgorithm

from flowengine.errors import UsageError
from flowengine.server.guard import Rates
from flowengine.server.identity import FAILURES
from flowengine.server.oidc import OidcProvider
from flowengine.server.refusals import RequestRefused
from flowengine.server_settings import OidcSignIn
from flowengine.settings_files import load_settings
from tests.replacing import Limits
from tests.server.api import Api
from tests.server.conftest import SETTINGS

KEYS = {name: generate_private_key(SECP256R1()) for name in ("one", "two", "foreign")}
AUDIENCE = "flowengine"


class Idp(BaseHTTPRequestHandler):
    """Publishes the keys of a provider."""

    issuer: ClassVar[str]
    published: ClassVar[list[str]]
    asked: ClassVar[list[str]]
    given: ClassVar[dict[str, tuple[dict[str, str], str]]]
    """Code → the request that it was given for, and the token that it is redeemed for."""

    def do_GET(self) -> None:
        self.asked.append(self.path)
        keys = [
            {**json.loads(ECAlgorithm.to_jwk(KEYS[name].public_key())), "kid": name, "use": "sig"}
            for name in self.published
        ]
        pages = {
            "/.well-known/openid-configuration": {
                "issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys",
                "authorization_endpoint": f"{self.issuer}/authorize?tenant=a",
                "token_endpoint": f"{self.issuer}/token",
            },
            "/keys": {"keys": keys},
        }  # fmt: skip
        self._answer(200, pages.get(self.path))

    def do_POST(self) -> None:
        """Redeem a code, once, for the client and the browser that it was given to."""
        self.asked.append(self.path)
        length = int(self.headers["Content-Length"])
        sent = dict(parse_qsl(self.rfile.read(length).decode()))
        asked, token = self.given.pop(sent.get("code", ""), ({}, ""))
        digest = hashlib.sha256(sent.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        is_right = (
            sent["grant_type"] == "authorization_code"
            and asked.get("code_challenge") == challenge
            and asked.get("code_challenge_method") == "S256"
            and asked.get("redirect_uri") == sent["redirect_uri"]
            and asked.get("client_id") == sent["client_id"]
            and sent.get("client_secret") == "hush"
        )
        self._answer(200 if is_right else 400, {"id_token": token} if is_right else {})

    def _answer(self, code: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def issuer() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Idp)
    Idp.issuer = f"http://127.0.0.1:{server.server_address[1]}"
    Idp.published, Idp.asked, Idp.given = ["one"], [], {}
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield Idp.issuer
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, issuer: str) -> Iterator[Api]:
    config = tmp_path / "config" / "flowengine"
    config.mkdir(parents=True)
    sign_in = json.dumps({"oidc": {"issuer": issuer, "audience": AUDIENCE}})
    (config / "settings.yaml").write_text(f"{SETTINGS}sign_in: {sign_in}\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    api = Api(tmp_path)
    yield api
    api.close()


def token(key: str = "one", *, kid: str | None = None, **claims: Any) -> str:
    now = int(time.time())
    given = {"iss": Idp.issuer, "aud": AUDIENCE, "sub": "ben", "iat": now, "exp": now + 300}
    given = {name: value for name, value in {**given, **claims}.items() if value is not None}
    return jwt.encode(given, KEYS[key], "ES256", headers={"kid": kid or key})


def test_a_token_of_the_provider_names_the_user(api: Api) -> None:
    me = api("GET", "/v1/me", token=token(), code=200)
    assert me["user"] == "user:ben"
    for _ in range(5):
        api("GET", "/v1/executions", token=token(), code=200)
    assert len(Idp.asked) == 2  # the keys are kept
    api("POST", "/v1/executions", {"flow": "expense", "inputs": {"amount": 1}}, token=token(),
        code=403)  # fmt: skip


def test_groups_in_the_token_give_roles(api: Api) -> None:
    api("GET", "/v1/executions", token=token(sub="zoe"), code=403)
    api("GET", "/v1/executions", token=token(sub="zoe", groups=["finance", 7]), code=200)
    api("GET", "/v1/tokens", token=token(sub="zoe", groups=["finance"]), code=403)


def test_an_email_address_names_a_user_once_it_is_verified(issuer: str) -> None:
    provider = OidcProvider(OidcSignIn(issuer, AUDIENCE, user_claim="email"))
    assert provider.named_by(token(email="ada@x.org", email_verified=True)).user == "ada@x.org"
    for verified in (None, False, "true", 1):
        with pytest.raises(RequestRefused, match="its email address is not verified"):
            provider.named_by(token(email="ada@x.org", email_verified=verified))


def unsigned(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def forged() -> Iterator[str]:
    """Yield tokens that are not valid."""
    now = int(time.time())
    yield token(aud="another")
    yield token(aud=None)
    yield token(iss="https://evil.example")
    yield token(iss=None)
    yield token(exp=now - 100)
    yield token(exp=None)
    yield token(nbf=now + 100)
    yield token(sub=None)
    yield token(sub="ada ben")
    yield token(sub="group:finance")
    yield token(groups="finance", sub="zoe")
    yield token("foreign", kid="one")
    yield token("foreign")
    claims = {"iss": Idp.issuer, "aud": AUDIENCE, "sub": "ada", "exp": now + 300}
    yield unsigned({"alg": "none", "kid": "one"}, claims)
    public = (
        KEYS["one"]
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    import hmac

    head = unsigned({"alg": "HS256", "kid": "one"}, claims).rpartition(".")[0]
    mac = hmac.new(public, head.encode(), hashlib.sha256).digest()
    yield f"{head}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
    deep = base64.urlsafe_b64encode(b"[" * 5000).decode()
    yield f"{deep}.e30.e30"
    yield "a.b.c"
    yield f"{token()}x" * 100


def test_forged_tokens_are_refused(api: Api, limits: Limits) -> None:
    api.application.identity._failures = Rates(1000, at_once=1000)
    for number, one in enumerate(forged()):
        answer = api.response(
            "GET", "/v1/me", token=None, headers={"authorization": f"Bearer {one}"}
        )
        assert answer.status_code == 401, number
        assert "www-authenticate" in answer.headers
    with pytest.raises(RequestRefused):
        api.application.identity.of("Bearer é.é.é", "10.0.0.1")


def test_a_token_of_the_provider_does_not_sign_in_on_the_page(api: Api) -> None:
    form = urlencode({"token": token(), "next": "/executions"}).encode()
    headers = {"content-type": "application/x-www-form-urlencoded"}
    answer = api.response("POST", "/sign-in", token=None, headers=headers, content=form)
    assert answer.status_code == 401
    assert "for programs only: sign in at the provider" in answer.text
    assert "set-cookie" not in answer.headers
    assert api.records.audited(None, 1)[0]["status"] == 401


def test_guesses_slow_an_address_down_but_no_valid_credential(api: Api) -> None:
    for _ in range(FAILURES):
        api("GET", "/v1/me", token=token("foreign", kid="one"), code=401)
    api("GET", "/v1/me", token=token("foreign", kid="one"), code=429)
    api("GET", "/v1/me", token=token(), code=200)


def test_the_owner_of_the_server_has_no_rights_through_the_provider(api: Api) -> None:
    api("GET", "/v1/executions", token=token(sub="owner"), code=403)


def test_keys_are_replaced_without_a_request_for_each_token(issuer: str) -> None:
    now = [0.0]
    provider = OidcProvider(OidcSignIn(issuer, AUDIENCE), now=lambda: now[0])
    assert provider.named_by(token()).user == "ben"
    Idp.published = ["one", "two"]
    for _ in range(20):
        with pytest.raises(RequestRefused):
            provider.named_by(token("two"))  # at most one look in a minute
    assert len(Idp.asked) == 2
    now[0] += 61
    assert provider.named_by(token("two")).user == "ben"
    Idp.published = ["two"]
    now[0] += 3601
    with pytest.raises(RequestRefused):
        provider.named_by(token())  # the provider has withdrawn it


def test_a_provider_that_cannot_be_read_lets_no_one_in_and_keeps_known_keys(issuer: str) -> None:
    now = [0.0]
    answers: list[Any] = [OSError("down")]

    def read(url: str) -> Any:
        raise answers[0]

    provider = OidcProvider(OidcSignIn(issuer, AUDIENCE), read, lambda: now[0])
    with pytest.raises(RequestRefused) as refused:
        provider.named_by(token())
    assert refused.value.status == 503
    other = OidcProvider(OidcSignIn(f"{issuer}/", AUDIENCE), now=lambda: now[0])
    with pytest.raises(RequestRefused) as refused:  # the document is of another issuer
        other.named_by(token())
    assert refused.value.status == 503


@pytest.mark.parametrize(
    "oidc",
    [
        {"issuer": "http://id.example.com", "audience": "a"},
        {"issuer": "https://id.example.com"},
        {"issuer": "https://id.example.com", "audience": ""},
        {"issuer": "https://id.example.com", "audience": "a", "secret": "x"},
        {"issuer": "https://id.example.com", "audience": "a", "client": "c", "client_secret": "x"},
        {"issuer": "https://id.example.com", "audience": "a", "client_secret": {"env": "X"}},
        {"issuer": "https://id.example.com", "audience": "a", "client": "c", "scope": "profile"},
        "https://id.example.com",
    ],
)
def test_settings_that_are_not_valid_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, oidc: Any
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    settings = tmp_path / "flowengine" / "settings.yaml"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"sign_in": {"oidc": oidc}}))
    with pytest.raises(UsageError, match="sign_in"):
        load_settings(str(tmp_path / "none"))
