# Shows P13
"""What users have entered stays while the page is renewed, in Chromium."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, async_playwright, expect

from flowengine.engines.engine import Engine
from flowengine_envs.browser import installation
from tests.server.served import Served
from tests.server.test_page_in_browser import signed_in

HIRE = """
flowengine: 1
id: hire
signals:
  order: {data: {type: object, properties: {code: {type: string, pattern: "^[0-9]{4}$"}}, required: [code]}}
steps:
  - id: ask
    approval:
      title: Hire Ada?
      need: 2
      form:
        type: object
        properties:
          grade: {type: string, enum: [junior, senior]}
          salary: {type: number, title: Salary}
          places: {type: array, items: {type: object, properties: {city: {type: string}}}}
        required: [grade, salary]
      choices: [{id: approve}, {id: reject, comment: required}]
  - {id: come, wait: {signal: order}}
"""  # noqa: E501


def played(
    folder: Path, monkeypatch: pytest.MonkeyPatch, play: Callable[[Page, Served], Awaitable[None]]
) -> None:
    """Play the part of a user who has signed in to a server with an empty store."""
    monkeypatch.chdir(folder)
    (folder / "hire.yaml").write_text(HIRE)
    served = Served(folder)

    async def look() -> None:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=installation.browser(None), args=["--no-sandbox"]
            )
            page, faults = await signed_in(browser, served, scripts=True)
            await play(page, served)
            assert [fault for fault in faults if "status of 4" not in fault] == []
            await browser.close()

    try:
        asyncio.run(look())
    finally:
        served.close()


async def as_other(engine: Engine, wait: str, choice: str, **answer: Any) -> None:
    """Decide as another user."""
    ben = engine.acting_as("user:ben", via="test")
    await asyncio.to_thread(ben.approvals.decide, wait, choice, **answer)


@pytest.mark.endurance
def test_a_refused_form_stays_until_it_is_sent_or_another_user_has_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(page: Page, served: Served) -> None:
        engine = served.api.engine
        result = await asyncio.to_thread(engine.run, "hire.yaml")
        wait = result.waits[0]["id"]
        path = f"{served.url}/approvals/{wait}"
        await page.goto(path)
        await page.fill('[name="form.salary"]', "much")
        await page.fill('[name="form.places.0.city"]', "Bern")
        await page.fill("#comment", "as agreed")
        async with page.expect_response(lambda sent: sent.request.resource_type == "fetch"):
            await page.click('[value="approve"]')
        await as_other(engine, wait, "approve", form={"grade": "senior", "salary": 1})
        await page.wait_for_selector("text=1 of 2 approvals")  # all else is renewed
        await expect(page.locator('[role="alert"]')).to_have_text(
            "2 fields need a change: grade, Salary"
        )
        for name in ("grade", "salary"):
            await expect(page.locator(f'[name="form.{name}"]')).to_have_attribute(
                "aria-invalid", "true"
            )
        await expect(page.locator('[name="form.grade"]')).to_be_focused()
        await expect(page.locator('[name="form.salary"]')).to_have_value("much")
        await expect(page.locator("#comment")).to_have_value("as agreed")
        async with page.expect_response(lambda sent: sent.request.resource_type == "fetch"):
            await page.click('[value="form.places"]')  # adds a row
        await expect(page.locator('[name="form.places.0.city"]')).to_have_value("Bern")
        await expect(page.locator('[name="form.places.1.city"]')).to_be_focused()
        await expect(page.locator("#unsent")).to_be_hidden()
        await page.click("summary >> text=Delegate")
        await page.fill("#to", "group:finance")
        async with page.expect_response(lambda sent: sent.request.resource_type == "fetch"):
            await page.click("button >> text=Delegate")
        await page.wait_for_timeout(300)
        await expect(page.locator('[role="alert"]')).to_contain_text("to another user")
        await expect(page.locator("#to")).to_have_value("group:finance")
        carla = engine.acting_as("user:carla", via="test")
        await asyncio.to_thread(carla.approvals.decide, wait, "reject", comment="no budget")
        await page.wait_for_selector("text=rejected by carla")
        await expect(page.locator("#unsent")).to_be_visible()
        await expect(page.locator("#decide")).to_have_count(0)

    played(tmp_path, monkeypatch, play)


@pytest.mark.endurance
def test_a_signal_and_all_that_is_entered_stay_while_the_view_is_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(page: Page, served: Served) -> None:
        engine = served.api.engine
        result = await asyncio.to_thread(engine.run, "hire.yaml")
        wait = result.waits[0]["id"]
        (tmp_path / "note.txt").write_text("Ada")
        await page.goto(f"{served.url}/approvals/{wait}")
        await page.select_option('[name="form.grade"]', "senior")
        await page.set_input_files('[name="attach.file"]', tmp_path / "note.txt")
        await page.fill('[name="form.salary"]', "50")
        await page.keyboard.press("ArrowLeft")
        await as_other(engine, wait, "approve", form={"grade": "senior", "salary": 1})
        await page.wait_for_selector("text=1 of 2 approvals")
        await page.keyboard.type("4")
        await expect(page.locator('[name="form.salary"]')).to_have_value("540")
        await page.keyboard.press("r")  # a key of the field, not of the page
        await page.keyboard.press("Escape")
        await page.keyboard.press("f")
        await expect(page.locator('[name="form.grade"]')).to_be_focused()
        await page.keyboard.press("Escape")
        await page.keyboard.press("a")
        await expect(page.locator('[value="approve"]')).to_be_focused()
        await page.fill('[name="form.salary"]', "540")
        await page.click('[value="approve"]')
        await page.wait_for_selector("text=approved by owner")
        decided: Any = engine.approvals.show(wait)["decision"]
        assert decided["form"] == {"grade": "senior", "salary": 540}
        assert [file["name"] for file in decided["attachments"]] == ["note.txt"]

        await asyncio.to_thread(engine.resume, result.execution)
        await page.goto(f"{served.url}/executions/{result.execution}")
        code = page.locator('[name="signal.order.data.code"]')
        await code.fill("12")
        async with page.expect_response(lambda sent: sent.request.resource_type == "fetch"):
            await page.click("text=Send order")
        await page.wait_for_timeout(300)
        await expect(code).to_have_value("12")
        await expect(code).to_have_attribute("aria-invalid", "true")
        await expect(page.locator(".signal .help")).to_contain_text("^[0-9]{4}$")
        await asyncio.to_thread(
            engine.signal, "order", {"code": "1234"}, execution=result.execution
        )
        await page.wait_for_selector("h1 .succeeded")
        await expect(page.locator("#unsent")).to_be_visible()

    played(tmp_path, monkeypatch, play)
