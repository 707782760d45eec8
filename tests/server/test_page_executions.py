"""The views of one execution: steps, time, history, events, and another execution beside it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest

from flowengine.engines.folds import Folds
from flowengine.errors import UsageError
from flowengine.kernel.notation.times import format_time
from flowengine.page.timeline import WIDTH, Timeline, timeline
from tests.server.api import HOST, LOCAL, Api
from tests.server.test_page import HOSTILE, MANY, Browser, waiting

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
    text = owner("GET", f"/executions/{order}/step?at=ship").text
    places = [
        text.index(part)
        for part in ("the sum is wrong", "division by zero", "flowengine retry", "Attempt 1")
    ]
    assert places == sorted(places)
    assert "shop.py:" in text
    text = owner("GET", f"/executions/{order}/step?at=fetch").text
    assert "no route to Ada" in text
    assert f'href="/v1/executions/{order}/artifacts/{"0" * 64}">Ada</a>' in text
    assert "Attempt 2" in text
    assert len(re.findall(r'WARNING</span> <span class="body">asking for Ada<', text)) == 2
    text = owner("GET", f"/executions/{order}").text
    assert 'href="/executions/' + order + '/step?at=ship"' in text
    assert "division by zero" in text
    assert owner("GET", f"/executions/{order}/step?at=none").status_code == 404


def test_the_timeline_shows_attempts_waits_and_folds(api: Api, order: str) -> None:
    text = Browser(api)("GET", f"/executions/{order}/timeline").text
    [fetch, check, ship] = re.findall(r'<svg class="bars".*?</svg>', text, re.DOTALL)
    bars = re.findall(r'<rect class="(?!cut)(\w+)".*?<title>(.*?),', fetch)
    assert bars == [("failed", "attempt 1"), ("pause", "pause"), ("succeeded", "attempt 2")]
    assert 'class="waiting"' in check
    assert 'class="failed"' in ship
    with open("many.yaml", "w") as file:
        file.write(MANY)
    many = f"/executions/{api.engine.run('many.yaml').execution}/timeline"
    text = Browser(api)("GET", many).text
    [fold] = re.findall(r'<svg class="bars".*?</svg>', text, re.DOTALL)
    assert 'class="fold"' in fold
    assert 'class="failed"' in fold
    assert 'title="each[120]"' in Browser(api)("GET", f"{many}?at=each").text


def test_a_long_wait_is_cut_out_of_the_timeline() -> None:
    found = drawn(
        step("a", 0, 100, (0, 100)),
        step("b", 100, 3 * DAY),
        step("c", 3 * DAY, 3 * DAY + 1, (3 * DAY, 3 * DAY + 1)),
    )
    [first, wait, last] = [line.bars[0] for line in found.lines]
    [cut] = found.cuts
    assert cut.length == "2 d"
    assert first.width + cut.width + 30 > WIDTH - wait.width
    assert (wait.x, round(wait.width)) == (round(cut.x, 1), cut.width)
    assert last.x > wait.x
    assert first.width > 10 * last.width


def test_a_fold_lasts_from_the_first_start_in_it_to_the_last_end() -> None:
    inside = [step("a/x", 1500, 2500), step("a/y", 1000, 3000), step("a/z", 1001, 2999)]
    [line] = drawn(*inside).lines
    assert line.bars[0].what == "3 steps, 2.0 s"


def test_time_in_which_attempts_of_a_fold_run_is_not_cut_out() -> None:
    items = [step(f"each[{n}]", 100 + 500 * n, 600 + 500 * n, (100 + 500 * n, 600 + 500 * n))
             for n in range(4)]  # fmt: skip
    found = drawn(step("prepare", 0, 100, (0, 100)), *items)
    [prepare, each] = [line.bars[0] for line in found.lines]
    assert found.cuts == []
    assert round(each.width / prepare.width) == 20


def test_the_timeline_of_an_open_execution_goes_on_until_now() -> None:
    done = step("a", 0, 1000, (0, 1000))
    found = timeline(Folds([done]), at(0), 1_700_000_016_000, "", 0, (0, 0))
    assert found.took == "16 s"


def test_a_timeline_of_waits_alone_is_not_cut() -> None:
    found = drawn(step("a", 0, DAY), step("b", DAY, 3 * DAY))
    [first, second] = [line.bars[0] for line in found.lines]
    assert found.cuts == []
    assert round(second.width / first.width, 1) == 2


def test_a_timeline_zooms_and_moves_and_comes_back() -> None:
    steps = [step(name, 100 * n, 100 * n + 100, (100 * n, 100 * n + 100))
             for n, name in enumerate("abcd")]  # fmt: skip
    whole = drawn(*steps)
    assert set(whole.views) == {"Zoom in"}
    part = whole.views["Zoom in"]
    assert part == (100, 300)
    found = drawn(*steps, part=part)
    shown = [line.row.address for line in found.lines if line.bars and line.bars[0].width > 400]
    assert shown == ["b", "c"]
    assert found.views["Zoom out"] == (0, 400)
    assert found.views["Whole"] == (0, 0)
    assert found.views["Later"] == (200, 400)


def drawn(*steps: dict[str, Any], part: tuple[int, int] = (0, 0)) -> Timeline:
    return timeline(Folds(steps), at(0), 0, "", 0, part)


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


def test_events_are_shown_in_pages(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.py").write_text("def look(): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with open("many.yaml", "w") as file:
        each = 'map: {over: "${{ range(60) }}"}, effect: pure, python: {function: "shop:look"}'
        file.write(f"flowengine: 1\nid: many\nsteps: [{{id: each, {each}}}]\n")
    path = f"/executions/{api.engine.run('many.yaml').execution}/events"
    owner = Browser(api)
    seen, following = [], "?from_seq=0"
    while following:
        text = owner("GET", f"{path}{following}").text
        seen += [int(number) for number in re.findall(r'data-fold="/event-(\d+)"', text)]
        found = re.findall(r'rel="next" href="(\?from_seq=\d+)"', text)
        following = found[0] if found else ""
    assert len(seen) > 50
    assert seen == list(range(len(seen)))


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
    for view in ("", "/step?at=fetch", "/timeline", "/history", "/history?event=2", "/events",
                 f"/compare?with={id}", f"/compare?with={HOSTILE}"):  # fmt: skip
        text = owner("GET", f"/executions/{id}{view}").text
        assert "<script>alert" not in text
        assert "<img" not in text
        shown += "&lt;script&gt;alert" in text
        hidden = vera("GET", f"/executions/{id}{view}")
        assert hidden.status_code in (200, 403)
        assert "no route" not in hidden.text
        assert "sum is wrong" not in hidden.text
    assert shown >= 4


def test_a_wait_is_live_also_for_those_who_see_no_content(api: Api) -> None:
    execution, _ = waiting(api)
    for token in (LOCAL, api.token("user:vera")):
        text = Browser(api, token)("GET", f"/executions/{execution}").text
        assert f'data-execution="{execution}"' in text


def test_an_execution_is_retried_forked_and_cancelled(api: Api, order: str) -> None:
    """By operators, and the server drives none of it. A form that is sent twice makes one fork."""
    path = f"/executions/{order}"
    vera, owner = Browser(api, api.token("user:vera")), Browser(api)
    assert "/retry" not in vera("GET", path).text
    assert "/fork" not in vera("GET", f"{path}/step?at=ship").text
    assert "/cancel" not in owner("GET", path).text  # it has ended

    step = owner("GET", f"{path}/step?at=check").text
    form = {
        "form_token": owner.form_token(path),
        "from_step": "check",
        "command": re.findall(r'name="command" value="([^"]+)"', step)[-1],
    }
    assert f'action="{path}/fork"' in step
    [place] = {owner("POST", f"{path}/fork", form).headers["location"] for _ in range(2)}
    forked = place.removeprefix("/executions/")
    assert api.engine.executions.show(forked)["forked_from"] == f"{order} at check"
    assert (
        owner("POST", f"{path}/fork", {**form, "command": "x", "from_step": ""}).status_code == 422
    )
    assert (
        owner("POST", f"{path}/fork", {**form, "command": "x", "from_step": "no"}).status_code
        == 404
    )

    assert f'action="{path}/retry"' in owner("GET", path).text
    for _ in range(2):
        assert owner("POST", f"{path}/retry", form).headers["location"] == path
    assert owner("POST", f"{path}/retry", {**form, "command": "x"}).status_code == 409

    api.engine.resume(forked)
    assert f'action="{place}/cancel"' in owner("GET", place).text
    refused = owner("POST", f"{place}/cancel", {**form, "reason": "x" * 10_001})
    assert refused.status_code == 422
    assert owner("POST", f"{place}/cancel", {**form, "reason": "twice"}).status_code == 303
    assert api.engine.resume(forked).status == "cancelled"


def test_a_fork_begins_with_changed_state_or_a_changed_flow(api: Api, order: str) -> None:
    owner, path = Browser(api), f"/executions/{order}/fork"
    assert f'href="{path}?at=ship"' in owner("GET", f"/executions/{order}/step?at=ship").text
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


def test_two_clicks_at_once_make_one_fork(api: Api, order: str) -> None:
    owner, path = Browser(api), f"/executions/{order}"
    form = {"form_token": owner.form_token(path), "from_step": "check", "command": "c"}
    content = urlencode(form).encode()
    headers = {"cookie": owner.cookie, "content-type": "application/x-www-form-urlencoded"}

    async def click_twice() -> list[str]:
        transport = httpx2.ASGITransport(app=api.application.asgi)
        async with httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}") as one:
            sent = (one.post(f"{path}/fork", content=content, headers=headers) for _ in range(3))
            return [answer.headers["location"] for answer in await asyncio.gather(*sent)]

    before = len(api.engine.executions.list().items)
    assert len(set(asyncio.run(click_twice()))) == 1
    assert len(api.engine.executions.list().items) == before + 1
