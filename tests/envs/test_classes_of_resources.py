"""A flow is checked against the resource classes of its kinds, even without their extras."""

from __future__ import annotations

import re
from pathlib import Path

from flowengine import registry

PAGE = Path(__file__).parents[2] / "docs" / "environments.md"


def test_a_class_is_asked_of_the_kind_of_its_own_module_first() -> None:
    assert registry.kinds_from("flowengine_envs.kinds.files")[0] == "files"
    assert registry.kinds_from("flowengine_envs.documents.reader")[0] == "documents"
    assert registry.kinds_from("json") == []


def test_the_page_names_a_class_of_each_kind() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(flowengine_envs\..*)` \|$", PAGE.read_text(), re.MULTILINE)

    assert dict(rows).keys() == {*registry.kinds_from("flowengine_envs")}
    for kind, name in rows:
        classes = registry.provider(kind).resource_types()
        assert name in [f"{one.__module__}.{one.__qualname__}" for one in classes]
