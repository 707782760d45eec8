"""`BrowserEnv`, and the tools that find it in the context variables."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.async_api import Browser as PlaywrightBrowser
from playwright.async_api import async_playwright

from flowengine.sdk import EnvironmentClosed
from flowengine_envs.browser import installation, sharing
from flowengine_envs.browser.chromium import _ARGUMENTS
from flowengine_envs.browser.provider import BrowserProvider
from flowengine_envs.browser.resource import Browser
from flowengine_envs.compat.browser_env import BrowserEnv, click, fill, read_on, visit_url
from tests.envs.browser.processes import key_of
from tests.envs.browser.web import Web
from tests.replacing import patches_everywhere

pytestmark = pytest.mark.endurance


@pytest.fixture(scope="module")
def env(
    web: Web, chromium: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrowserEnv]:
    folder = str(tmp_path_factory.mktemp("env") / "workspace")
    process = key_of(chromium.request)
    with patches_everywhere() as patch:
        patch.setattr(sharing, "_key", lambda request: process)
        made = BrowserEnv(workspace=folder, network=[web.place])
        made.init()
    with made:
        yield made


@pytest.mark.usefixtures("one_process")
def test_it_is_opened_by_its_first_action(web: Web, tmp_path: Path) -> None:
    env = BrowserEnv(workspace=str(tmp_path / "w"), network=[web.place])
    with pytest.raises(EnvironmentClosed, match=r"call init\(\)"):
        _ = env.resource
    url = web.page("/x", "<p>x</p><button onclick='this.textContent=2'>1</button>")
    seen = env.navigate(url)
    assert (seen.error, seen.url) == ("", url)
    assert env.page.url == url
    env.init()
    assert env.generation == 1
    assert env.click("button").content == "x\n\n2"
    assert asyncio.run(env.async_step({"action": "observe"})).content == "x\n\n2"
    env.close()
    env.close()
    with pytest.raises(EnvironmentClosed):
        env.navigate(url)


# Shows E61
def test_objects_of_the_caller_are_used_and_not_closed(web: Web, tmp_path: Path) -> None:
    url = web.page("/given", "<h1>Given</h1><button onclick='alert(1)'>ask</button>", "Given")

    async def use(browser: PlaywrightBrowser, given: str) -> None:
        context = await browser.new_context()
        page = await context.new_page()
        objects: dict[str, Any] = {"page": page, "context": context, "browser": browser}
        env = BrowserEnv(**{given: objects[given]}, workspace=str(tmp_path / given))
        seen = await env.async_navigate(url)
        assert (seen.error, seen.title) == ("", "Given")
        assert seen.content.startswith("# Given")
        assert seen.screenshot
        assert len((await env.async_click("button")).dialogs) == 1
        if given != "browser":
            assert env.page is page
        await env.async_close()
        assert browser.is_connected()
        assert browser.contexts == [context]
        assert await page.evaluate("1 + 1") == 2
        await context.close()

    async def use_each() -> None:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=installation.browser(None), args=["--no-sandbox", *_ARGUMENTS]
            )
            for given in ("page", "context", "browser"):
                await use(browser, given)
            await browser.close()

    asyncio.run(use_each())


@pytest.mark.parametrize("path", ["workspace/report.html", "report.html", "/workspace/report.html"])
def test_files_of_the_workspace_are_opened_by_their_paths(
    env: BrowserEnv, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = env.resource.workspace
    (workspace / "report.html").write_text("<title>Report</title>")
    (workspace.parent / "secret.html").write_text("<title>Secret</title>")
    monkeypatch.chdir(workspace.parent)

    assert env.navigate(path).title == "Report"
    assert "is not opened" in env.navigate("../secret.html").error


def test_files_of_the_workspace_are_uploaded_by_the_paths_that_the_caller_sees(
    env: BrowserEnv, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = env.resource.workspace
    (workspace / "notes.txt").write_text("tea")
    monkeypatch.chdir(workspace.parent)
    show = "this.nextSibling.textContent = this.files[0].name"
    env.navigate(web.page("/give", f'<input type=file onchange="{show}"><b></b>'))

    seen = env.step(f"upload_file(selector='input', file='{workspace.name}/notes.txt')")

    assert (seen.error, "notes.txt" in seen.content) == ("", True)


# Shows W11
def test_tools_say_what_is_there_and_where_to_read_on(env: BrowserEnv, web: Web) -> None:
    call: Any = visit_url
    text = " ".join(f"word{at}" for at in range(1500))
    shown = call(web.page("/long", f"<p>{text}</p>"), context_variables={"web_env": env})
    told = json.loads(shown.value)
    assert list(told) == ["content", "url", "screenshot_available", "total", "next_offset"]
    assert (told["url"], told["screenshot_available"]) == (web.url("/long"), True)
    assert (told["total"], told["next_offset"]) == (len(text), 4000)
    assert text[:4000] in told["content"]
    assert shown.image == env.step({"action": "observe"}).screenshot
    parts, offset = "", 0
    while offset is not None:
        more: Any = read_on
        told = json.loads(more(offset, context_variables={"web_env": env}).value)
        parts += told["content"].partition(">\n")[2].rpartition("\n</content")[0]
        offset = told.get("next_offset")
    assert parts == text
    short = json.loads(
        call(web.page("/short", "<p>x</p>"), context_variables={"web_env": env}).value
    )
    assert list(short) == ["content", "url", "screenshot_available"]


# Shows W84
def test_a_missing_environment_is_named() -> None:
    for tool, arguments in ((visit_url, ("http://a/",)), (click, ("a",)), (fill, ("a", "b"))):
        call: Any = tool
        with pytest.raises(RuntimeError, match="'web_env'") as refused:
            call(*arguments, context_variables={})
        said = str(refused.value)
        spec = said.partition("environments: {browser: ")[2].partition("}}")[0] + "}}"
        BrowserProvider().policy_model()(**yaml.safe_load(spec)["policy"])
        assert yaml.safe_load(spec)["kind"] == "browser"
