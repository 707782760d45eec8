# Shows G15
"""Logins at MCP servers (G15): steps wait for them, and tokens are refreshed and kept secret."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from flowengine import Engine, ExecutionResult
from flowengine.errors import Conflict, StoreError
from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import NeedsApproval, StepError
from flowengine.sdk.files.logins import (
    Login,
    LoginKey,
    all_logins,
    forget_tokens,
    locked,
    logins_folder,
    read_login,
    write_login,
)
from tests.envs.mcp.notes import FLOW, Browser, NotesServer, notes_server
from tests.envs.network.ways_out import Quiet, running

ANA, BEN = "user:ana", "user:ben"


@pytest.fixture(scope="module")
def started() -> Iterator[NotesServer]:
    with notes_server() as server:
        yield server


@pytest.fixture
def server(started: NotesServer) -> Iterator[NotesServer]:
    yield started
    started.rule(
        lives=3600, refuses=False, step_up="", denies="", newest=False, declines=False, token=None
    )


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder and a user without logins."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def write(server: NotesServer, auth: str = "oauth", more: str = "") -> str:
    flow = FLOW.replace("AUTH", auth).replace("URL", server.url)
    Path("notes.yaml").write_text(flow + more)
    return "notes.yaml"


def run(
    server: NotesServer, user: str = ANA, auth: str = "oauth", store: str = "store", **more: Any
) -> ExecutionResult:
    with Engine(store, user=user) as engine:
        return engine.run(write(server, auth), **more)


def who_of(result: ExecutionResult) -> str:
    """Return the user whose token the call had."""
    assert result.outputs is not None, result.error
    return str(result.outputs["who"])


def log_in(result: ExecutionResult, user: str = ANA) -> ExecutionResult:
    """Log in, approve, and return what the execution then results in."""
    [wait] = result.waits
    with Engine("store", user=user) as engine:
        engine.approvals.log_in(wait["id"], Browser())
        decided = engine.approvals.approve(wait["id"])
        assert decided.result is not None
        return decided.result


def test_a_step_waits_for_a_login_and_later_runs_need_none(server: NotesServer) -> None:
    before = server.counts()
    first = run(server)
    assert first.status == "waiting"
    [wait] = first.waits
    assert wait["found"]["target"] == {
        "server": f"{server.url}/mcp",
        "scopes": "notes:read offline_access",
        "authorization server": f"{server.url}/",
        "page": f"{server.url}/authorize",
        "user": ANA,
    }
    assert [choice["id"] for choice in wait["choices"]] == ["approve", "reject"]
    assert server.counts()["registered"] == before["registered"]
    browser = Browser()

    with Engine("store", user=ANA) as engine:
        with pytest.raises(Conflict, match="cannot be approved before the login"):
            engine.approvals.approve(wait["id"])
        engine.approvals.log_in(wait["id"], browser)
        decided = engine.approvals.approve(wait["id"]).result
    assert decided is not None
    who = who_of(decided)
    second = run(server)

    assert second.outputs == {"who": who}
    [page] = browser.visited
    asked = parse_qs(urlsplit(page).query)
    assert asked["code_challenge_method"] == ["S256"]
    assert asked["resource"] == [f"{server.url}/mcp"]
    after = server.counts()
    assert after["registered"] == before["registered"] + 1
    assert after["codes"] == before["codes"] + 1


@pytest.mark.endurance
def test_a_login_by_another_user_is_lent_to_one_execution(server: NotesServer) -> None:
    done = log_in(run(server, ANA, id="x1"), BEN)

    assert done.status == "succeeded"
    assert run(server, BEN).outputs == done.outputs
    assert run(server, ANA).status == "waiting"
    # Another execution may have the same id.
    assert run(server, ANA, store="other", id="x1").status == "waiting"
    with Engine("store") as engine:
        assert engine.executions.prune().executions == 2
    assert run(server, ANA, id="x1").status == "waiting"


def test_expired_tokens_are_refreshed_without_a_user(server: NotesServer) -> None:
    who = who_of(log_in(run(server)))
    before = server.counts()["refreshed"]
    server.rule(expire=True)

    assert run(server).outputs == {"who": who}
    assert server.counts()["refreshed"] == before + 1
    server.rule(lives=1)  # less than the time before its expiry at which a token is replaced
    server.rule(expire=True)
    assert run(server).outputs == {"who": who}
    assert run(server).outputs == {"who": who}
    assert server.counts()["refreshed"] >= before + 3


@pytest.mark.endurance
def test_processes_do_not_use_the_same_refresh_token(server: NotesServer) -> None:
    """The server accepts a refresh token once, so a second use would ask the user again."""
    who = who_of(log_in(run(server)))
    flow, before = write(server), server.counts()["refreshed"]
    program = f"""
from flowengine import Engine
with Engine("store", user={ANA!r}) as engine:
    print(engine.run({flow!r}).outputs)
"""
    server.rule(expire=True)

    def started(_: int) -> str:
        words = [sys.executable, "-c", program]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    with ThreadPoolExecutor(3) as pool:
        assert [*pool.map(started, range(3))] == [f"{{'who': '{who}'}}\n"] * 3
    assert server.counts()["refreshed"] == before + 1


def test_a_refused_refresh_asks_again(server: NotesServer) -> None:
    who = who_of(log_in(run(server)))
    registered = server.counts()["registered"]
    server.rule(expire=True, refuses=True)
    again = run(server)
    assert again.status == "waiting", again.error
    server.rule(refuses=False)

    done = log_in(again)

    assert done.status == "succeeded"
    assert who_of(done) != who
    assert server.counts()["registered"] == registered


def test_a_declined_login_is_an_error_that_the_flow_can_catch(server: NotesServer) -> None:
    path = Path(write(server))
    caught = "call: notes.whoami, on_error: [{type: Rejected, output: {result: 'no'}}]}"
    path.write_text(path.read_text().replace("call: notes.whoami}", caught))
    server.rule(declines=True)
    with Engine("store", user=ANA) as engine:
        [wait] = engine.run(path).waits
        with pytest.raises(StepError, match="access_denied"):
            engine.approvals.log_in(wait["id"], Browser())
        decided = engine.approvals.reject(wait["id"]).result

    assert decided is not None
    assert (decided.status, decided.outputs) == ("succeeded", {"who": "no"})


@pytest.mark.parametrize("parameter", ["iss", "state"])
def test_a_redirect_of_another_login_is_refused(server: NotesServer, parameter: str) -> None:
    codes = server.counts()["codes"]
    [wait] = run(server).waits

    class Changed(Browser):
        async def visit(self, url: str) -> Mapping[str, str]:
            return {**await super().visit(url), parameter: "https://other.example"}

    with (
        Engine("store", user=ANA) as engine,
        pytest.raises(StepError, match=r"another login|iss mismatch"),
    ):
        engine.approvals.log_in(wait["id"], Changed())

    assert server.counts()["codes"] == codes


@pytest.mark.endurance
def test_a_server_may_require_more_scopes_later(server: NotesServer) -> None:
    log_in(run(server))
    server.rule(step_up="notes:write")
    waiting = run(server)
    assert waiting.status == "waiting", waiting.error
    [wait] = waiting.waits

    assert {*wait["found"]["target"]["scopes"].split()} >= {"notes:read", "notes:write"}
    assert log_in(waiting).status == "succeeded"
    assert run(server).status == "succeeded"


def test_a_login_that_cannot_add_scopes_is_not_requested(server: NotesServer) -> None:
    who = who_of(log_in(run(server)))
    server.rule(denies="notes:read")
    failed = run(server)

    assert failed.status == "failed"
    assert failed.error is not None
    assert "requires the scopes notes:read" in failed.error["message"]
    server.rule(denies="")
    assert run(server).outputs == {"who": who}


@pytest.mark.endurance
def test_a_flow_may_request_scopes(server: NotesServer) -> None:
    auth = "{scopes: ['notes:read', 'notes:write']}"
    log_in(run(server))
    waiting = run(server, auth=auth)
    assert waiting.status == "waiting", waiting.error
    [wait] = waiting.waits

    assert "notes:write" in wait["found"]["target"]["scopes"]
    assert log_in(waiting).status == "succeeded"
    assert run(server, auth=auth).status == "succeeded"


def test_a_registered_client_uses_its_secret(
    server: NotesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTES_SECRET", "SECRET-of-the-client")
    secret = 'client_id: known, client_secret: "${{ secrets.NOTES }}"'
    path = write(server, f"{{{secret}}}", "secrets: {NOTES: {env: NOTES_SECRET}}\n")
    with Engine("store", user=ANA) as engine:
        refused = engine.run(path).error
    assert "'client_secret' needs 'client_id' and 'issuer'" in str(refused)
    auth = f'{{{secret}, issuer: "{server.url}/"}}'
    write(server, auth, "secrets: {NOTES: {env: NOTES_SECRET}}\n")
    registered, refreshed = (server.counts()[name] for name in ("registered", "refreshed"))

    with Engine("store", user=ANA) as engine:
        waiting = engine.run(path)
        who = who_of(log_in(waiting))
        server.rule(expire=True)
        assert who_of(engine.run(path)) == who

    assert server.counts()["registered"] == registered
    assert server.counts()["refreshed"] == refreshed + 1
    [kept] = Path(logins_folder()).glob("*.json")
    assert "SECRET-of-the-client" not in kept.read_text()
    assert run(server).status == "waiting"  # a login belongs to one client


@pytest.mark.endurance
def test_a_client_may_act_for_itself(server: NotesServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTES_SECRET", "SECRET-of-the-client")
    auth = (
        "{grant: client_credentials, client_id: machine, "
        f'client_secret: "${{{{ secrets.NOTES }}}}", issuer: "{server.url}/"}}'
    )
    path = write(server, auth, "secrets: {NOTES: {env: NOTES_SECRET}}\n")

    with Engine("store", user=ANA) as engine:
        assert engine.run(path).outputs == {"who": "machine"}
        server.rule(expire=True)
        assert engine.run(path).outputs == {"who": "machine"}
        monkeypatch.setenv("NOTES_SECRET", "wrong")
        failed = engine.run(path)

    assert failed.error is not None
    assert "invalid_client" in failed.error["message"]
    assert all_logins() == []


@pytest.mark.endurance
def test_one_of_several_servers_may_need_a_login(server: NotesServer) -> None:
    path = Path(write(server))
    path.write_text(
        path.read_text()
        .replace("{mcp: {url", "{mcp: {servers: {mine: {url")
        .replace("oauth}}", "oauth}}}}")
        .replace("notes.whoami", "notes.mine.whoami")
    )
    with Engine("store", user=ANA) as engine:
        waiting = engine.run(path)

    assert log_in(waiting).status == "succeeded"


class Agreeing:
    """A program that approves each call."""

    async def approve_tool(self, request: Any) -> Any:
        return {"approved": True}


def test_rules_and_programs_cannot_log_in(
    server: NotesServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    config = folder / "config" / "flowengine"
    config.mkdir(parents=True)
    (config / "rules.yaml").write_text("rules: [{allow: '*'}]\n")

    with Engine("store", user=ANA, tool_authority=Agreeing()) as engine:
        waiting = engine.run(write(server))

    assert [wait["found"]["target"]["user"] for wait in waiting.waits] == [ANA]
    assert log_in(waiting).status == "succeeded"


@pytest.mark.endurance
@pytest.mark.parametrize("eager", ["true", "background"])
def test_an_environment_that_is_opened_early_waits_too(server: NotesServer, eager: str) -> None:
    Path("early.yaml").write_text(
        f"""\
flowengine: 1
id: early
environments:
  notes: {{kind: mcp, eager: {eager}, config: {{url: "{server.url}/mcp", auth: oauth}}}}
tools: {{notes: {{mcp: {{in: notes}}}}}}
steps: [{{id: who, call: notes.whoami}}]
outputs: {{who: "${{{{ steps.who.output.result }}}}"}}
"""
    )
    with Engine("store", user=ANA) as engine:
        waiting = engine.run("early.yaml")

    assert log_in(waiting).status == "succeeded"


def test_an_agent_waits_for_a_login_before_it_lists_the_tools(server: NotesServer) -> None:
    Path("replies.yaml").write_text("- calls: [{name: notes.whoami, arguments: {}}]\n- Done.\n")
    Path("agent.yaml").write_text(
        f"""\
flowengine: 1
id: helper
tools: {{notes: {{mcp: {{url: "{server.url}/mcp", auth: oauth}}}}}}
agents:
  helper: {{model: scripted/replies.yaml, instructions: Help., tools: ["notes.*"]}}
steps: [{{id: work, agent: helper, with: {{prompt: Who am I?}}}}]
outputs: {{answer: "${{{{ steps.work.output }}}}"}}
"""
    )
    calls = server.counts()["calls"]
    with Engine("store", user=ANA) as engine:
        waiting = engine.run("agent.yaml")

    assert log_in(waiting).outputs == {"answer": "Done."}
    assert server.counts()["calls"] == calls + 1


def test_tokens_are_only_in_the_files_of_the_user(
    server: NotesServer, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    log_in(run(server))
    server.rule(expire=True)
    run(server)
    echoes = Path(write(server)).read_text().replace("notes.whoami", "notes.echo")
    Path("echo.yaml").write_text(echoes)
    with Engine("store", user=ANA) as engine:
        assert engine.run("echo.yaml").outputs == {"who": "you sent ***"}
    issued = server.counts()["issued"]

    [kept] = [path for path in Path(logins_folder()).iterdir() if path.suffix == ".json"]
    assert stat.S_IMODE(os.stat(kept).st_mode) == 0o600
    token = read_login(LoginKey(ANA, f"{server.url}/mcp")).token
    assert token is not None
    assert {token["access_token"], token["refresh_token"]} <= {*issued}
    for path in folder.rglob("*"):
        if path.is_file() and path != kept:
            data = path.read_bytes()
            assert not [secret for secret in issued if secret.encode() in data], path
    assert not [secret for secret in issued if secret in caplog.text]


class Luring(Quiet):
    """A server whose metadata are at an internal address."""

    def do_POST(self) -> None:
        self.send_response(401)
        address = "https://169.254.169.254/metadata"
        self.send_header("www-authenticate", f'Bearer resource_metadata="{address}"')
        self.send_header("content-length", "0")
        self.end_headers()


def test_a_server_cannot_make_the_host_request_internal_addresses() -> None:
    with running(ThreadingHTTPServer(("127.0.0.1", 0), Luring)) as http:
        result = run(NotesServer(f"http://127.0.0.1:{http.server_port}"))

    assert result.error is not None
    assert "https://169.254.169.254/metadata is not requested" in result.error["message"]


def test_a_secret_is_not_sent_to_the_server_of_an_earlier_login(
    server: NotesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither to refresh its token."""
    monkeypatch.setenv("NOTES_SECRET", "SECRET-of-the-client")
    auth = '{client_id: known, client_secret: "${{ secrets.NOTES }}", issuer: "URL/"}'
    path = write(server, auth, "secrets: {NOTES: {env: NOTES_SECRET}}\n")
    with Engine("store", user=ANA) as engine:
        log_in(engine.run(path))
        before = server.counts()["refreshed"]
        key = LoginKey(ANA, f"{server.url}/mcp", "known")
        with locked(key) as login:
            assert login.metadata is not None
            login.metadata["issuer"] = "https://elsewhere.example/"
            write_login(login)
        server.rule(expire=True)
        assert engine.run(path).status == "waiting"
    assert server.counts()["refreshed"] == before


@pytest.mark.parametrize("token", ["two\nlines", "", "é"])
def test_a_token_that_cannot_be_sent_is_refused_when_it_arrives(
    server: NotesServer, folder: Path, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.rule(token=f"SECRET-{token}" if token else "")
    waiting = run(server)

    with pytest.raises(StepError, match="the access_token is not a token"):
        log_in(waiting)

    assert read_login(LoginKey(ANA, f"{server.url}/mcp")).token is None
    assert "mcp.client.auth" not in caplog.text  # it quotes responses of the token endpoint
    for path in folder.rglob("*"):
        assert not path.is_file() or b"SECRET" not in path.read_bytes()


@pytest.mark.parametrize(
    "text",
    [
        "{" + "x" * 2 * 1024 * 1024,
        "[" * 100_000,
        '{"user": "user:ben", "url": "URL/mcp", "token": {}, "lent": 5}',
    ],
    ids=["large", "deep", "types"],
)
def test_a_large_login_is_not_kept_and_a_bad_file_is_that_of_one_user(
    server: NotesServer, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    who = who_of(log_in(run(server)))
    large = Login(BEN, f"{server.url}/mcp", metadata={"more": "x" * 1024 * 1024})
    with locked(large.key), pytest.raises(StoreError, match="more than 1 MiB"):
        write_login(large)
    Path(large.key.path).write_text(text.replace("URL", server.url))

    assert run(server).outputs == {"who": who}
    assert run(server, "user:carla").status == "waiting"
    assert "is not a login" in caplog.text
    assert "is not a login" in str(run(server, BEN).error)
    caplog.clear()
    assert {login.user for login in all_logins()} == {ANA, "user:carla"}


def test_a_server_without_tls_gets_no_token() -> None:
    result = run(NotesServer("http://notes.example"))

    assert result.error is not None
    assert "must begin with https://" in result.error["message"]


def test_an_open_session_notices_that_its_login_is_removed(server: NotesServer) -> None:
    """It keeps what it has read while no login changes."""
    who = who_of(log_in(run(server)))
    os.utime(logins_folder(), (1e9, 1e9))  # long ago: later requests do not read it again
    config = {"url": f"{server.url}/mcp", "auth": "oauth"}
    with EnvironmentManager("environments") as manager:
        session = manager.ensure({"kind": "mcp", "config": config, "user": ANA}).resource
        assert [session.call_tool("whoami").text for _ in range(2)] == [who, who]
        forget_tokens(LoginKey(ANA, f"{server.url}/mcp"))

        with pytest.raises(NeedsApproval):
            session.call_tool("whoami")
