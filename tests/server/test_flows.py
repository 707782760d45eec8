# Shows V10, V30
"""Flows and schedules over the API: checked and deployed as text, within what the host allows."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from flowengine import Client, Engine, FlowFileError, NotAllowed
from flowengine.engines.flows import load_text
from flowengine.server import flows
from tests.replacing import Limits
from tests.rows import each_row
from tests.server.api import LOCAL, Api
from tests.server.conftest import SETTINGS
from tests.server.test_client import URL
from tests.server.transport import Transport

GREET = """
flowengine: 1
id: greet
inputs: {name: {type: string, default: Ada}}
start: [{schedule: "0 9 * * *", timezone: UTC}]
steps: [{id: say, output: "Hello ${{ inputs.name }}"}]
outputs: {text: "${{ steps.say.output }}"}
"""
RUNS = """
flowengine: 1
id: runs
steps: [{id: here, in: host, run: {command: [id]}}]
"""
CALLS = """
flowengine: 1
id: calls
tools: {go: {python: "MODULE:NAME", effect: pure}}
steps: [{id: here, call: go, with: {text: a}}]
"""
IMPORTS = """
flowengine: 1
id: imports
imports: {lib: PATH}
steps: [{id: here, output: 1}]
"""
SECRET = "flowengine: 1\nid: secret\nsteps: [{id: a, output: 4711}]\n"


def settings(api: Api, folder: Path, deploys: str) -> Api:
    """Return a server whose host allows deployments."""
    (folder / "config" / "flowengine" / "settings.yaml").write_text(f"{SETTINGS}\n{deploys}\n")
    return Api(folder / "other", ())


@pytest.mark.endurance
def test_a_text_is_checked_with_places(api: Api) -> None:
    ok = api("POST", "/v1/flows/check", {"text": GREET}, token=api.token("user:vera"), code=200)
    assert ok == {"errors": [], "warnings": [], "flow": "greet"}
    bad = GREET.replace("inputs.name", "inputs.nme")
    found = api("POST", "/v1/flows/check", {"text": bad, "name": "greet.yaml"}, code=200)
    [error] = found["errors"]
    assert (error["file"], error["line"], error["code"][0]) == ("greet.yaml", 6, "E")
    for text in ("", "a: [", "\x00", "- 1", "x" * 1_000_000):
        assert api("POST", "/v1/flows/check", {"text": text}, code=200)["errors"]
    with Client(URL, LOCAL, transport=Transport(api)) as client:
        assert client.flows.check(bad)["errors"][0]["code"] == error["code"]


def nested(depth: int) -> str:
    """Return a flow whose default takes 2 ** depth steps to validate."""
    both = ", ".join(["{{$ref: '#/$defs/a{}'}}"] * 2)
    pairs = "".join(
        f"        a{at}: {{allOf: [{both.format(at + 1, at + 1)}]}}\n" for at in range(depth)
    )
    return (
        "flowengine: 1\nid: nested\ninputs:\n  a:\n    default: 1\n    $ref: '#/$defs/a0'\n"
        f"    $defs:\n{pairs}        a{depth}: {{type: integer}}\nsteps: [{{id: s, output: 1}}]\n"
    )


@pytest.mark.endurance
def test_a_check_that_takes_too_long_ends_and_holds_up_no_one(
    api: Api, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    begun, run = threading.Event(), subprocess.run

    def noted(command: Any, **options: Any) -> Any:
        busy = "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass"
        command = command if begun.is_set() else [sys.executable, "-c", busy]
        begun.set()
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", noted)
    vera, ben = api.token("user:vera"), api.token("user:ben")
    with ThreadPoolExecutor() as threads:
        slow = threads.submit(api, "POST", "/v1/flows/check", {"text": GREET}, token=vera, code=422)
        while not api.application._checking._own.get("user:vera"):
            assert not slow.done()
        assert begun.wait(60)
        limits(flows, SECONDS=60)  # the others have all time that they need
        api("POST", "/v1/flows/check", {"text": GREET}, token=vera, code=429)
        assert api("POST", "/v1/flows/check", {"text": GREET}, token=ben, code=200)["flow"]
        assert "cannot be checked in" in slow.result()["detail"]


def test_a_schema_without_bound_is_refused_at_once(api: Api) -> None:
    few = api("POST", "/v1/flows/check", {"text": nested(3)}, code=200)
    assert few["flow"] == "nested", few
    [error] = api("POST", "/v1/flows/check", {"text": nested(60)}, code=200)["errors"]
    assert "more than 100,000 times" in error["message"]


@pytest.mark.endurance
def test_what_was_checked_is_deployed_and_not_compiled_again(
    api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = settings(api, tmp_path, "deploys: {}")
    form = load_text(GREET).form
    monkeypatch.setattr("flowengine.flow.compile.compile_text", None)
    assert server("POST", "/v1/flows", {"text": GREET}, code=201)["hash"] == form
    assert server("POST", "/v1/flows", {"text": "flowengine: 1"}, code=422)["errors"]


def test_checks_that_wait_for_others_do_not_take_the_places_of_requests(
    api: Api, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    checking = api.application._checking
    monkeypatch.setattr(checking, "_free", asyncio.Semaphore(0))
    monkeypatch.setattr(api.application, "_working", None)
    told = api("POST", "/v1/flows/check", {"text": GREET}, code=429)
    assert "other users" in told["detail"]
    monkeypatch.undo()
    limits(flows, SECONDS=60)  # all the time that it needs
    api("POST", "/v1/flows/check", {"text": GREET}, code=200)


@pytest.mark.endurance
@pytest.mark.parametrize(
    "text",
    [
        CALLS.replace("MODULE:NAME", "os:getcwd"),
        CALLS.replace("MODULE:NAME", "beside:go"),
        CALLS.replace("MODULE:NAME", "beside_other:go"),
        IMPORTS.replace("PATH", "secret.yaml"),
        IMPORTS.replace("PATH", "flowengine:flow/x.yaml"),
        IMPORTS.replace("PATH", "/etc/passwd"),
        *(
            f"flowengine: 1\nid: a\nagents: {{x: {{model: m/x, {key}}}}}\nsteps: "
            "[{id: s, agent: x, with: {input: hi}}]\n"
            for key in ("skills: [skills/*]", "instructions: {file: secret.yaml}")
        ),
    ],
)
def test_a_check_reads_nothing_of_the_machine(api: Api, tmp_path: Path, text: str) -> None:
    (tmp_path / "secret.yaml").write_text(SECRET)
    (tmp_path / "beside.py").write_text("def go(text: str) -> str:\n    return text\n")
    (tmp_path / "skills" / "one").mkdir(parents=True)
    (tmp_path / "skills" / "one" / "SKILL.md").write_text(
        "---\nname: one\ndescription: 4711\n---\n"
    )
    for place in (tmp_path / "other", tmp_path):
        path = place / "flow.yaml"
        name = str(path)
        found = api("POST", "/v1/flows/check", {"text": text, "name": name[-200:]}, code=200)
        assert found["errors"], found
        assert "4711" not in str(found)
        assert "did you mean" not in str(found)


@pytest.mark.endurance
def test_only_what_the_host_allows_is_deployed(api: Api, tmp_path: Path) -> None:
    told = api("POST", "/v1/flows", {"text": GREET}, code=403)
    assert "does not allow deployments" in told["detail"]

    def told_by(server: Api, text: str, code: int) -> Any:
        return server(
            "POST", "/v1/flows", {"text": text}, token=server.token("user:ada"), code=code
        )

    strict = settings(api, tmp_path, "deploys: {}")
    try:
        assert told_by(strict, GREET, 201)["starts"][0]["schedule"] == "0 9 * * *"
        assert "runs programs on the host" in told_by(strict, RUNS, 403)["detail"]
        call = CALLS.replace("MODULE:NAME", "json:loads")
        assert "does not allow the module 'json'" in str(told_by(strict, call, 422)["errors"])
        assert told_by(strict, GREET.replace("Hello", "Hi"), 201)["hash"]
        names = [flow["flow"] for flow in strict("GET", "/v1/flows")["items"]]
        assert names == ["greet"]
    finally:
        strict.close()
    loose = settings(api, tmp_path, "deploys: {host: true, modules: [textwra*]}")
    try:
        told_by(loose, RUNS, 201)
        indent = CALLS.replace("MODULE:NAME", "textwrap:dedent")
        assert told_by(loose, indent, 201)["modules"] == ["textwrap"]
        execution = loose("POST", "/v1/executions", {"flow": "calls"}, code=201)["execution"]
        assert loose.engine.resume(execution).status == "succeeded"
    finally:
        loose.close()


FILES = """
flowengine: 1
id: files
inputs: {place: {type: string, default: /etc}}
environments:
  own: {kind: files}
  place: ENVIRONMENT
steps: [STEP]
"""
WRITE = "{id: a, call: std.write_file, with: {path: .bashrc, text: x}}"
OWN = "{id: a, call: std.write_file, environments: {files: own}, with: {path: a, text: x}}"
IN_PLACE = OWN.replace("own", "place")
QUERY = "{id: a, run: select 1, in: place}"
READ = "{id: a, call: std.read_document, environments: {documents: place}, with: {path: x}}"
VISIT = "{id: a, call: std.visit_page, environments: {documents: place}, with: {address: ADDRESS}}"
OPEN = "{id: a, call: std.browser_open, environments: {browser: place}, with: {url: 'https://a.b'}}"
AGENT = "{id: a, agent: {model: m/x, instructions: hi, tools: [std.visit_page]}, with: {prompt: x}}"
AGENTS = f"flowengine: 1\nid: agents\nsteps: [{AGENT}]\n"
OF_SECRET = """{id: a, http: {url: "https://a.b/${{ secrets.key }}"}}]
secrets: {key: {file: /root/.ssh/id_rsa}, other: {env: KEY}}
#"""
DOCUMENTS = "{kind: documents}"
SEEING = "{kind: documents, config: {vision_model: MODEL}}"
CONVERTING = "{kind: documents, config: {converters: FUNCTIONS}}"
READ_WEB = READ.replace("path: x", "url: 'https://a.b'")


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("environment", "step", "uses"),
    [
        ("{kind: files}", WRITE, "uses '.'"),
        ("{kind: files, config: {path: /root}}", IN_PLACE, "uses '/root'"),
        ("{kind: files, config: {path: FOLDER/../x}}", IN_PLACE, "/../x'"),
        ("{kind: files, config: {path: FOLDER/link}}", IN_PLACE, "/link'"),
        ("{kind: files, config: {path: '${{ inputs.place }}'}}", IN_PLACE, "an expression"),
        ("{kind: sqlite, config: {path: /srv/x.db}}", QUERY, "uses '/srv/x.db'"),
        ("{kind: bash, provider: docker, config: {image: {build: /srv}}}", QUERY, "uses '/srv'"),
        ("{kind: documents, config: {converters: ['inis:read']}}", QUERY, "uses 'inis.py'"),
        ("{kind: files, config: {path: FOLDER/in}}", IN_PLACE, ""),
        ("{kind: sqlite, config: {path: ':memory:'}}", QUERY, ""),
        ("{kind: sqlite, config: {path: FOLDER/x.db}}", QUERY, ""),
    ],
)
def test_only_files_that_the_host_allows_are_deployed(
    api: Api, tmp_path: Path, environment: str, step: str, uses: str
) -> None:
    folder = tmp_path / "allowed"
    folder.mkdir()
    (folder / "link").symlink_to("/etc")
    text = FILES.replace("ENVIRONMENT", environment).replace("STEP", step)
    body = {"text": text.replace("FOLDER", str(folder))}
    strict = settings(api, tmp_path, f"deploys: {{folders: [{folder}]}}")
    try:
        answer = strict("POST", "/v1/flows", body, token=strict.token("user:ada"))
        if uses:
            assert uses in answer["detail"], answer
            assert (answer["status"], strict("GET", "/v1/flows")["items"]) == (403, [])
        else:
            assert answer["flow"] == "files", answer
    finally:
        strict.close()


@each_row(
    ("environment", "step", "used"),
    [
        ("{kind: bash, provider: docker, config: {image: '${{ inputs.place }}'}}", QUERY, None),
        ("{kind: python, config: {interpreter: /srv/x/bin/python}}", QUERY, "/srv/x/bin/python"),
        ("{kind: browser, config: {storage_state: /srv/a.json}}", OPEN, "/srv/a.json"),
        ("{kind: sqlite, config: {path: ':memory:', roots: [/]}}", QUERY, "/"),
        ("{kind: sqlite, config: {path: ':memory:', roots: ['${{ inputs.place }}']}}", QUERY, None),
        (DOCUMENTS, READ, "."),
        (DOCUMENTS, VISIT.replace("ADDRESS", "notes.txt"), "."),
        (DOCUMENTS, VISIT.replace("ADDRESS", "'${{ inputs.place }}'"), ""),
        (DOCUMENTS, AGENT, ""),
        (SEEING.replace("MODEL", "scripted//etc/x.yaml"), READ_WEB, "/etc/x.yaml"),
        (SEEING.replace("MODEL", "'${{ inputs.place }}'"), READ_WEB, None),
        ("{kind: browser, config: {program: /bin/sh}}", OPEN, "/bin/sh"),
        (DOCUMENTS, OF_SECRET, "/root/.ssh/id_rsa"),
        (CONVERTING.replace("FUNCTIONS", "['formats.ini:read']"), READ_WEB, "formats/ini.py"),
        (CONVERTING.replace("FUNCTIONS", "'${{ [inputs.place] }}'"), READ_WEB, None),
        (DOCUMENTS, READ.replace("path: x", "url: '${{ inputs.place }}'"), ""),
        (DOCUMENTS, READ.replace("place}", "place, files: own}"), ""),
    ],
)
def test_all_files_of_the_host_that_a_flow_uses_are_known(
    environment: str, step: str, used: str | None
) -> None:
    text = FILES.replace("ENVIRONMENT", environment).replace("STEP", step)
    assert [*load_text(text).host_files.values()] == ([] if used == "" else [[used]])
    assert load_text(AGENTS, host=True).host_files == {"step 'std.visit_page'": ["."]}


@pytest.mark.endurance
def test_deployed_flows_visit_pages_and_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("4711")
    (tmp_path / "sub").mkdir()
    visit = VISIT.replace("ADDRESS", "'${{ inputs.place }}'")
    flow = load_text(FILES.replace("ENVIRONMENT", DOCUMENTS).replace("STEP", visit))
    told = {}
    with Engine(tmp_path / "store", durability="none") as engine:
        for name in ("notes.txt", "/etc/hostname", "../notes.txt", "sub", "", "file:///etc/passwd"):
            result = engine.run(flow, {"place": name})
            assert result.error is not None
            told[name] = result.error["message"]
    assert "leads out of the workspace" in told.pop("file:///etc/passwd")
    assert all("this flow may not read files of the host" in text for text in told.values()), told


@each_row("agent", ["model: scripted//etc/x.yaml", "model: a/b, fallbacks: [NAME]"])
def test_models_of_deployed_flows_are_no_files(agent: str) -> None:
    text = AGENTS.replace("model: m/x", agent.replace("NAME", "scripted/x.json"))
    with pytest.raises(FlowFileError, match="names no file of the server's machine"):
        load_text(text)
    assert load_text(AGENTS.replace("m/x", "scripted/registered"))


@pytest.mark.endurance
def test_clients_deploy_and_operate_schedules(api: Api, tmp_path: Path) -> None:
    server = settings(api, tmp_path, "deploys: {}")
    path = tmp_path / "greet.yaml"
    path.write_text(GREET)
    try:
        with Client(URL, server.token("user:ada"), transport=Transport(server)) as client:
            first = client.flows.deploy(path)
            path.write_text(GREET.replace("Hello", "Hi") + "version: '2'\n")
            second = client.flows.deploy(path)
            assert client.flows.versions("greet") == server.engine.flows.versions("greet")
            assert (first["hash"] != second["hash"], second["current"]) == (True, True)
            assert client.flows.starts() == server.engine.flows.starts()
            assert client.flows.starts("greet")[0]["next"].endswith("T09:00:00Z")
            assert "next" not in client.flows.pause("greet")[0]
            assert "next" in client.flows.resume("greet")[0]
            id = client.flows.trigger("greet")
            assert server.engine.resume(id).outputs == {"text": "Hi Ada"}
            until = datetime.now(UTC)
            past = client.flows.record_past("greet", until - timedelta(days=3), until)
            again = client.flows.record_past("greet", until - timedelta(days=3), until)
            assert len(past) == 3
            assert again == past
            path.write_text(GREET.replace("inputs.name", "inputs.nme"))
            with pytest.raises(FlowFileError):
                client.flows.deploy(path)
            assert client.flows.undeploy("greet@0") == ["greet@0"]
            assert client.flows.undeploy("greet") == ["greet@2"]
        with (
            Client(URL, server.token("user:otto"), transport=Transport(server)) as otto,
            pytest.raises(NotAllowed, match="administer"),
        ):
            otto.flows.deploy(path)
        sam = server.token("user:sam")  # may start other flows
        for verb, code in (("pause", 403), ("resume", 403), ("trigger", 404)):
            server("POST", f"/v1/schedules/greet/{verb}", {}, token=sam, code=code)
    finally:
        server.close()
