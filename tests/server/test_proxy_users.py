"""Users whom a trusted proxy names in a header, together with its secret (V20)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from flowengine.errors import UsageError
from flowengine.server.guard import Rates
from flowengine.server.refusals import RequestRefused
from flowengine.settings_files import load_settings
from tests.server.api import Api
from tests.server.conftest import SETTINGS

SECRET = "of the proxy"
PROXY = {"user_header": "X-User", "secret_header": "X-Proof", "secret": {"env": "PROXY_SECRET"}}


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    config = tmp_path / "config" / "flowengine"
    config.mkdir(parents=True)
    sign_in = json.dumps({"proxy": PROXY})
    (config / "settings.yaml").write_text(f"{SETTINGS}sign_in: {sign_in}\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PROXY_SECRET", SECRET)
    monkeypatch.chdir(tmp_path)
    api = Api(tmp_path)
    yield api
    api.close()


def named(user: str, **more: str) -> dict[str, str]:
    return {"X-User": user, "X-Proof": SECRET, **more}


# Shows V20
def test_the_proxy_names_the_user_of_a_request(api: Api) -> None:
    me = api("GET", "/v1/me", token=None, headers=named("ben"), code=200)
    assert me["user"] == "user:ben"
    execution = api("POST", "/v1/executions", {"flow": "expense", "inputs": {"amount": 5}},
                    code=201)["execution"]  # fmt: skip
    api.engine.resume(execution)
    [wait] = api("GET", f"/v1/approvals?execution={execution}", token=None, headers=named("ben"),
                 code=200)["items"]  # fmt: skip
    path = f"/v1/approvals/{wait['id']}/decision"
    api("POST", path, {"choice": "approve"}, token=None, headers=named("vera"), code=403)
    api("POST", path, {"choice": "approve"}, token=None, headers=named("ben"), code=200)
    [entry] = [one for one in api("GET", "/v1/audit", code=200)["items"] if one["status"] == 200
               and one["path"] == path]  # fmt: skip
    assert (entry["user"], entry["token"]) == ("user:ben", "(proxy)")


@pytest.mark.parametrize(
    "headers",
    [
        {"X-User": "ada"},
        {"X-User": "ada", "X-Proof": "wrong"},
        {"X-User": "ada", "X-Proof": ""},
        {"X-Proof": "wrong"},
        named("ada\tx"),
        named("group:finance"),
        named("ada,ben"),
        named(""),
    ],
)
# Shows V20
def test_forged_headers_are_refused_also_beside_a_valid_token(
    api: Api, headers: dict[str, str]
) -> None:
    for token in (None, api.token("user:ada")):
        api("GET", "/v1/me", token=token, headers=headers, code=401)
        assert api.response("GET", "/executions", token=token, headers=headers).status_code == 401
    refused = [one for one in api("GET", "/v1/audit", code=200)["items"] if one["status"] == 401]
    assert len(refused) == 4


def test_two_users_in_one_request_are_refused(api: Api) -> None:
    from flowengine.server.identity import Identity  # a client cannot send both with this library

    identity: Identity = api.application.identity
    with pytest.raises(RequestRefused):
        identity.of_proxy({"x-user": ["ben", "ada"], "x-proof": [SECRET]}, "10.0.0.1")
    with pytest.raises(RequestRefused):
        identity.of_proxy({"x-user": ["ben"], "x-proof": [SECRET, SECRET]}, "10.0.0.1")


def test_the_owner_of_the_server_has_no_rights_through_the_proxy(api: Api) -> None:
    """The proxy's users are not those of this machine."""
    api("GET", "/v1/executions", token=None, headers=named("owner"), code=403)
    api("GET", "/v1/executions", code=200)


def test_without_a_user_the_token_counts(api: Api) -> None:
    api("GET", "/v1/me", token=None, headers={"X-Proof": SECRET}, code=401)
    api("GET", "/v1/me", headers={"X-Proof": SECRET}, code=200)


def test_a_missing_secret_lets_nobody_in(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROXY_SECRET")
    api("GET", "/v1/me", token=None, headers={"X-User": "ada", "X-Proof": ""}, code=503)
    monkeypatch.setenv("PROXY_SECRET", " \t")
    api("GET", "/v1/me", token=None, headers={"X-User": "ada", "X-Proof": " \t"}, code=503)


def test_the_page_needs_no_sign_in_and_its_forms_belong_to_the_user(api: Api) -> None:
    started = {"flow": "expense", "inputs": {"amount": 5}}
    execution = api("POST", "/v1/executions", started, code=201)["execution"]
    page = api.response("GET", f"/executions/{execution}", token=None, headers=named("otto"))
    found = re.search(r'name="form_token" value="([^"]+)"', page.text)
    assert found is not None
    path, form = f"/executions/{execution}/cancel", f"form_token={found[1]}"
    sent = {"content-type": "application/x-www-form-urlencoded"}
    other = api.response("POST", path, token=None, headers={**named("ada"), **sent},
                         content=form.encode())  # fmt: skip
    assert other.status_code == 403  # of another user's page
    own = api.response("POST", path, token=None, headers={**named("otto"), **sent},
                       content=form.encode())  # fmt: skip
    assert own.status_code == 303


@pytest.mark.parametrize(
    "proxy",
    [
        {**PROXY, "user_header": "Host"},
        {**PROXY, "user_header": "X User"},
        {**PROXY, "secret_header": "X-User"},
        {**PROXY, "secret": "in the file"},
        {"user_header": "X-User"},
        "X-User",
    ],
)
def test_settings_that_are_not_valid_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: Any
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    settings = tmp_path / "flowengine" / "settings.yaml"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"sign_in": {"proxy": proxy}}))
    with pytest.raises(UsageError, match="sign_in"):
        load_settings(str(tmp_path / "none"))


def test_a_project_cannot_name_a_proxy(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "settings.yaml").write_text(json.dumps({"sign_in": {"proxy": PROXY}}))
    with pytest.raises(UsageError, match="a project cannot set sign_in"):
        load_settings(str(project))


def test_each_identity_has_its_own_allowance() -> None:
    now = [0.0]
    rates = Rates(60, now=lambda: now[0])
    for _ in range(20):
        rates.count("user:ben", "a")
    with pytest.raises(RequestRefused) as refused:
        rates.count("user:ben", "a")
    assert (refused.value.status, refused.value.headers) == (429, {"retry-after": "1"})
    rates.count("user:ben", "b")
    now[0] += 1
    rates.count("user:ben", "a")
    with pytest.raises(RequestRefused):
        rates.count("user:ben", "a")
    now[0] += 1000  # no more than the maximum is saved up
    for _ in range(20):
        rates.count("user:ben", "a")
    with pytest.raises(RequestRefused):
        rates.count("user:ben", "a")


# Shows V23
def test_requests_beyond_the_allowance_are_refused_on_the_api_and_the_page(api: Api) -> None:
    api.application._rates = Rates(3, now=lambda: 0.0)
    api("GET", "/v1/executions", token=None, headers=named("ben"), code=200)
    answer = api.response("GET", "/v1/executions", token=None, headers=named("ben"))
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "20")
    page = api.response("GET", "/executions", token=None, headers=named("ben"))
    assert (page.status_code, page.headers["retry-after"]) == (429, "20")
    api("GET", "/v1/executions", code=200)
