"""Files in the values of requests: only uploads of the user who sends them, never a path."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.errors import InputError, NotFound
from flowengine.server.sent_values import no_uploads, sent_values
from flowengine.server.signals import keyed_data
from tests.rows import each_row
from tests.server.api import Api

CLAIMS = """
flowengine: 1
id: claims
inputs:
  scan: {format: file, default: null}
  more: {type: array, items: {anyOf: [{format: file}, {type: "null"}]}, default: []}
  named: {type: object, additionalProperties: {type: object, format: file}, default: {}}
  note: {anyOf: [{type: string}, {type: object, format: file}], default: ""}
state:
  kept: {format: file, default: null}
signals:
  added: {data: {type: object, properties: {proof: {format: file}}}, key: "all"}
start: [{signal: added, with: {}}]
steps:
  - id: ask
    approval:
      title: Book it?
      assignees: ["user:ben", "user:ada"]
      subject: {scan: "${{ inputs.scan }}"}
      edit: true
      form:
        type: object
        $defs: {File: {type: object, format: file}}
        properties: {proof: {$ref: "#/$defs/File"}}
  - {id: more, wait: {signal: added}}
"""
BEGUN = """
flowengine: 1
id: begun
inputs:
  key: {type: string}
  scan: {format: file, default: null}
signals: {came: {data: {type: object}, key: "${{ inputs.key }}"}}
start:
  - signal: came
    with: {key: "${{ signal.key }}", scan: "${{ has(signal.data.scan) ? signal.data.scan : null }}"}
steps:
  - {id: more, wait: {signal: came}}
"""
READS = BEGUN.replace("format: file", "format: path").replace("begun", "reads")
READS = READS.replace("came", "named")
SECRET = "/etc/passwd"
FORGED: list[Any] = [
    SECRET,
    {"path": SECRET},
    {"path": SECRET, "name": "a", "size": 1},
    {"path": SECRET, "name": "a", "size": 1, "sha256": None},
    {"path": SECRET, "name": "a", "size": 1, "sha256": "0" * 64, "more": 1},
    {"path": {"path": SECRET}},
]
OF_OTHERS = {"name": "a.txt", "size": 1, "sha256": "0" * 64, "path": SECRET}


@pytest.fixture
def flows() -> tuple[str, ...]:
    return (CLAIMS, BEGUN, READS)


@pytest.mark.parametrize("forged", [*FORGED, OF_OTHERS])
def test_no_request_gives_a_flow_a_path_of_the_server(api: Api, forged: Any) -> None:
    ada, refused = api.token("user:ada"), 404 if forged == OF_OTHERS else 422
    api("POST", "/v1/executions", {"flow": "claims", "id": "e1"}, token=ada, code=201)
    [wait] = api.engine.resume("e1").waits
    decision = f"/v1/approvals/{wait['id']}/decision"
    starts = [{"scan": forged}, {"more": [None, forged]}, {"named": {"a": forged}}]
    starts += [] if isinstance(forged, str) else [{"note": forged}]
    requests: list[tuple[str, dict[str, Any]]] = [
        *(("/v1/executions", {"flow": "claims", "inputs": inputs}) for inputs in starts),
        (decision, {"choice": "approve", "form": {"proof": forged}}),
        ("/v1/executions/e1/fork", {"from_step": "ask", "set": {"kept": forged}}),
        ("/v1/executions/e1/signals/added", {"data": {"proof": forged}}),
        ("/v1/signals/added", {"key": "all", "data": {"proof": forged}}),
        (
            "/v1/executions/e1/upgrade",
            {"flow": "claims", "check": True, "mapping": {"values": {"inputs": {"scan": forged}}}},
        ),
    ]
    for path, body in requests:
        problem = api("POST", path, body, token=ada)
        assert problem["status"] == refused, (path, body, problem)
    with pytest.raises((InputError, NotFound)):
        keyed_data(api.engine, no_uploads, "added", "all", {"proof": forged})
    assert [item["execution"] for item in api.engine.executions.list().items] == ["e1"]


def test_texts_and_data_that_are_no_files_pass_as_they_are() -> None:
    schemas = {"text": {"anyOf": [{"type": "string"}, {"format": "file"}]}, "data": True}
    given = {"text": SECRET, "data": {"path": "/shop", "list": [{"path": 1}]}, "unknown": {"a": 1}}

    assert sent_values(no_uploads, schemas, given, "input") == given
    assert sent_values(no_uploads, schemas, [1], "input") == [1]


def test_schemas_that_refer_to_themselves_end() -> None:
    tree: dict[str, Any] = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    tree["properties"]["file"] = {"format": "file"}
    value: Any = {"file": {"path": SECRET}}
    for _ in range(50):
        value = {"next": value}

    with pytest.raises(InputError, match="input 'tree' must name a file that was uploaded"):
        sent_values(no_uploads, {"tree": tree}, {"tree": value}, "input")


@pytest.mark.parametrize("forged", [*FORGED[1:], OF_OTHERS])
def test_no_signal_that_starts_a_flow_gives_it_a_path(api: Api, forged: Any) -> None:
    ada = api.token("user:ada")
    for data in ({"scan": forged}, {"some": [{"name": forged}]}):
        problem = api("POST", "/v1/signals/came", {"key": "a", "data": data}, token=ada)
        assert problem["status"] == (404 if forged == OF_OTHERS else 422), problem
        with pytest.raises((InputError, NotFound)):
            keyed_data(api.engine, no_uploads, "came", "a", data)
    api("POST", "/v1/signals/named", {"key": "a", "data": {"scan": "a"}}, token=ada, code=422)
    assert api.engine.executions.list().items == []

    api("POST", "/v1/signals/came", {"key": "a", "data": {"some": "/shop"}}, token=ada, code=202)


EDITED = """
flowengine: 1
id: edited
inputs: {scan: {format: file}, free: {}}
steps:
  - id: ask
    approval:
      title: Book it?
      assignees: ["user:ada"]
      subject: {scan: "${{ inputs.scan }}", free: "${{ inputs.free }}"}
      edit: true
outputs: {subject: "${{ steps.ask.output.subject }}"}
"""


@pytest.mark.parametrize("flows", [(EDITED,)])
def test_no_edit_leads_into_a_file(api: Api) -> None:
    ada = api.token("user:ada")
    [file, other] = [
        api("POST", "/v1/artifacts?name=a.txt", content=text, token=ada, code=201)
        for text in (b"one", b"two")
    ]
    inputs = {"scan": file, "free": {"title": "a", "files": [file]}}
    body = {"flow": "edited", "id": "e1", "inputs": inputs}
    api("POST", "/v1/executions", body, token=ada, code=201)
    [wait] = api.engine.resume("e1").waits
    decision = f"/v1/approvals/{wait['id']}/decision"
    for edit in (
        {"scan.path": SECRET},
        {"scan.sha256": "0" * 64},
        {"scan": FORGED[1]},
        {"free": {"files": [FORGED[1]]}},
        {"free.files": [SECRET]},
    ):
        problem = api("POST", decision, {"choice": "approve", "edit": edit}, token=ada)
        assert problem["status"] == 422, (edit, problem)

    edit = {"scan": other, "free.title": "b", "free.files": [other]}
    api("POST", decision, {"choice": "approve", "edit": edit}, token=ada, code=200)
    outputs = api.engine.resume("e1").outputs
    assert outputs is not None
    subject = outputs["subject"]
    assert subject["free"] == {"title": "b", "files": [subject["scan"]]}
    assert subject["scan"]["sha256"] == other["sha256"]


FILE = {"format": "file"}
FORGED_FILE = {"path": SECRET}


@each_row(
    ("schema", "value"),
    [
        ({"dependentSchemas": {"x": {"properties": {"f": FILE}}}}, {"x": 1, "f": FORGED_FILE}),
        ({"not": {"not": FILE}}, FORGED_FILE),
        ({"contains": FILE}, [FORGED_FILE]),
        ({"unevaluatedProperties": FILE}, {"a": FORGED_FILE}),
        ({"unevaluatedItems": FILE}, [FORGED_FILE]),
        ({"$dynamicRef": "#f", "$defs": {"f": {"$dynamicAnchor": "f", **FILE}}}, FORGED_FILE),
        ({"$ref": "#f", "$defs": {"f": {"$anchor": "f", **FILE}}}, FORGED_FILE),
        ({"$ref": "#/$defs/a%20b", "$defs": {"a b": FILE}}, FORGED_FILE),
        ({"$ref": "#/$defs/a/anyOf/0", "$defs": {"a": {"anyOf": [FILE]}}}, FORGED_FILE),
        ({"$ref": "#/$defs/p", "$defs": {"p": {"format": "path"}}}, SECRET),
        ({"$ref": "#/$defs/around"}, SECRET),
        ({"items": {"anyOf": [{"format": "path"}, {"type": "null"}]}}, [SECRET]),
    ],
)
def test_files_and_paths_are_recognized_by_all_keywords(schema: Any, value: Any) -> None:
    root = {"$defs": {"around": {"type": "string", "format": "path"}}}

    with pytest.raises(InputError):
        sent_values(no_uploads, {"a": schema}, {"a": value}, "field", root)


# Shows V33
def test_a_fork_reads_files_as_the_version_does_that_it_begins_with(api: Api) -> None:
    execution = api.engine.run(api.flows[0], {}, id="old").execution
    path = api.folder / "later.yaml"
    path.write_text(CLAIMS.replace("kept: {format: file, default: null}", "kept: {default: null}"))
    later = api.engine.load(path)
    api.engine.flows.deploy(later)
    [moved] = api.engine.executions.upgrade(later, execution)
    assert moved["moved"]
    fork = {"from_step": "ask", "set": {"kept": {"path": SECRET}}}
    refused = api("POST", f"/v1/executions/{execution}/fork", fork, code=422)
    assert refused["field"] == "kept"
    api("POST", f"/v1/executions/{execution}/fork", {**fork, "set": {}}, code=201)
