# Shows G15
"""Logins on the page (G15): a user goes to the authorization server and comes back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from flowengine.page import logins
from tests.envs.mcp.notes import FLOW, NotesServer, notes_server
from tests.replacing import Limits
from tests.server.api import Api
from tests.server.served import Served


@pytest.fixture(scope="module")
def server() -> Iterator[NotesServer]:
    with notes_server() as started:
        yield started


@pytest.fixture
def served(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    served = Served(api)
    yield served
    served.close()


@pytest.fixture
def ada(served: Served) -> Iterator[Visitor]:
    with closing(Visitor(served, "user:ada")) as visitor:
        yield visitor


class Visitor:
    """A browser with cookies, signed in as a user. It follows no redirect by itself."""

    def __init__(self, served: Served, user: str) -> None:
        self._client = httpx2.Client(base_url=served.url)
        token = served.api.token(user)
        self.post("/sign-in", token=token, next="/executions")

    def close(self) -> None:
        self._client.close()

    def get(self, path: str) -> httpx2.Response:
        return self._client.get(path)

    def post(self, path: str, **form: str) -> httpx2.Response:
        return self._client.post(path, data=form, headers={"origin": str(self._client.base_url)})

    def form_token(self, path: str) -> str:
        found = re.search(r'name="form_token" value="([\w-]+)"', self.get(path).text)
        assert found
        return found[1]


def waiting(served: Served, server: NotesServer) -> str:
    """Return the id of the approval of a login."""
    path = Path("notes.yaml")
    path.write_text(FLOW.replace("URL", server.url).replace("AUTH", "oauth"))
    [wait] = served.api.engine.run(path).waits
    return wait["id"]


def begin(visitor: Visitor, path: str) -> str:
    """Begin a login, and return the address of the authorization server's page."""
    shown = visitor.post(f"{path}/log-in", form_token=visitor.form_token(path))
    assert shown.status_code == 200, shown.text
    found = re.search(r'href="(http[^"]+/authorize[^"]+)"', shown.text)
    assert found
    return found[1].replace("&amp;", "&")


def redirect(server: NotesServer, address: str) -> str:
    """Return the path, with parameters, to which the authorization server leads back."""
    location = httpx2.get(address).headers["location"]
    parts = urlsplit(location)
    return f"{parts.path}?{parts.query}"


def test_a_user_logs_in_on_the_page(served: Served, server: NotesServer, ada: Visitor) -> None:
    wait = waiting(served, server)
    path = f"/approvals/{wait}"
    page = ada.get(path).text
    assert f"{server.url}/mcp" in page
    assert 'value="approve"' not in page
    address = begin(ada, path)
    assert address.startswith(f"{server.url}/authorize?")

    back = ada.get(redirect(server, address))

    assert back.status_code == 200, back.text
    assert path in back.text
    shown = served.api.engine.approvals.show(wait)
    assert (shown["status"], shown["decision"]["by"]) == ("closed", "user:ada")
    assert served.api.engine.resume(shown["execution"]).status == "succeeded"
    issued = server.counts()["issued"]
    assert not [secret for secret in issued if secret in back.text + ada.get(path).text]


def test_another_browser_cannot_finish_a_login(
    served: Served, server: NotesServer, ada: Visitor
) -> None:
    wait = waiting(served, server)
    path, codes = f"/approvals/{wait}", server.counts()["codes"]
    back = redirect(server, begin(ada, path))

    with closing(Visitor(served, "user:carla")) as carla:
        assert carla.get(back).status_code == 401
        assert carla.get("/logins/callback?state=x&code=y").status_code == 401
    assert server.counts()["codes"] == codes
    assert served.api.engine.approvals.show(wait)["status"] == "pending"
    assert ada.get(back).status_code == 200
    assert ada.get(back).status_code == 401


def test_a_login_is_not_finished_after_its_token_was_revoked(
    served: Served, server: NotesServer, ada: Visitor
) -> None:
    wait = waiting(served, server)
    back, issued = redirect(server, begin(ada, f"/approvals/{wait}")), server.counts()["issued"]
    served.api.records.revoke_token(served.api.records.tokens()[-1].name, 1)
    assert ada.get(back).status_code == 401
    assert server.counts()["issued"] == issued


def test_an_approval_without_a_login_is_refused(
    served: Served, server: NotesServer, ada: Visitor
) -> None:
    wait = waiting(served, server)
    path = f"/approvals/{wait}"

    refused = ada.post(path, form_token=ada.form_token(path), choice="approve")

    assert refused.status_code == 409
    assert "before the login" in refused.text
    declined = ada.post(path, form_token=ada.form_token(path), choice="reject")
    assert declined.status_code == 303


def test_a_user_takes_no_places_of_another(
    served: Served, server: NotesServer, ada: Visitor, limits: Limits
) -> None:
    limits(logins, _OF_USER=2)
    theirs, own = waiting(served, server), waiting(served, server)
    with closing(Visitor(served, "user:owner")) as eve:
        first = redirect(server, begin(eve, f"/approvals/{theirs}"))
        begun = [redirect(server, begin(ada, f"/approvals/{own}")) for _ in range(3)]

        assert ada.get(begun[0]).status_code == 401
        assert eve.get(first).status_code == 200
