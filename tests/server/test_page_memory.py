# Shows V58
"""The memory of a tab that shows an execution while its events arrive."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from playwright.async_api import CDPSession, async_playwright

from flowengine_envs.browser import installation
from tests.server.served import Served
from tests.server.test_page import NESTED
from tests.server.test_page_in_browser import signed_in

UPDATES = 300
"""An hour has up to 18,000 of them."""
MOST = 60
"""Megabytes over an empty page."""
BOUND = 300.0
"""Seconds, against a hang."""
FASTER = """
const later = window.setTimeout;
window.setTimeout = (call, ms) => later(call, ms / 100);
window.soon = () => new Promise((done) => later(done, 1));
"""
UPDATE = """async ([execution, updates]) => {
  const text = await (await fetch(location.href)).text();
  let asked = 0;
  window.fetch = async () => {
    asked += 1;
    return new Response(text.replaceAll("waits for you<", `waits ${asked}<`));
  };
  const channel = new BroadcastChannel("flowengine events");
  for (let number = 1; number <= updates; number += 1) {
    channel.postMessage({ execution });
    while (asked < number) await soon();
  }
  const shown = () => document.querySelector("#live h1 .word").textContent;
  while (shown() !== `waits ${updates}`) await soon();
  return document.querySelectorAll("*").length;
}"""


async def megabytes(devtools: CDPSession) -> float:
    """Return the memory of a browser's largest tab, of shared memory its part."""
    found = await devtools.send("SystemInfo.getProcessInfo")
    tabs = [one["id"] for one in found["processInfo"] if one["type"] == "renderer"]
    return max(map(_memory, tabs)) / 1024


def _memory(process: int) -> int:
    text = Path(f"/proc/{process}/smaps_rollup").read_text()
    return int(re.findall(r"^Pss: +(\d+) kB", text, re.MULTILINE)[0])


@pytest.mark.endurance
def test_a_tab_does_not_grow_with_the_updates_of_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    served = Served(tmp_path)
    (tmp_path / "nested.yaml").write_text(NESTED.replace("range(3)", "range(20)"))
    execution = served.api.engine.run("nested.yaml").execution

    async def look() -> float:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=installation.browser(None), args=["--no-sandbox"]
            )
            devtools = await browser.new_browser_cdp_session()
            page, _ = await signed_in(browser, served, scripts=True)
            await page.goto("about:blank")
            empty = await megabytes(devtools)
            await page.add_init_script(FASTER)
            await page.goto(f"{served.url}/executions/{execution}")
            await page.wait_for_selector("#live[data-execution] .status")
            first = await page.evaluate("document.querySelectorAll('*').length")
            assert await page.evaluate(UPDATE, [execution, UPDATES]) == first
            tab = await page.context.new_cdp_session(page)
            await tab.send("HeapProfiler.collectGarbage")
            grown = await megabytes(devtools) - empty
            await browser.close()
            return grown

    try:
        assert asyncio.run(asyncio.wait_for(look(), BOUND)) < MOST
    finally:
        served.close()
