# Shows P1, P3, V50, V54, V57
"""The page in Chromium: signing in, live updates, and deciding without JavaScript."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, async_playwright

from flowengine.agents.models.registry import register, unregister
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.execution_environment import register_provider, unregister_provider
from flowengine.sdk.environments import Screen
from flowengine_envs.browser import installation
from tests.agents.flows import NAME, TOOLS, flow
from tests.engines.world import until
from tests.execution_environment.painted import SPEC, Painted
from tests.server.api import LOCAL
from tests.server.arriving_page import replies_are_shown_as_they_arrive
from tests.server.served import Served
from tests.server.test_page import FORM, HOSTILE, NESTED
from tests.server.test_page_conversations import CHAT
from tests.server.test_page_executions import SLOW, WORK, ordered
from tests.server.test_page_inbox import with_files

WIDTHS = (768, 1400)
PHONE = 360
AXE = Path(__file__).parents[1] / "page_checks/node_modules/axe-core/axe.min.js"
ALL_OPEN = "document.querySelectorAll('details').forEach((one) => { one.open = true })"
FAULTS = "axe.run().then((found) => found.violations.map((one) => [one.id, one.nodes[0].html]))"


@pytest.mark.endurance
# Shows P10, P14, P15, V34, V51, V53
def test_the_page_works_in_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    served = Served(tmp_path)
    (tmp_path / "hire.yaml").write_text(FORM.replace("user:ben", "user:owner"))
    engine = served.api.engine
    first, second = (engine.run("hire.yaml", {"name": name}) for name in ("Ada", HOSTILE))
    decided: list[str] = []

    async def look() -> None:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=installation.browser(None), args=["--no-sandbox"]
            )
            page, faults = await signed_in(browser, served, scripts=True)
            for width in WIDTHS:
                await page.set_viewport_size({"width": width, "height": 800})
                for path in ("/approvals", "/executions", f"/approvals/{second.waits[0]['id']}"):
                    await page.goto(served.url + path)
                    wide = await page.evaluate("document.documentElement.scrollWidth")
                    assert wide <= width, (path, width)
            await page.goto(f"{served.url}/executions/{first.execution}")
            form = {"grade": "senior", "salary": 1}
            await asyncio.to_thread(engine.approvals.approve, first.waits[0]["id"], form=form)
            await page.wait_for_selector("h1 .succeeded")
            await replies_are_shown_as_they_arrive(page, served, tmp_path)
            await _a_message_is_sent_with_return(page, served, tmp_path)
            await _bars_of_what_runs_grow(page, served, tmp_path)
            await _seven_tabs_share_one_stream(page, served)
            page, more = await signed_in(browser, served, scripts=True)
            await _keys_act(page, first.execution)
            await _an_environment_is_watched(page, served)
            assert faults == more == []

            plain, faults = await signed_in(browser, served, scripts=False)
            await plain.goto(f"{served.url}/approvals/{second.waits[0]['id']}")
            async with plain.expect_navigation():
                await _decide_by_keyboard(plain)
            assert plain.url.endswith(f"?decided={second.waits[0]['id']}")  # the next one opens
            await plain.goto(f"{served.url}/approvals/{second.waits[0]['id']}")
            await plain.wait_for_selector("text=by owner")
            decided.append(await plain.inner_text("main"))
            assert faults == []
            await browser.close()

    try:
        asyncio.run(look())
    finally:
        served.close()
    assert "Approved by owner" in decided[0]


async def _decide_by_keyboard(page: Page) -> None:
    """Fill in the form of an approval and approve it. Return in a field decides nothing."""
    await page.focus('[name="form.grade"]')
    await page.keyboard.type("senior")
    await page.keyboard.press("Tab")
    await page.keyboard.type("50")
    await page.keyboard.press("Enter")
    while await page.evaluate("document.activeElement.value") != "approve":
        await page.keyboard.press("Tab")
    assert await page.input_value('[name="form.salary"]') == "50"
    await page.keyboard.press("Enter")


async def _a_message_is_sent_with_return(page: Page, served: Served, folder: Path) -> None:
    """It is shown at once, and once when the server has rendered it."""
    (folder / "tools.py").write_text(TOOLS)
    (folder / "chat.yaml").write_text(flow("first: {instructions: You talk.}", CHAT))
    register(NAME, ScriptedModel([{"text": f"answer {n}. " * 200} for n in range(2)]))
    engine = served.api.engine
    try:
        result = await asyncio.to_thread(engine.run, "chat.yaml", {"q": "Hello"})
        await page.goto(f"{served.url}/executions/{result.execution}/conversation")
        assert await page.evaluate("scrollY") > 0  # its end is in view
        await page.keyboard.press("Tab")
        await page.fill("[data-composer] textarea", "And now?")
        await page.press("[data-composer] textarea", "Enter")
        said = page.locator(".talk .user").filter(has_text="And now?")
        await said.wait_for()
        wait = result.waits[0]["id"]
        await asyncio.to_thread(until, lambda: engine.approvals.show(wait)["status"] == "closed")
        await asyncio.to_thread(engine.resume, result.execution)
        await page.locator(".reply:not(.arriving)").filter(has_text="answer 1.").wait_for()
        await page.wait_for_function("document.querySelectorAll('.arriving').length === 0")
        assert await said.count() == 1
    finally:
        unregister(NAME)


async def _bars_of_what_runs_grow(page: Page, served: Served, folder: Path) -> None:
    """Without an event, on an axis that grows with them."""
    (folder / "ledger.py").write_text(WORK)
    (folder / "slow.yaml").write_text(SLOW)
    engine = served.api.engine
    running = asyncio.create_task(asyncio.to_thread(engine.run, "slow.yaml", id="slow"))
    try:
        await asyncio.to_thread(until, lambda: engine.executions.list(flow="slow").items)
        await page.goto(f"{served.url}/executions/slow")
        await page.locator("rect[data-width]").wait_for(state="attached")
        grown = page.locator('svg.bars:not([viewBox="0 0 1000 20"])').first
        await grown.wait_for(state="attached")
        bar = page.locator("rect[data-width]").first
        width = await bar.get_attribute("width")
        assert float(width or 0) > float(await bar.get_attribute("data-width") or 0)
    finally:
        (folder / "go").touch()
        await running


async def _seven_tabs_share_one_stream(page: Page, served: Served) -> None:
    open_ = [(await asyncio.to_thread(served.api.started))[0] for _ in range(7)]
    tabs = [page]
    await page.goto(f"{served.url}/executions/{open_[0]}")
    for execution in open_[1:]:
        tabs.append(await page.context.new_page())
        await tabs[-1].goto(f"{served.url}/executions/{execution}")
    for number in (1, 6):
        await asyncio.to_thread(served.api.engine.executions.cancel, open_[number])
        await tabs[number].wait_for_selector("h1 .cancelled")
        if number == 1:
            await page.close()  # it holds the stream, which another tab takes over
    assert served.application.streams.readers == 1


async def _keys_act(page: Page, execution: str) -> None:
    """From the inbox to the button of the first approval in three keys. The rest is `Enter`."""
    for key in ("j", "Enter"):
        await page.keyboard.press(key)
    await page.wait_for_url("**/approvals/*")
    await page.keyboard.press("a")
    assert await page.evaluate("document.activeElement.value") == "approve"
    await page.keyboard.press("g")
    await page.keyboard.press("e")
    await page.wait_for_url("**/executions")
    for key in ("j", "x"):
        await page.keyboard.press(key)
    assert await page.is_visible("#bulk")
    await page.keyboard.press("?")
    await page.wait_for_selector("#keys", state="visible")
    await page.keyboard.press("Escape")
    await page.goto(page.url + f"/{execution}?at=ask")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.click(f'code[title="{execution}"]')
    assert await page.evaluate("navigator.clipboard.readText()") == execution


async def _an_environment_is_watched(page: Page, served: Served) -> None:
    provider = Painted()
    register_provider(provider)
    try:
        await asyncio.to_thread(served.api.engine.environments.ensure, SPEC)
        await page.clock.install()
        await page.goto(f"{served.url}/environments")
        await page.click("[data-look] button")
        await page.wait_for_selector("main pre.screen >> text=in process")

        async def show() -> Screen:
            return Screen("changed")

        provider.show = show
        await page.clock.fast_forward(3000)
        await page.wait_for_selector("main pre.screen >> text=changed")
    finally:
        unregister_provider("painted")


async def _list_stays_current(page: Page, served: Served, folder: Path) -> None:
    await page.clock.install()
    await page.goto(f"{served.url}/executions")
    begun = await asyncio.to_thread(served.api.engine.run, folder / "nested.yaml")
    await page.clock.fast_forward(3000)
    await page.wait_for_selector(f'a[href="/executions/{begun.execution}"]')
    await page.context.set_offline(True)
    await page.clock.fast_forward(3000)
    await page.wait_for_selector("#connection", state="visible")
    await page.context.set_offline(False)
    await page.clock.fast_forward(3000)
    await page.wait_for_selector("#connection", state="hidden")


async def signed_in(browser: Browser, served: Served, *, scripts: bool) -> tuple[Page, list[str]]:
    """Return a page after signing in, and what its console reports."""
    context = await browser.new_context(java_script_enabled=scripts)
    page, faults = await context.new_page(), list[str]()
    page.on("console", lambda message: faults.append(message.text))
    await page.goto(f"{served.url}/")
    await page.fill("#token", LOCAL)
    await page.click("main button")
    await page.wait_for_url("**/approvals")
    return page, faults


@pytest.mark.endurance
# Shows P11
def test_each_view_is_accessible_and_fits_a_phone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not AXE.exists():
        pytest.skip("no axe-core: npm ci --prefix tests/page_checks")
    monkeypatch.chdir(tmp_path)
    served = Served(tmp_path)
    engine = served.api.engine
    (tmp_path / "hire.yaml").write_text(FORM.replace("user:ben", "user:owner"))
    hired = engine.run("hire.yaml", {"name": HOSTILE}, labels={"team": HOSTILE})
    (tmp_path / "nested.yaml").write_text(NESTED)
    folded = engine.run("nested.yaml").execution
    id = ordered(served.api, tmp_path, monkeypatch)
    filed, inputs = with_files(engine, tmp_path)
    views = (
        f"/approvals/{filed}?file={inputs['list']['sha256']}",
        *(
            "/executions",
            "/deploy",
            "/flows",
            "/flows/expense",
            f"/approvals/{hired.waits[0]['id']}",
        ),
        *("/approvals", "/bulk/approvals?all=on&choice=approve", f"/executions/{id}/fork?at=ship"),
        *(f"/executions/{id}{view}" for view in ("/timeline", "?at=ship", "?at=fetch")),
        f"/executions/{id}/retry",
        f"/executions/{folded}",
        f"/executions/{folded}/cancel",
        f"/executions/{id}/history",
        f"/executions/{id}/events",
        f"/executions/{folded}/history",
        "/executions?search=nothing",
        "/approvals?for=all&status=closed",
        "/environments",
        "/budgets?past=on",
        f"/executions/{id}/compare?with={id}",
    )

    async def look() -> list[object]:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=installation.browser(None), args=["--no-sandbox"]
            )
            page, _ = await signed_in(browser, served, scripts=True)
            await page.set_viewport_size({"width": PHONE, "height": 800})
            found: list[object] = []
            for number, view in enumerate(views):
                await page.emulate_media(color_scheme="dark" if number % 2 else "light")
                await page.goto(served.url + view)
                await page.evaluate(ALL_OPEN)
                await page.evaluate(AXE.read_text())
                found += [(view, *fault) for fault in await page.evaluate(FAULTS)]
                wide = await page.evaluate("document.documentElement.scrollWidth")
                found += [(view, wide)] if wide > PHONE else []
            await page.goto(f"{served.url}/executions/{id}/history?event=0")
            await page.fill("#event", "1")
            await page.wait_for_selector("#moment .status.waiting")
            assert page.url.endswith("?event=1")
            assert await page.inner_text('label[for="event"]') == "After event 1 of 5"
            await _list_stays_current(page, served, tmp_path)
            await browser.close()
            return found

    try:
        assert asyncio.run(look()) == []
    finally:
        served.close()
