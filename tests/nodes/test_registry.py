from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowengine import registry
from tests.rows import each_row

DIST = """Metadata-Version: 2.1
Name: extra-kinds
Version: 1.0
Provides-Extra: cloud
Requires-Dist: some-cloud-sdk>=1 ; extra == 'cloud'
"""
POINTS = """[flowengine.nodes]
greet = extra_kinds:Greet
http = extra_kinds:Greet
cloud = extra_kinds.cloud:Cloud
broken = extra_kinds.nowhere:X
wrong = extra_kinds:NOT_A_KIND
"""
KINDS = """from flowengine.sdk import StepKind
NOT_A_KIND = 1
class Greet(StepKind):
    @classmethod
    def configuration(cls):
        name = {"type": "string", "maxLength": 5}
        return {"type": "object", "properties": {"name": name}}
    async def execute(self, context, task, input):
        return f"Hello, {input['name']}!"
"""


@pytest.fixture
def third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A third-party distribution with step kinds, installed beside the built-in ones."""
    info = tmp_path / "extra_kinds-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(DIST)
    (info / "entry_points.txt").write_text(POINTS)
    package = tmp_path / "extra_kinds"
    package.mkdir()
    (package / "__init__.py").write_text(KINDS)
    (package / "cloud.py").write_text("import some_cloud_sdk\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    forget(monkeypatch)
    yield
    for name in [name for name in sys.modules if name.startswith("extra_kinds")]:
        del sys.modules[name]


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    for cache in ("_points", "_kinds", "_environments"):
        monkeypatch.setattr(registry, cache, {})


@pytest.mark.usefixtures("third_party")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "cloud",
            "step kind 'cloud' needs some_cloud_sdk, which is not installed; "
            "pip install 'extra-kinds[cloud]'",
        ),
        ("wrong", "step kind 'wrong': extra_kinds:NOT_A_KIND is not a flowengine.sdk.StepKind"),
        ("broken", "step kind 'broken' cannot be imported: No module named 'extra_kinds.nowhere'"),
    ],
)
def test_kind_that_cannot_be_used_says_why(name: str, message: str) -> None:
    with pytest.raises(registry.UnknownKind) as refused:
        registry.kind(name)

    assert refused.value.with_hint == message


def test_unknown_names_are_refused_with_those_that_exist() -> None:
    with pytest.raises(registry.UnknownKind, match="no step kind 'htp'") as kind:
        registry.kind("htp")
    with pytest.raises(registry.UnknownKind, match="no kind of environment 'moon'") as place:
        registry.environment("moon")

    assert (
        "run, shell, slack, smtp, std, web_search, webhook. Other packages can add more"
        in kind.value.with_hint
    )
    assert "installed are " in place.value.with_hint
    assert "host, " in place.value.with_hint


@pytest.mark.usefixtures("third_party")
def test_no_package_replaces_a_built_in_kind() -> None:
    assert registry.kind("http").__module__ == "flowengine_nodes.http"


@each_row("name", registry.kind_names())
def test_every_kind_brings_a_schema_of_its_configuration_and_output(name: str) -> None:
    import jsonschema_rs

    kind = registry.kind_class(name)

    for schema in (kind.configuration(), kind.output()):
        jsonschema_rs.Draft202012Validator(schema)
    main = kind.configuration().get("x-main")
    assert main is None or main in kind.configuration()["properties"]
    for tool in kind.tools().values():
        jsonschema_rs.Draft202012Validator(tool["args"])
        jsonschema_rs.Draft202012Validator(tool["returns"])
