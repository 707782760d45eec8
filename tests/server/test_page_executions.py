# Shows P4, P18, V51
"""The views of one execution: steps, time, history, events, and another execution beside it."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from flowengine.engines.folds import Folds
from flowengine.errors import UsageError
from flowengine.kernel.notation.times import format_time
from flowengine.page.timeline import WIDTH, Timeline, timeline
from tests.server.api import Api
from tests.server.test_page import HOSTILE, Browser, words

DAY = 86_400_000
ORDER = """
flowengine: 1
id: order
inputs: {name: {type: string}}
state: {tries: {type: integer, default: 0}}
steps:
  - id: fetch
    effect: idempotent
    python: {function: "shop:fetch"}
    with: {name: "${{ inputs.name }}"}
    retry: {attempts: 2, delay: 20ms, jitter: none}
    set: {tries: "${{ state.tries + 1 }}"}
  - {id: check, approval: {title: "Ship to ${{ inputs.name }}?"}}
  - {id: ship, python: {function: "shop:ship"}}
"""
SHOP = """
from flowengine.sdk import StepContext

calls = []

def fetch(name, context: StepContext):
    calls.append(name)
    context.log.warning("asking for %s", name)
    if len(calls) % 2:
        raise ConnectionError("no route to " + name)
    return {"path": "a.txt", "name": name, "size": 3, "sha256": "0" * 64}

def ship():
    try:
        1 / 0
    except ZeroDivisionError as error:
        raise ValueError("the sum is wrong") from error
"""


@pytest.fixture
def order(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An execution that was retried, approved, and then failed."""
    return ordered(api, tmp_path, monkeypatch)


def ordered(
    api: Api, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str = "Ada", label: str = "x"
) -> str:
    (folder / "shop.py").write_text(SHOP)
    (folder / "order.yaml").write_text(ORDER)
    monkeypatch.syspath_prepend(folder)
    result = api.engine.run("order.yaml", {"name": name}, labels={"team": label})
    api.engine.approvals.approve(result.waits[0]["id"])
    return result.execution


def test_a_step_shows_its_attempts_and_its_error_with_causes_and_the_command(
    api: Api, order: str
) -> None:
    owner = Browser(api)
    text = owner("GET", f"/executions/{order}?at=ship").text
    places = [
        text.index(part)
        for part in ("the sum is wrong", "division by zero", "flowengine retry", "Attempt 1")
    ]
    assert places == sorted(places)
    assert "shop.py:" in text
    text = owner("GET", f"/executions/{order}?at=fetch").text
    assert "no route to Ada" in text
    assert f'href="/v1/executions/{order}/artifacts/{"0" * 64}">Ada</a>' in text
    assert "Attempt 2" in text
    assert len(re.findall(r'WARNING</span> <span class="body">asking for Ada<', text)) == 2
    text = owner("GET", f"/executions/{order}").text
    assert 'href="/executions/' + order + '?at=ship"' in text
    assert "division by zero" in text
    assert owner("GET", f"/executions/{order}?at=none").status_code == 404


ROWS = """
flowengine: 1
id: rows
inputs: {text: {type: string}, other: {type: string}}
steps: [{id: a, output: 1}]
outputs:
  sizes:
    - {name: "${{ inputs.text }}", size: 3, execution: "${{ inputs.other }}"}
    - {name: b, ok: true}
  nested: [{in: {it: 1}}]
  many: "${{ range(205).map(n, {'number': n}) }}"
"""


# Shows G14
def test_rows_in_outputs_are_tables_with_links_to_executions(
    api: Api, tmp_path: Path, order: str
) -> None:
    (tmp_path / "rows.yaml").write_text(ROWS)
    rows = api.engine.run("rows.yaml", {"text": HOSTILE, "other": order}).execution
    text = Browser(api)("GET", f"/executions/{rows}").text
    tables = re.findall(r"<h2>(\w+)</h2>\s*<div[^>]*>\s*<table>(.*?)</table>", text, re.DOTALL)
    assert [name for name, _ in tables] == ["Sizes", "Many"]
    cells = re.findall(r"<t[dh](?: [^>]*)?>(.*?)</t[dh]>", tables[0][1])
    link = f'<a href="/executions/{order}">{order}</a>'
    assert cells[:4] == ["Name", "Size", "Execution", "Ok"]
    assert cells[4:] == [str(escape(HOSTILE)), "3", link, "", "b", "", "", "true"]
    assert tables[1][1].count("<tr>") == 1 + 200
    assert "5 more rows" in text


def test_a_long_wait_is_cut_out_of_the_timeline() -> None:
    found = drawn(
        step("a", 0, 100, (0, 100)),
        step("b", 100, 3 * DAY),
        step("c", 3 * DAY, 3 * DAY + 1, (3 * DAY, 3 * DAY + 1)),
    )
    [[first], [wait], [last]] = found.bars.values()
    [cut] = found.cuts
    assert cut.length == "2 d"
    assert first.width + cut.width + 30 > WIDTH - wait.width
    assert (wait.x, round(wait.width)) == (round(cut.x, 1), cut.width)
    assert last.x > wait.x
    assert first.width > 10 * last.width


def test_a_timeline_zooms_and_moves_and_comes_back() -> None:
    steps = [step(name, 100 * n, 100 * n + 100, (100 * n, 100 * n + 100))
             for n, name in enumerate("abcd")]  # fmt: skip
    whole = drawn(*steps)
    assert set(whole.views) == {"Zoom in"}
    part = whole.views["Zoom in"]
    assert part == (100, 300)
    found = drawn(*steps, part=part)
    shown = [address for address, bars in found.bars.items() if bars and bars[0].width > 400]
    assert shown == ["b", "c"]
    assert found.views["Zoom out"] == (0, 400)
    assert found.views["Whole"] == (0, 0)
    assert found.views["Later"] == (200, 400)


def drawn(*steps: dict[str, Any], part: tuple[int, int] = (0, 0)) -> Timeline:
    return timeline(Folds.of(steps), at(0), 0, "", 0, part)


def step(address: str, start: int, end: int, *tries: tuple[int, int]) -> dict[str, Any]:
    attempts = [
        {"attempt": number, "status": "succeeded", "started_at": at(begun), "ended_at": at(ended)}
        for number, (begun, ended) in enumerate(tries, 1)
    ]
    times = {"started_at": at(start), "ended_at": at(end)}
    named = {"address": address, "step": address, "kind": "x"}
    return {**named, "status": "succeeded", "tries": attempts, **times}


def at(ms: int) -> str:
    return format_time(1_700_000_000_000 + ms)


# Shows V52
def test_the_past_of_an_execution_has_its_waits_steps_and_state(api: Api, order: str) -> None:
    seen = [
        (info["status"], info["state"].get("tries"), [wait["title"] for wait in info["waits"]])
        for info in (api.engine.executions.show(order, until=number) for number in range(6))
    ]
    asked = [number for number, moment in enumerate(seen) if moment[2]]
    assert seen[0] == ("recorded", None, [])
    assert [seen[number] for number in asked] == [("waiting", 1, ["Ship to Ada?"])]
    assert seen[asked[0] - 1][1:] == (0, [])
    with pytest.raises(UsageError):
        api.engine.executions.show(order, until=1, step="fetch")

    owner, path = Browser(api), f"/executions/{order}/history"
    text = owner("GET", f"{path}?event={asked[0] - 1}").text
    assert "Ship to Ada?" in text
    assert "the sum is wrong" not in text
    assert "&#34;tries&#34;: 1" in text
    assert 'title="ship"' not in text
    last = owner("GET", path).text
    assert "the sum is wrong" in last
    assert 'rel="next"' not in last
    for number in ("99999", "-1", "x"):
        assert owner("GET", f"{path}?event={number}").status_code == 200


def test_an_execution_that_has_not_begun_has_no_history(api: Api) -> None:
    id = api.engine.start(api.flows[0], {"amount": 1})
    owner = Browser(api)
    assert owner("GET", f"/executions/{id}/history").status_code == 404
    for view in ("", "/timeline", "/events", "/compare"):
        assert owner("GET", f"/executions/{id}{view}").status_code == 200


# Shows V52
def test_two_executions_are_shown_side_by_side(
    api: Api, order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, hidden = ordered(api, tmp_path, monkeypatch, "Bo"), api.started()[0]
    owner, path = Browser(api), f"/executions/{order}/compare"
    assert f"?with={other}" in owner("GET", path).text
    text = owner("GET", f"{path}?with={other}").text
    assert "First difference: inputs" in text
    assert text.index("&#34;Ada&#34;") < text.index("&#34;Bo&#34;")
    limited = Browser(api, api.token("user:owner", "admin", "order", content=True))
    for id in ("none", hidden):
        assert "There is no execution" in limited("GET", f"{path}?with={id}").text


def test_each_view_shows_hostile_text_only_as_text_and_to_those_who_may_see_it(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = ordered(api, tmp_path, monkeypatch, HOSTILE, HOSTILE)
    owner, vera = Browser(api), Browser(api, api.token("user:vera"))
    shown = 0
    for view in ("", "?at=fetch", "/timeline", "/history", "/history?event=2", "/events",
                 "/events?type=failed", f"/compare?with={id}",
                 f"/compare?with={HOSTILE}"):  # fmt: skip
        text = owner("GET", f"/executions/{id}{view}").text
        assert "<script>alert" not in text
        assert "<img" not in text
        shown += "&lt;script&gt;alert" in text
        hidden = vera("GET", f"/executions/{id}{view}")
        assert hidden.status_code in (200, 403)
        assert "no route" not in hidden.text
        assert "type=" not in view or "<strong>started" not in text
        assert "sum is wrong" not in hidden.text
    assert shown >= 4


def test_an_execution_is_retried_forked_and_cancelled(api: Api, order: str) -> None:
    """By operators, and the server drives none of it. A form that is sent twice makes one fork."""
    path = f"/executions/{order}"
    vera, owner = Browser(api, api.token("user:vera")), Browser(api)
    assert "/retry" not in vera("GET", path).text
    assert "/fork" not in vera("GET", f"{path}?at=ship").text
    assert "/cancel" not in owner("GET", path).text  # it has ended

    step = owner("GET", f"{path}?at=check").text
    assert f'href="{path}/fork?at=check"' in step
    asked = words(owner("GET", f"{path}/fork?at=check").text)
    assert "1 step is not repeated" in asked
    assert re.search(r"may take effect twice: 1 [^.]*\. ship Begins again: 1 [^.]*\. check", asked)
    form = {"form_token": owner.form_token(path), "from_step": "check", "command": "c"}
    [place] = {owner("POST", f"{path}/fork", form).headers["location"] for _ in range(2)}
    forked = place.removeprefix("/executions/")
    assert api.engine.executions.show(forked)["forked_from"] == f"{order} at check"
    for step in ("", "no"):
        refused = owner("POST", f"{path}/fork", {**form, "command": "x", "from_step": step})
        assert refused.status_code == 404

    assert f'href="{path}/retry"' in owner("GET", path).text
    assert "may take effect twice" in owner("GET", f"{path}/retry").text
    for _ in range(2):
        assert owner("POST", f"{path}/retry", form).headers["location"] == path
    assert owner("POST", f"{path}/retry", {**form, "command": "x"}).status_code == 409

    api.engine.resume(forked)
    assert f'href="{place}/cancel"' in owner("GET", place).text
    assert "nothing is undone" in owner("GET", f"{place}/cancel").text
    refused = owner("POST", f"{place}/cancel", {**form, "reason": "x" * 10_001})
    assert refused.status_code == 422
    assert owner("POST", f"{place}/cancel", {**form, "reason": "twice"}).status_code == 303
    assert api.engine.resume(forked).status == "cancelled"


# Shows V55
def test_a_fork_begins_with_changed_state_or_a_changed_flow(api: Api, order: str) -> None:
    owner, path = Browser(api), f"/executions/{order}/fork"
    assert f'href="{path}?at=ship"' in owner("GET", f"/executions/{order}?at=ship").text
    text = owner("GET", f"{path}?at=ship").text
    assert '<input id="set.tries" name="set.tries" value="1"' in text
    assert owner("GET", f"{path}?at=none").status_code == 404
    form = {"form_token": owner.form_token(path.removesuffix("/fork")), "from_step": "ship"}
    form |= {"flow": "", "set.tries": "x"}
    refused = owner("POST", path, form)
    assert refused.status_code == 422
    assert 'value="x"' in refused.text
    place = owner("POST", path, {**form, "set.tries": "7"}).headers["location"]
    forked = place.removeprefix("/executions/")
    assert api.engine.executions.show(forked, until=10**9)["state"] == {"tries": 7}

    Path("other.yaml").write_text(ORDER.replace("check, approval", "check, title: x, approval"))
    other = api.engine.flows.deploy("other.yaml")["hash"]
    assert f'<option value="{other}"' in owner("GET", f"{path}?at=ship").text
    place = owner("POST", path, {**form, "set.tries": "1", "flow": other}).headers["location"]
    forked = place.removeprefix("/executions/")
    assert api.engine.executions.flow_of(forked).form == other
    assert api.engine.executions.show(forked, until=10**9)["state"] == {"tries": 1}
    otto = Browser(api, api.token("user:otto"))
    hidden = otto("GET", f"{path}?at=ship").text
    assert 'name="set.tries" value=""' in hidden
    assert owner("POST", path, {**form, "set.tries": "1", "flow": "none1234"}).status_code == 404


INVOICES = """
flowengine: 1
id: invoices
steps:
  - id: each
    map: {over: 12, concurrency: 1, join: {need: 10}}
    python: "ledger:book"
    with: {number: "${{ item }}"}
"""
LEDGER = """
from pathlib import Path

def book(number):
    if number % 4 == 1 and not Path("fixed").exists():
        raise ConnectionError(f"no answer about invoice {number}")
    if number == 2:
        raise ValueError(f"invoice {number}: the total differs")
    return number
"""


# Shows P5
def test_failures_are_grouped_by_cause_and_one_cause_is_retried(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ledger.py").write_text(LEDGER)
    Path("invoices.yaml").write_text(INVOICES)
    monkeypatch.syspath_prepend(tmp_path)
    id = api.engine.run("invoices.yaml").execution
    path, owner = f"/executions/{id}", Browser(api)
    text = owner("GET", path).text
    failures = words(text[text.index('id="failures"') : text.index('class="stack"')])
    assert failures.index("of the 10 items needed have succeeded at each") < failures.index(
        "ConnectionError : no answer about invoice … 2 steps each[1] , each[5] Retry 2…"
    )
    assert "ValueError : invoice 2: the total differs each[2] Retry 1…" in failures
    [retry] = re.findall(rf'href="({path}/retry\?cause=\w+)">Retry 2', text)
    asked = owner("GET", retry).text
    assert "each[5]" in asked
    assert "each[2]" not in asked
    steps = html.unescape(re.findall(r'name="steps" value="([^"]+)"', asked)[0])
    Path("fixed").touch()
    form = {"form_token": owner.form_token(path), "steps": steps}
    assert owner("POST", f"{path}/retry", form).status_code == 303
    assert api.engine.resume(id).status == "succeeded"
    assert owner("POST", f"{path}/retry", {**form, "steps": "["}).status_code == 422


PAYMENT = """
flowengine: 1
id: payment
inputs: {order: {type: string}}
signals:
  paid:
    key: "${{ inputs.order }}"
    data: {type: object, properties: {amount: {type: number}}, required: [amount]}
  stop: {}
steps:
  - {id: pay, wait: {first: [{id: paid, signal: paid}, {id: stop, signal: stop}]}}
outputs: {amount: "${{ steps.pay.output.data.amount }}"}
"""


# Shows P6
def test_a_signal_that_is_waited_for_is_sent_with_its_form(api: Api) -> None:
    Path("payment.yaml").write_text(PAYMENT)
    id = api.engine.run("payment.yaml", {"order": "B1"}).execution
    path, owner = f"/executions/{id}", Browser(api)
    text = owner("GET", path).text
    assert "waiting for a message &#39;paid&#39; or &#39;stop&#39; with key &#39;B1&#39;" in text
    assert f'action="{path}/signals/stop"' in text
    assert "/signals/" not in Browser(api, api.token("user:vera"))("GET", path).text
    otto = Browser(api, api.token("user:otto"))  # who sees no content
    assert f'action="{path}/signals/paid"' in otto("GET", path).text
    form = {"form_token": owner.form_token(path), "signal.paid.data.amount": "much"}
    refused = owner("POST", f"{path}/signals/paid", form)
    assert refused.status_code == 422
    assert 'value="much"' in refused.text
    form["signal.paid.data.amount"] = "12.5"
    assert owner("POST", f"{path}/signals/paid", form).headers["location"] == path
    assert api.engine.resume(id).outputs == {"amount": 12.5}
    assert owner("POST", f"{path}/signals/paid", form).status_code == 409


# Shows P11
def test_the_history_marks_failures_waits_and_decisions(api: Api, order: str) -> None:
    owner, path = Browser(api), f"/executions/{order}/history"
    text = owner("GET", f"{path}?event=1").text
    looks = re.findall(r'<rect class="part (\w+)"', text[: text.index('id="moment"')])
    assert looks == ["bad", "you", "ok", "bad"]
    assert re.search(r'id="graph_step_fetch" class="node is-\w+ lit"', text)
    [following] = re.findall(r'href="(\?event=\d+)">Next mark', text)
    assert "Ship to Ada?" in owner("GET", f"{path}{following}").text


TITLED = """
flowengine: 1
id: titled
steps:
  - id: read
    title: Read <invoices>
    map: {over: 2, on_item_error: continue}
    python: "ledger:read"
  - {id: plain, python: "ledger:read"}
"""


# Shows P3
def test_steps_are_named_by_their_titles(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ledger.py").write_text("def read(): raise ValueError('no')\n")
    Path("titled.yaml").write_text(TITLED)
    monkeypatch.syspath_prepend(tmp_path)
    path, owner = f"/executions/{api.engine.run('titled.yaml').execution}", Browser(api)
    for view, address in (
        ("", ""), ("", "[0]"), ("?at=read[1]", "[1]"), ("/timeline", ""), ("/history", ""),
        ("/fork?at=read[0]", "[0]"),
    ):  # fmt: skip
        title = f"Read &lt;invoices&gt; {address}".strip()
        shown = f'{title} <code title="read{address}" class="id">read{address}</code>'
        assert shown in owner("GET", path + view).text, view
    assert '<code title="plain">plain</code>' in owner("GET", path).text


SLOW = """
flowengine: 1
id: slow
steps: [{id: work, python: "ledger:work"}, {id: ask, approval: {title: Go on?}}]
"""
WORK = """
import time
from pathlib import Path

def work():
    while not Path("go").exists():
        time.sleep(0.01)
"""


BOOKING = """
flowengine: 1
id: booking
inputs: {wait: {type: boolean, default: false}, undo: {type: boolean, default: false}}
steps:
  - id: book
    group:
      - {id: flight, title: Book a flight, python: "agency:go", compensate: {python: "agency:go"}}
      - {id: ask, when: "${{ inputs.wait }}", approval: {title: Go on?}}
      - {id: pay, python: "agency:pay"}
    finally: [{id: tidy, python: "agency:go"}]
on_error:
  - {when: "${{ inputs.undo }}", compensate: true}
  - {type: Cancelled, compensate: true}
finally: [{id: report, python: "agency:go"}]
"""


def test_interventions_tell_what_is_compensated_and_cleaned_up(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agency.py").write_text(
        "from pathlib import Path\ndef go(): return 1\n"
        "def pay():\n    if not Path('paid').exists(): raise ValueError('no money')\n"
    )
    Path("booking.yaml").write_text(BOOKING)
    monkeypatch.syspath_prepend(tmp_path)
    owner = Browser(api)
    undone, failed, open_ = (
        f"/executions/{api.engine.run('booking.yaml', given).execution}"
        for given in ({"undo": True}, {}, {"wait": True})
    )
    text = owner("GET", undone).text
    [fork] = re.findall(r'href="([^"]+)">Continue in a fork', text)
    assert "/retry" not in text
    assert re.search(r"<title>Book a flight\. [^<]*succeeded</title>", text)
    assert "2 succeeded" not in text[text.index("<svg xmlns") : text.index('id="steps"')]
    assert "Runs again, and may take effect twice: 4" in words(owner("GET", fork).text)
    again = words(owner("GET", f"{undone}/fork?at=book/pay").text)
    assert "Kept, although they were compensated: 1" in again
    assert re.search(r"twice: 3 [^.]*\. book/pay , book/finally/tidy , finally/report ", again)

    bulk = f"/bulk/executions?do=retry&pick.{failed[12:]}=on&pick.{undone[12:]}=on"
    assert "3 run again, 3 may take effect twice" in words(owner("GET", bulk).text)
    assert "it was compensated before it failed" in owner("GET", bulk).text
    asked = words(owner("GET", f"{failed}/retry").text)
    assert "1 step is not repeated" in asked
    assert re.search(r"twice: 3 [^.]*\. book/pay , book/finally/tidy , finally/report ", asked)
    before = [*api.engine.executions.events(failed[12:])]
    Path("paid").touch()
    form = {"form_token": owner.form_token(failed)}
    assert owner("POST", f"{failed}/retry", form).status_code == 303
    assert api.engine.resume(failed[12:]).status == "succeeded"
    new = [*api.engine.executions.events(failed[12:], from_seq=len(before))]
    ran = dict.fromkeys(event["address"] for event in new if "address" in event)
    assert [*ran] == ["book/pay", "book/finally/tidy", "finally/report"]

    asked = words(owner("GET", f"{open_}/cancel").text)
    assert re.search(r"Compensated: 1 [^.]*\. Book a flight book/flight ", asked)
    assert re.search(r"Cleans up: 2 [^.]*\. book/finally/tidy , finally/report ", asked)
    bulk = f"/bulk/executions?do=cancel&pick.{open_[12:]}=on"
    assert "1 compensated, 2 clean up" in words(owner("GET", bulk).text)
