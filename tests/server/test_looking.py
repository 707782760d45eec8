# Shows P14, V56
"""Looking into open environments through the API and the page."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from html import unescape

import pytest

from flowengine.execution_environment import register_provider, unregister_provider
from flowengine.sdk.environments import Screen
from tests.execution_environment.painted import PNG, SPEC, Painted, holding
from tests.own_environments import environments_in
from tests.server.api import Api
from tests.server.test_page import HOSTILE, Browser

PICTURE = base64.b64encode(PNG).decode()


@pytest.fixture
def painted() -> Iterator[Painted]:
    provider = Painted()
    register_provider(provider)
    yield provider
    unregister_provider("painted")


def opened(api: Api) -> tuple[str, str]:
    """Return an environment of an execution, in the process of the server, and the execution."""
    execution, _ = api.started()
    spec = {**SPEC, "scope": "execution", "owner_id": execution, "resource_key": HOSTILE}
    return api.engine.environments.ensure(spec).id, execution


def test_who_sees_the_content_looks_into_an_environment(api: Api, painted: Painted) -> None:
    id, _ = opened(api)
    path = f"/v1/environments/{id}/look"

    found = api("POST", path, {}, code=200)

    assert (found["environment"], found["at"][-1]) == (id, "Z")
    assert found["screen"]["picture"] == PICTURE
    assert api("GET", f"/v1/environments/{id}", code=200)["screen"] is True
    otto = api.token("user:otto")
    assert "screen" not in api("GET", f"/v1/environments/{id}", token=otto, code=200)
    api("POST", path, {}, token=otto, code=403)
    api("POST", path, {}, token=api.token("user:cora", "viewer", "parcel", content=True), code=404)
    audit = api("GET", "/v1/audit", code=200)["items"]
    assert sorted(one["status"] for one in audit if one["path"] == path) == [200, 403, 404]


def test_nothing_of_an_answer_is_kept(api: Api, painted: Painted) -> None:
    id, execution = opened(api)
    events = api("GET", f"/v1/executions/{execution}/events", code=200)
    path, headers = f"/v1/environments/{id}/look", {"idempotency-key": "one"}
    first = api("POST", path, {}, headers=headers, code=200)
    assert first["screen"]["picture"] == PICTURE
    assert api("POST", path, {}, headers=headers, code=200)["screen"] == first["screen"]
    assert api("GET", f"/v1/executions/{execution}/events", code=200) == events
    for file in api.folder.rglob("*"):
        if file.is_file():
            assert PNG not in (data := file.read_bytes()), file
            assert PICTURE.encode() not in data, file


def test_another_process_is_asked_and_its_end_is_told(api: Api) -> None:
    api.engine.environments.written()  # its directory
    with holding(environments_in(api.folder / "store")) as holder:
        [one] = api("GET", "/v1/environments", code=200)["items"]
        path = f"/v1/environments/{one['id']}/look"
        text = api("POST", path, {}, code=200)["screen"]["text"]
        assert text == f"in process {holder.pid}"
        holder.kill()
        holder.wait()
        refused = api("POST", path, {}, code=409)
        assert f"process {holder.pid}, which has ended" in refused["detail"]


def test_the_page_shows_it_as_text_and_picture(api: Api, painted: Painted) -> None:
    async def show() -> Screen:
        return Screen(HOSTILE, PNG, HOSTILE, "javascript:alert(1)")

    id, execution = opened(api)
    owner, otto = Browser(api), Browser(api, api.token("user:otto"))
    path = f"/environments/{id}/look"
    assert path in owner("GET", "/environments").text
    assert path not in otto("GET", "/environments").text
    painted.show = show
    form = {"form_token": owner.form_token("/environments"), "command": "1"}

    answer = owner("POST", path, form)

    assert answer.status_code == 200
    assert f'src="data:image/png;base64,{PICTURE}"' in answer.text
    assert "<script>alert" not in answer.text
    assert "<img src=x" not in answer.text
    assert unescape(answer.text).count(HOSTILE) >= 4  # name twice, title and screen
    assert 'href="javascript' not in answer.text
    assert f'href="/executions/{execution}"' in answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert answer.headers["cache-control"] == "no-store"

    async def broken() -> Screen:
        raise OSError("<b>")

    painted.show = broken
    again = owner("POST", path, form)
    assert again.status_code == 409
    assert "cannot be looked into: OSError: &lt;b&gt;" in again.text
    assert otto("POST", path, {"form_token": otto.form_token("/environments")}).status_code == 403
