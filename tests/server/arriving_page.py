"""The conversation on the page, while a model writes: steps of a test in a browser."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from playwright.async_api import Page

from flowengine.agents.models.port import Listener, ModelReply, ModelRequest, ReplyPart
from flowengine.agents.models.registry import register, unregister
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.page.looks import beginning
from flowengine.sdk.texts.visible_text import DISGUISING
from tests.agents.flows import NAME, TOOLS, call, flow
from tests.server.served import Served
from tests.server.test_arriving_replies import Driving
from tests.server.test_page import HOSTILE

_ENCODED = [*range(0xD800), *range(0xE000, 0x110000)]
DISGUISE = "|".join(DISGUISING.findall("".join(map(chr, _ENCODED))))
WRONG = "Something else"
LONG = "words without an end, " * 1_000
LAST = "2}"
"""The end of the first reply."""
SCRIPT: list[Any] = [
    {
        "reasoning": f"Hm {HOSTILE}",
        "text": f"I add {HOSTILE}",
        "calls": [call("add", "c1", a=1, b=2)],
    },
    {"text": f"{HOSTILE} {DISGUISE} over", "calls": [call("add", "c2", a=3, b=4)]},
    {"text": LONG},
]
ARRIVING = "#arriving .arriving"


class Held(ScriptedModel):
    """Writes each reply up to its end, which comes when the test says so."""

    def __init__(self) -> None:
        super().__init__(SCRIPT)
        self.go_on = threading.Semaphore(0)

    async def complete(self, request: ModelRequest, listen: Listener | None = None) -> ModelReply:
        parts: list[ReplyPart] = []
        reply = await super().complete(request, parts.append)
        *written, end = parts
        if self.left == 1:  # the second reply
            written = [ReplyPart("start"), ReplyPart("text", WRONG), ReplyPart("restart"), *written]
        assert listen is not None
        for part in written:
            if part.kind == "restart":
                await self._held()
            listen(part)
        await self._held()
        listen(end)
        return reply

    async def _held(self) -> None:
        assert await asyncio.to_thread(self.go_on.acquire, timeout=60)


async def shown(page: Page, text: str) -> str:
    """Return what is shown of the arriving reply that has a text."""
    reply = page.locator(ARRIVING).filter(has_text=text)
    await reply.wait_for()
    await page.eval_on_selector_all(f"{ARRIVING} details", "all => all.map(one => one.open = true)")
    return await reply.inner_text()


async def replies_are_shown_as_they_arrive(page: Page, served: Served, folder: Path) -> None:
    """Look at a conversation from its first reply to its end."""
    (folder / "tools.py").write_text(TOOLS)
    (folder / "agents.yaml").write_text(flow("first: {instructions: You add., tools: [add]}"))
    model = Held()
    register(NAME, model)
    id = served.api.engine.start("agents.yaml")
    driving = Driving(folder, id)
    try:
        await page.goto(f"{served.url}/executions/{id}/conversation")
        text = await shown(page, LAST)
        wanted = ("first is writing…", "Thinking", f"Hm {HOSTILE}", f"I add {HOSTILE}", "add")
        places = [text.index(part) for part in wanted]
        assert places == sorted(places)
        assert await page.locator(f"{ARRIVING} :is(script, img)").count() == 0
        await page.locator(".talk .user").filter(has_text="What is 1 + 2?").wait_for()

        await page.reload()
        assert await shown(page, LAST) == text
        assert served.application.streams.readers == 2
        await _the_tab_that_was_looked_at_last_has_them(page, text)

        model.go_on.release()
        await shown(page, WRONG)
        complete = page.locator(".talk .reply:not(.arriving)")
        await complete.wait_for()
        await page.wait_for_function(f"document.querySelectorAll('{ARRIVING}').length === 1")
        model.go_on.release()
        text = await shown(page, "over")
        assert WRONG not in text
        assert f"{HOSTILE} {beginning(DISGUISE)}" in text

        model.go_on.release()
        text = await shown(page, "The rest follows")
        assert 19_000 < len(text) < 20_300
        model.go_on.release()
        await page.wait_for_selector("h1 .succeeded")
        assert await page.locator("#arriving, .arriving").count() == 0
        assert await complete.count() == 3
    finally:
        model.go_on.release(9)
        await asyncio.to_thread(driving.end)
        unregister(NAME)


async def _the_tab_that_was_looked_at_last_has_them(page: Page, text: str) -> None:
    tab = await page.context.new_page()
    await tab.goto(page.url)
    assert await shown(tab, LAST) == text
    await page.wait_for_selector(ARRIVING, state="detached")
    await page.evaluate("dispatchEvent(new Event('focus'))")
    assert await shown(page, LAST) == text
    await tab.close()
