"""Make the pictures and the recording that the documentation shows: `make pictures`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from PIL import Image
from playwright.async_api import Page, async_playwright

from flowengine import Engine
from flowengine.agents.models.registry import register, unregister
from flowengine.agents.models.scripted import ScriptedModel
from flowengine_envs.browser import installation
from tests.agents.flows import NAME, call
from tests.server.api import LOCAL
from tests.server.served import Served

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
WIDTH, HEIGHT = 1400, 900
PHONE = (390, 844)
RECORDING = (1100, 960)
_PACE, _REST = 450, 3000
"""Milliseconds that a moment of the recording is shown, and the last one."""
EXPENSE = Path(__file__).parents[1] / "examples" / "expense"
GROUPS = "groups: {managers: [owner]}\n"
TRIP = """
flowengine: 1
id: trip
title: Trip to ${{ inputs.to }}
inputs: {to: {type: string}, cost: {type: number}}
steps:
  - id: look
    title: Look for offers
    parallel:
      - {id: trains, title: Trains, python: "travel:trains", with: {to: "${{ inputs.to }}"}}
      - {id: hotels, title: Hotels, python: "travel:hotels", with: {to: "${{ inputs.to }}"}}
  - id: ask
    title: Ask the owner of the budget
    approval:
      title: Book the trip to ${{ inputs.to }}?
      body: |
        Two offers fit the budget:

        - train, 7 hours, no change
        - night train, 12 hours, saves a hotel
      assignees: ["user:owner"]
      expires: 3d
      subject: {to: "${{ inputs.to }}", cost: "${{ inputs.cost }}"}
      edit: [cost]
  - {id: book, title: Book the trip, python: "travel:book", with: {to: "${{ inputs.to }}"}}
"""
TRAVEL = """
def trains(to: str) -> list[str]:
    return ["day train", "night train"]

def hotels(to: str) -> list[str]:
    return ["Hotel am Ring"]

def book(to: str) -> str:
    return "T-2210"
"""
RELEASE = """
flowengine: 1
id: release
title: Release ${{ inputs.version }} of the shop
inputs: {version: {type: string}}
tools:
  work: {python: "shop:work", effect: idempotent}
  scan: {python: "shop:scan", effect: idempotent}
steps:
  - {id: build, title: Build the images, call: work}
  - id: check
    title: Checks
    parallel:
      - {id: unit, title: Unit tests, map: {over: 4}, call: work}
      - {id: browsers, title: Browser tests, map: {over: 3}, call: work}
      - id: scan
        title: Scan for vulnerabilities
        call: scan
        retry: {attempts: 2, delay: 1s, jitter: none}
  - id: decide
    title: Release to production
    approval:
      title: Release ${{ inputs.version }} to production?
      assignees: ["user:owner"]
      choices:
        - {id: approve, label: Release}
        - {id: reject, label: Do not release, comment: required}
    next: {outcome: {approve: canary, reject: withdraw}}
  - {id: canary, title: Canary, call: work}
  - id: roll_out
    title: Roll out by region
    map: {over: 3, concurrency: 1}
    call: work
    next: end
  - {id: withdraw, title: Withdraw the images, call: work, next: end}
"""
SHOP = """
tries = []

def work():
    return "done"

def scan():
    tries.append(1)
    if len(tries) == 1:
        raise ConnectionError("the scanner does not answer")
    return {"findings": 0}
"""
SUPPORT = f"""
flowengine: 1
id: support
title: ${{{{ inputs.question }}}}
inputs: {{question: {{type: string}}}}
defaults: {{model: {NAME}}}
tools:
  find_order: {{python: "desk:find_order"}}
  find_payments: {{python: "desk:find_payments"}}
  refund: {{python: "desk:refund", effect: once}}
agents:
  front_desk:
    title: Front desk
    instructions: Find out what it is about.
    tools: [find_order]
    handoffs: [billing]
  billing: {{title: Billing, instructions: Be exact., tools: [find_payments, refund]}}
steps:
  - id: answer
    title: Answer the customer
    agent: {{name: front_desk}}
    with: {{prompt: "${{{{ inputs.question }}}}"}}
"""
DESK = """
def find_order(number: int) -> dict[str, object]:
    return {"number": number, "items": ["2 chairs", "1 table"], "total": 480}

def find_payments(order: int) -> list[dict[str, object]]:
    return [{"id": id, "amount": 480, "at": "12 March"} for id in ("P-81", "P-82")]

def refund(payment: str, amount: int) -> str:
    return "R-17"
"""


def _reply(text: str, tokens: tuple[int, int], *calls: Any) -> dict[str, Any]:
    read, written = tokens
    cost = read * 2.5e-6 + written * 1e-5
    usage = {"input_tokens": read, "output_tokens": written, "cost_usd": round(cost, 6)}
    return {"text": text, "calls": calls, "usage": usage}


SAID = [
    _reply("I look the order up.", (412, 38), call("find_order", "c1", number=4711)),
    _reply("", (466, 21), call("transfer_to_billing", "c2")),
    _reply("I compare it with the payments.", (598, 44), call("find_payments", "c3", order=4711)),
    _reply(
        "The second payment is refunded.",
        (702, 40),
        call("refund", "c4", payment="P-82", amount=480),
    ),
    _reply(
        "Order **4711** was paid twice on 12 March:\n\n"
        "- `P-81`, 480 EUR, is the payment of the order\n"
        "- `P-82`, 480 EUR, was the same payment again\n\n"
        "The second one is refunded as `R-17`. It takes 2 to 3 days.",
        (790, 96),
    ),
]


def make(folder: Path, target: Path, names: Sequence[str] = ()) -> list[Path]:
    """Make the pictures in a folder, from a store and settings of their own.

    Args:
        folder: An empty folder, which is the working directory.
        target: Where the pictures are written.
        names: Of those to make. Empty: all.
    """
    settings = folder / "flowengine" / "settings.yaml"
    settings.parent.mkdir()
    settings.write_text(GROUPS)
    variables = {"XDG_CONFIG_HOME": str(folder), "ERP_TOKEN": "t", "MAIL_PASSWORD": "p"}
    target.mkdir(exist_ok=True)
    with patch.dict(os.environ, variables):
        return _made(folder, target, names)


def _made(folder: Path, target: Path, names: Sequence[str]) -> list[Path]:
    served = Served(folder)
    engine = served.api.engine
    (folder / "travel.py").write_text(TRAVEL)
    (folder / "trip.yaml").write_text(TRIP)
    (folder / "support.yaml").write_text(SUPPORT)
    (folder / "desk.py").write_text(DESK)
    (folder / "shop.py").write_text(SHOP)
    (folder / "release.yaml").write_text(RELEASE)
    register(NAME, ScriptedModel(SAID))
    try:
        talk = engine.run("support.yaml", {"question": "Was order 4711 paid twice?"}).execution
        trips = [
            engine.run("trip.yaml", {"to": to, "cost": cost}, labels={"team": "sales"})
            for to, cost in (("Bern", 320), ("Wien", 540), ("Basel", 180))
        ]
        engine.approvals.approve(trips[0].waits[0]["id"], comment="as agreed")
        engine.executions.cancel(trips[2].execution, reason="postponed")
        open_ = trips[1].execution
        engine.run("trip.yaml", {"to": "Genf", "cost": 95})
        views = {
            "inbox": "/approvals",
            "approval": f"/approvals/{trips[1].waits[0]['id']}",
            "execution": f"/executions/{open_}",
            "conversation": f"/executions/{talk}/conversation",
            "executions": "/executions",
        }
        chosen = {name: path for name, path in views.items() if name in names or not names}
        made = asyncio.run(_pictures(served, chosen, target, (WIDTH, HEIGHT)))
        if "phone" in names or not names:
            phone = {"phone": f"/approvals/{_expense(served)}"}
            made += asyncio.run(_pictures(served, phone, target, PHONE))
        if "history" in names or not names:
            [wait] = engine.run("release.yaml", {"version": "4.18"}, id="release").waits
            engine.approvals.approve(wait["id"])
            made.append(asyncio.run(_recording(served, "/executions/release", target)))
        return made
    finally:
        unregister(NAME)
        served.close()


def _expense(served: Served) -> str:
    """Return the id of the approval of `examples/expense`, which another user has started."""
    inputs = json.loads((EXPENSE / "expense.json").read_text())
    store = served.api.engine.store
    kept = store.hold_artifact(EXPENSE / "receipt.txt", "receipt.txt")
    inputs["receipt"] = {"path": str(store.fetch_artifact(kept.sha256)), **kept._asdict()}
    with Engine(served.api.folder / "store", user="user:ana", linger=0) as ana:
        [wait] = ana.run(EXPENSE / "expense.yaml", inputs).waits
    return wait["id"]


@asynccontextmanager
async def _opened(served: Served, size: tuple[int, int]) -> AsyncIterator[Page]:
    """Return a browser's page whose user has signed in."""
    width, height = size
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=installation.browser(None), args=["--no-sandbox"]
        )
        page = await browser.new_page(viewport={"width": width, "height": height})
        await page.goto(f"{served.url}/")
        await page.fill("#token", LOCAL)
        await page.click("main button")
        await page.wait_for_url("**/approvals")
        yield page
        await browser.close()


async def _pictures(
    served: Served, views: dict[str, str], target: Path, size: tuple[int, int]
) -> list[Path]:
    made = []
    async with _opened(served, size) as page:
        for name, path in views.items():
            await page.goto(served.url + path)
            made.append(target / f"{name}.png")
            shown = Image.open(BytesIO(await page.screenshot())).convert("RGB")
            shown.quantize(256).save(made[-1], optimize=True)  # half the size
    return made


async def _recording(served: Served, execution: str, target: Path) -> Path:
    """Record how the history moves from the first event to the last one."""
    moments = []
    async with _opened(served, RECORDING) as page:
        await page.goto(f"{served.url}{execution}/history?event=0")
        last = int(await page.get_attribute("#event", "max") or 0)
        for number in range(last + 1):
            label = page.locator("label[for=event]", has_text=f"After event {number} of")
            await label.wait_for()
            shown = await page.screenshot(animations="disabled")
            moments.append(Image.open(BytesIO(shown)).convert("RGB"))
            await page.keyboard.press("ArrowRight")
    times = [*[_PACE] * last, _REST]
    made = target / "history.webp"
    first, *rest = moments
    # Only the first one is a whole picture, and the others are the differences.
    size: dict[str, Any] = {"quality": 50, "kmin": 99, "kmax": 100}
    first.save(made, save_all=True, append_images=rest, duration=times, loop=0, **size)
    return made


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    with TemporaryDirectory() as empty:
        os.chdir(empty)
        sys.path.insert(0, empty)
        make(Path(empty), PICTURES)
