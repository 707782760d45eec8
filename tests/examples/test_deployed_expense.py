# Shows V37, V54
"""The expense approval as a service: deployed, notified by mail, decided on a phone, traced."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import HTTPServer
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from playwright.async_api import Page, ViewportSize, async_playwright

from flowengine import Engine
from flowengine.kernel.notation.times import parse_time
from flowengine.telemetry import export_traces, recorded_spans
from flowengine_envs.browser import installation
from tests.engines.world import Clock
from tests.envs.network.ways_out import running
from tests.examples.conftest import EXAMPLES
from tests.mail_server import Mail, mail_server
from tests.server.api import OWNER, Api
from tests.server.served import Served
from tests.server.test_page import Browser
from tests.server.test_page_files import sent
from tests.telemetry.test_traces import exported, plain, tree

PHONE: ViewportSize = {"width": 390, "height": 800}
DAY = 86_400_000
SETTINGS = """
groups: {managers: [ben]}
access:
  - {who: [ana], role: starter, flows: [expense], content: true}
  - {who: [ben], role: approver, flows: [expense], content: true}
"""
RECEIPT = b"%PDF-1.7 Train, 1,250.00"


class Office(NamedTuple):
    """The deployed example with its server, worker, mail and ledger."""

    folder: Path
    served: Served
    worker: Engine
    """Drives the executions, on a clock of the test."""
    clock: Clock
    ledger: str
    """Address of the ledger."""
    spans: InMemorySpanExporter
    exporting: ExitStack
    """Sends the spans that are left when it is closed."""

    def work(self) -> None:
        """Start and resume everything that is due, like a worker."""
        self.worker.flows.start_due()
        while due := self.worker.due():
            for one in due:
                self.worker.resume(one.execution)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[str]:
    spec = spec_from_file_location("ledger", EXAMPLES / "expense" / "ledger.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)
    with running(HTTPServer(("127.0.0.1", 0), module.Ledger)) as server:
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.fixture
def office(folder: Path, monkeypatch: pytest.MonkeyPatch, ledger: str) -> Iterator[Office]:
    settings = folder / "config" / "flowengine" / "settings.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text(SETTINGS)
    for name, value in {
        "XDG_CONFIG_HOME": str(folder / "config"),
        "ERP_TOKEN": "t0ken-of-the-ledger",
        "MAIL_PASSWORD": "pa55word-of-the-mail",
    }.items():
        monkeypatch.setenv(name, value)
    clock, store, spans = Clock(), folder / "store", InMemorySpanExporter()
    with mail_server() as mail:
        flows = folder / "flows"
        shutil.copytree(EXAMPLES / "expense", flows)
        api = Api(folder, (), Engine(store, durability="none", user=OWNER, clock=clock))
        for name in ("expense.yaml", "reminder.yaml"):
            text = (flows / name).read_text()
            (flows / name).write_text(text.replace("127.0.0.1:1025", mail))
            api.engine.flows.deploy(flows / name)
        served = Served(api)
        settings.write_text(f"{SETTINGS}server_url: {served.url}\n")
        worker = Engine(store, durability="none", clock=clock, linger=0)
        with worker, ExitStack() as exporting:
            exporting.callback(export_traces(worker, spans))
            yield Office(folder, served, worker, clock, ledger, spans, exporting)
        served.close()


@pytest.mark.endurance
def test_it_is_deployed_reminded_of_notified_decided_on_a_phone_and_traced(office: Office) -> None:
    [reminding] = office.worker.flows.starts()
    office.clock.time = parse_time(reminding["next"])
    office.work()
    assert taken_mail() == [("staff@example.com", "Expenses of this month", None)]

    execution = handed_in(office)
    office.work()
    [(to, subject, link)] = taken_mail()
    title = "ana@example.com asks for 1250 EUR"
    assert (to, subject) == ("managers@example.com", f"Decision needed: {title}")
    office.clock.time += DAY
    office.work()
    assert taken_mail() == [(to, f"Reminder: {title}", link)]

    assert link is not None
    asyncio.run(decide(link, office.served.api.token("user:ben"), title))
    office.work()
    done = office.worker.executions.result(execution)
    assert done.outputs == {"booked": True}
    booked = (office.folder / "ledger.jsonl").read_text()
    assert '"amount": 1200, "cost_center": "0815"' in booked
    assert "Your expense was booked." in (office.folder / "outbox.jsonl").read_text()

    office.exporting.close()
    spans = list(recorded_spans(office.worker, execution))
    assert tree(spans) == [
        "invoke_workflow expense",
        "  manager",
        "    wait",
        "  route",
        "  book",
        "    attempt",
        "  tell_paid",
        "    attempt",
    ]
    assert {*plain(spans)} <= {*exported(office.spans)}


def taken_mail() -> list[tuple[str, str, str | None]]:
    """Return the recipient, the subject and the link of each new message."""
    found = []
    while Mail.got:
        _, mail = Mail.got.pop(0)
        text = mail.get_content()
        link = text.partition("Decide: ")[2].strip() or None
        found.append((mail["To"], mail["Subject"], link))
    return found


def handed_in(office: Office) -> str:
    """Start the flow as Ana, with the form of the page and a receipt."""
    api = office.served.api
    ana, path = Browser(api, api.token("user:ana")), "/flows/expense"
    form = {
        "form_token": ana.form_token(path),
        "command": "1",
        "input.employee": "ana@example.com",
        "input.amount": "1250",
        "input.purpose": "Train to the client",
        "input.erp": office.ledger,
    }
    started = sent(ana, path, form, [("input.receipt.file", ("receipt.pdf", RECEIPT))])
    assert started.status_code == 303, started.text
    return started.headers["location"].rpartition("/")[2]


async def decide(link: str, token: str, title: str) -> None:
    """Open the link of a mail on a phone, sign in, find it in the inbox, and decide."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=installation.browser(None), args=["--no-sandbox"]
        )
        page = await browser.new_page(viewport=PHONE, has_touch=True, is_mobile=True)
        await page.goto(link)
        await page.fill("#token", token)
        await page.tap("main button")
        await page.wait_for_url(link)
        await fits(page)
        inbox = link.rpartition("/")[0]
        await page.goto(inbox)
        await page.tap(f"text={title}")
        await page.wait_for_url(f"{link}*")
        async with page.expect_download() as download:
            await page.tap("text=receipt.pdf")
        saved = await (await download.value).path()
        assert await asyncio.to_thread(saved.read_bytes) == RECEIPT
        await page.fill('[name="form.cost_center"]', "0815")
        await page.fill('[name="edit.amount"]', "1200")
        await page.tap('button[value="approve"]')
        await page.wait_for_selector("text=/by ben/i")
        await fits(page)
        await browser.close()


async def fits(page: Page) -> None:
    """Check that the page is no wider than the phone."""
    assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
