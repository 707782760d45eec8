"""What `mkdocs` adds to the pages in docs: error codes, the Python API, decisions, linked files.

A hook of mkdocs: it calls the functions named `on_…`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import griffe
from acceptance import with_tests  # mkdocs has this directory on the path while it loads a hook
from docs_links import linked
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]+)?\)")
HOME = {"README.md": "index.md"}
"""Files outside of docs that have a page."""
API = (
    "flowengine",
    "flowengine.execution_environment",
    "flowengine.sdk",
    "flowengine.sdk.environments",
    "flowengine_envs.programs",
    "flowengine.telemetry",
    "flowengine.testing",
    "flowengine.tool_environment",
    "flowengine_envs",
)
"""Packages whose public names are documented. A name alone means that of the first one."""
GROUPS = ("executions", "approvals", "budgets", "flows")
"""Properties of an engine and of a client whose classes have methods of it."""
VARIABLES = {"engine": "Engine", "client": "Client", "context": "StepContext"}
"""Variables of the guides, and their classes."""
NOT_LINKED = (
    "acceptance.md", "api/", "architecture.md", "codes/", "contributing/", "decisions/", "files/",
    "from/",
)  # fmt: skip
"""Pages that are no guides. They name internal classes, or those of other libraries."""
LANGUAGES = {".py": "python", ".yaml": "yaml", ".md": "markdown", ".json": "json"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each error code and for each file that a page links to, and the two lists."""
    codes = sorted((ROOT / "flowengine" / "flow" / "codes").glob("*.md"))
    pages = {f"codes/{path.name}": _text(path) for path in codes}
    pages["codes/index.md"] = _listed("Error codes", codes)
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    pages["decisions/index.md"] = _listed("Decisions", decisions)
    pages |= _api()[0]
    for file in files.documentation_pages():
        for target in _outside(file.src_uri, file.content_string):
            pages[_page(target)] = _shown(target)
    for uri, content in pages.items():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to files outside of docs to their pages, and add the tests of acceptance rows."""
    here = page.file.src_uri
    if here == "acceptance.md":
        markdown = with_tests(markdown)

    def moved(match: re.Match[str]) -> str:
        target = _target(here, match[1])
        if target is None:
            return match[0]
        return f"]({posixpath.relpath(_page(target), posixpath.dirname(here) or '.')})"

    return LINK.sub(moved, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Link the names of the Python API in a guide."""
    return html if page.file.src_uri.startswith(NOT_LINKED) else linked(html, _api()[1])


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _listed(title: str, paths: list[Path]) -> str:
    """Return a page of links to pages, by their titles."""
    lines = [f"- [{_text(path).partition(chr(10))[0].lstrip('# ')}]({path.name})" for path in paths]
    return f"# {title}\n\n" + "\n".join(lines) + "\n"


@cache
def _api() -> tuple[dict[str, str], dict[str, str]]:
    """Return a page of each public package, and the identifier of each name as guides spell it.

    Raises:
        PluginError: A public name has no docstring.
    """
    loader = griffe.GriffeLoader(
        search_paths=[ROOT, ROOT / "nodes", ROOT / "envs"],
        extensions=griffe.load_extensions(ROOT / "scripts" / "docs_client.py"),
    )
    for package in ("flowengine", "flowengine_envs"):
        loader.load(package)
    loader.resolve_aliases()
    written: dict[str, str] = {}
    names: dict[str, str] = {}
    pages = {}
    for name in API:
        package = loader.modules_collection[name]
        pages[f"api/{name}.md"] = _package(name, package, written)
        for member in _exported(package):
            _spell(names, member, f"{name}.{member.name}")
            if member.name[:1].isupper() and not member.name.isupper():  # not a word of flow files
                _spell(names, member, member.name)
    for variable, of in VARIABLES.items():
        _spell(names, loader.modules_collection["flowengine"].members[of], variable)
        del names[variable]
    lines = [f"- [{name}]({name}.md)" for name in API]
    return pages | {"api/index.md": "# Python API\n\n" + "\n".join(lines) + "\n"}, names


def _package(name: str, package: griffe.Module, written: dict[str, str]) -> str:
    """Return the page of a package.

    Args:
        written: Where a name is defined → the page that documents it already. It is completed.
    """
    members = _exported(package)
    if missing := [path for one in members for path in _undocumented(one)]:
        raise PluginError(f"public names without a docstring: {', '.join(missing)}")
    groups = {group.canonical_path: group for one in members for group in _groups(one).values()}
    homes = {one.canonical_path: one.name for one in [*members, *groups.values()]}
    here = [home for home in sorted(homes) if written.setdefault(home, name) == name]
    others = [f"[{homes[one]}]({written[one]}.md#{one})" for one in homes if one not in here]
    parts = [f"# {name}", package.docstring.value if package.docstring else ""]
    if others:
        parts.append(f"Also exported here: {', '.join(others)}.")
    return "\n\n".join([*parts, *(f"::: {home}" for home in here)]) + "\n"


def _exported(package: griffe.Module) -> list[griffe.Object | griffe.Alias]:
    return [package.members[str(member)] for member in package.exports or ()]


def _groups(member: griffe.Object | griffe.Alias) -> dict[str, griffe.Object | griffe.Alias]:
    """Return the classes of the groups of methods that an engine or a client has."""
    found = {}
    for name in GROUPS if member.is_class else ():
        annotation = getattr(member.all_members.get(name), "annotation", None)
        while isinstance(annotation, griffe.ExprSubscript):
            annotation = annotation.left
        if isinstance(annotation, griffe.Expr) and annotation.canonical_path.startswith("flow"):
            found[name] = member.modules_collection[annotation.canonical_path]
    return found


def _spell(names: dict[str, str], member: griffe.Object | griffe.Alias, spelled: str) -> None:
    """Add a name and the public names in it, unless an earlier package has them.

    An attribute without a docstring is described by that of its class.
    """
    at = member.canonical_path
    if names.setdefault(spelled, at) != at or not member.is_class:
        return
    groups = _groups(member)
    for name, part in member.all_members.items():
        if name in groups:
            _spell(names, groups[name], f"{spelled}.{name}")
        if part.is_public and (part.has_docstring or not name.endswith("_async")):
            names[f"{spelled}.{name}"] = f"{at}.{name}" if part.has_docstring else at


def _undocumented(member: griffe.Object | griffe.Alias) -> Iterator[str]:
    """Yield the paths without a docstring: a public name, and the public methods of a class."""
    if not member.has_docstring:
        yield member.path
    if member.is_class:
        for name, method in member.all_members.items():
            if not name.startswith("_") and method.is_function and not method.has_docstring:
                yield f"{member.path}.{name}"


def _outside(here: str, markdown: str) -> set[str]:
    targets = {_target(here, match[1]) for match in LINK.finditer(markdown)}
    return {target for target in targets if target is not None and target not in HOME}


def _target(here: str, link: str) -> str | None:
    """Return the path in the project that a link of a page leads to, if it is not in docs."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(here), link))
    return None if path.startswith("docs/") or not (ROOT / path).exists() else path


def _page(target: str) -> str:
    return HOME.get(target, f"files/{target}.md")


def _shown(target: str) -> str:
    """Return a page that shows a file, or the files of a directory."""
    path = ROOT / target
    if path.is_dir():
        names = sorted(one.name for one in path.iterdir() if not one.name.startswith(("_", ".")))
        return f"# {target}\n\n" + "\n".join(f"- `{name}`" for name in names) + "\n"
    language = LANGUAGES.get(path.suffix, "text")
    return f"# {target}\n\n`````{language}\n{_text(path)}`````\n"
