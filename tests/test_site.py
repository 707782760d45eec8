"""The site of `make docs`: names of the Python API in guides lead to the reference."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote

import pytest

from scripts.docs_links import linked
from tests.test_public_names import PACKAGES, public_functions

ROOT = Path(__file__).parents[1]
ID = re.compile(r'\bid="([^"]+)"')
LINK = re.compile(r'<a class="autorefs[^"]*"[^>]* href="([^"#]+)#([^"]+)"><code>([^<]+)</code></a>')


def test_inline_code_that_is_a_name_of_the_api_is_linked() -> None:
    names = {"Engine": "e.Engine", "engine.run": "e.Engine.run", "tool": "t.tool"}
    spelled = [
        "Engine",
        "Engine(&quot;a&quot;)",
        "engine.run_async(flow)",
        "@tool",
        "await engine.run(f)",
    ]

    for code in spelled:
        assert re.fullmatch(
            r'<p><autoref identifier="[\w.]+"><code>.+</code></autoref></p>',
            linked(f"<p><code>{code}</code></p>", names),
        ), code


def test_other_code_is_not_linked() -> None:
    for content in (
        "<h2 id='a'>The <code>Engine</code></h2>",
        "<pre><code>Engine</code></pre>",
        "<p><a href='b.html'>the <code>Engine</code> of</a></p>",
        "<p><code>engine.walk()</code>, <code>my.Engine</code>, <code>Engine or not</code></p>",
    ):
        assert linked(content, {"Engine": "e.Engine"}) == content


@pytest.mark.endurance
def test_names_in_guides_lead_to_the_reference_which_has_all_public_functions(
    tmp_path: Path,
) -> None:
    command = ["make", "docs", "--assume-old", ".venv/.ready-tests", f"SITE={tmp_path}"]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = {page: page.read_text(encoding="utf-8") for page in tmp_path.rglob("*.html")}
    anchors = {page: set(ID.findall(text)) for page, text in pages.items()}
    links = [(page, *link) for page, text in pages.items() for link in LINK.findall(text)]

    leads_to = {(page.stem, code): anchor for page, _, anchor, code in links}
    assert leads_to["python", "engine.approvals.list"].endswith(".Approvals.list")
    assert leads_to["api", "flowengine.AsyncClient"] == "flowengine.client.client.AsyncClient"
    broken = [
        (page.name, code)
        for page, place, anchor, code in links
        if unquote(anchor) not in anchors[(page.parent / place).resolve()]
    ]
    assert broken == []
    described = set().union(*(ids for page, ids in anchors.items() if page.parent.name == "api"))
    assert [path for path, spelled in _functions() if not described & spelled] == []


def _functions() -> Iterator[tuple[str, set[str]]]:
    """Yield the public functions and methods, each with the anchors that describe it.

    The form of a method with `_async` is described by the other one.
    """
    for package in PACKAGES:
        module = import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            for path, function in public_functions(name, value):
                method = path.partition(".")[2]
                if method != "__init__" and function.__module__.startswith("flowengine"):
                    home = ".".join(filter(None, (value.__module__, value.__qualname__, method)))
                    yield f"{package}.{path}", {home, home.removesuffix("_async")}
