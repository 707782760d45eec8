# Shows P7, V54
"""The inbox: its order and filters, claims, and several approvals of one execution."""

from __future__ import annotations

import html
import json
import re
from base64 import b64decode
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from flowengine import Engine
from flowengine.page import approval_views
from tests.engines import world
from tests.replacing import Limits
from tests.server.api import OWNER, Api
from tests.server.test_page import FORM, HOSTILE, Browser, waiting, words
from tests.testing.faulty_store import FaultyStore, ProcessDied

BOTH = """
flowengine: 1
id: both
steps:
  - id: work
    parallel:
      - {id: left, approval: {title: Left?, assignees: ["user:ben"], claim: true}}
      - {id: right, approval: {title: Right?, assignees: ["user:ben"]}}
"""


@pytest.fixture
def flows() -> tuple[str, ...]:
    return (BOTH,)


@pytest.fixture
def ben(api: Api) -> Browser:
    return Browser(api, api.token("user:ben"))


def links(text: str) -> list[str]:
    return [link.replace("&amp;", "&") for link in re.findall(r'href="(/approvals/[^"]+)"', text)]


def test_the_filter_is_in_the_address_and_stays_while_an_approval_is_decided(
    api: Api, ben: Browser
) -> None:
    api.engine.run(api.flows[0])
    _, wait = waiting(api)
    [link] = links(ben("GET", "/approvals?flow=hire&for=all").text)
    assert link == f"/approvals/{wait}?for=all&flow=hire"
    text = ben("GET", link).text
    assert '"/approvals?for=all&amp;flow=hire"' in text
    sent = {"form_token": ben.form_token(link), "list": "for=all&flow=hire&next=//evil"}
    form = {**sent, "choice": "approve", "form.grade": "senior", "form.salary": "1"}
    place = ben("POST", f"/approvals/{wait}", form).headers["location"]
    assert urlsplit(place).path == f"/approvals/{wait}"
    assert parse_qs(urlsplit(place).query) == {"for": ["all"], "flow": ["hire"]}
    assert links(ben("GET", "/approvals?flow=hire").text) == []
    hostile = ben("GET", "/approvals?" + "flow=" + HOSTILE.replace(" ", "+").replace("{", "%7B"))
    assert "<script>alert" not in hostile.text


def test_all_are_in_order_of_their_due_times_over_the_pages(
    api: Api, ben: Browser, limits: Limits
) -> None:
    limits(approval_views, LIMIT=2)
    for number in range(3):
        waiting(api, f"Ada{number}")
    with open("hire.yaml", "w") as file:
        file.write(FORM.replace("title: Hire", "expires: 1h\n      title: Hire"))
    api.engine.run("hire.yaml", {"name": "Zoe"})
    with open("hire.yaml", "w") as file:
        file.write(FORM.replace("title: Hire", "expires: 30m\n      title: Hire"))
    api.engine.run("hire.yaml", {"name": "Yan"})
    seen, address = [], ""
    while True:
        text = ben("GET", f"/approvals{address}").text
        seen.append(re.findall(r'class="t"[^>]*>Hire (\w+)\?', text))
        found = re.findall(r'rel="next" href="([^"]+)"', text)
        if not found:
            break
        address = found[0].replace("&amp;", "&")
    assert seen == [["Yan", "Zoe"], ["Ada0", "Ada1"], ["Ada2"]]


def titles(text: str) -> list[str]:
    return re.findall(r'class="t"[^>]*>([^<]+)<', text)


def test_open_ones_are_grouped_by_due_time_with_counts_by_flow_and_closed_ones_newest_first(
    api: Api, ben: Browser
) -> None:
    waits = [waiting(api, name)[1] for name in ("Ada", "Zoe")]
    api.engine.run(api.flows[0])
    with open("hire.yaml", "w") as file:
        file.write(FORM.replace("title: Hire", "expires: 3h\n      title: Hire"))
    api.engine.run("hire.yaml", {"name": "Yan"})
    text = ben("GET", "/approvals").text
    assert re.findall(r'<h2 class="group">([^<]+)<', text) == ["Within a day", "Later"]
    assert titles(text)[0] == "Hire Yan?"
    counts = words(text[text.index('aria-label="Flows"') :])
    assert "Every flow 5 hire 3 both 2" in counts
    assert len(titles(ben("GET", "/approvals?flow=both").text)) == 2
    for wait in waits[::-1]:
        api.engine.approvals.decide(wait, "reject", by="user:ben")
    closed = ben("GET", "/approvals?for=all&status=closed").text
    assert titles(closed) == ["Hire Zoe?", "Hire Ada?"]
    assert 'class="group"' not in closed


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("## Trip\n\n- by *train*", "<h2>Trip</h2>\n<ul>\n<li>by <em>train</em></li>\n</ul>"),
        ("a|b\n-|-\n1|2", "<td>1</td>"),
        ("<b onclick=x>", "&lt;b onclick=x&gt;"),
        ("![p](https://a.example/p.png)", '!<a href="https://a.example/p.png">p</a>'),
        ("[x](javascript:alert(1))", "[x](javascript:alert(1))"),
        ("[x](data:image/png;base64,AA)", "[x](data:image/png;base64,AA)"),
        ("[x](//a.example) [y](/sign-out)", "[x](//a.example) [y](/sign-out)"),
        ("[m](mailto:a@b.example)", '<a href="mailto:a@b.example">m</a>'),
    ],
)
# Shows P8
def test_the_body_of_an_approval_is_markdown_that_can_do_nothing(
    api: Api, ben: Browser, text: str, shown: str
) -> None:
    written = FORM.replace('body: "About ${{ inputs.name }}"', f"body: {json.dumps(text)}")
    (api.folder / "hire.yaml").write_text(written)
    [wait] = api.engine.run(api.folder / "hire.yaml", {"name": "Zoe"}).waits
    page = ben("GET", f"/approvals/{wait['id']}").text
    [prose] = re.findall(r'<div class="prose">(.*?)</div>', page, re.DOTALL)
    assert shown in prose


SHIP = """
flowengine: 1
id: ship
inputs: {picture: {format: file}, list: {format: file}, note: {format: file}}
steps:
  - id: ask
    approval:
      title: Ship it?
      assignees: ["user:owner"]
      files: ["${{ inputs.picture }}", "${{ inputs.list }}", "${{ inputs.note }}"]
      choices:
        - {id: approve, title: Ship}
        - hold
        - {id: reject, comment: required}
        - {id: give_up, as: reject}
    on_error: [{type: Rejected, next: undo}]
    next: {outcome: {approve: ship, hold: end, give_up: undo}}
  - {id: ship, title: Ship the <parcel>, next: end}
  - {id: undo, title: Send back}
"""
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJg"
    "gg=="
)


def with_files(engine: Engine, folder: Path) -> tuple[str, Any]:
    """Return an approval with a picture, a table and a text, and the inputs of its execution."""
    files = {
        "picture": ("scan.png", b64decode(PIXEL)),
        "list": ("parcels.csv", b"parcel,kg\n<script>alert(1)</script>,2\n"),
        "note": ("note.txt", f"Careful {HOSTILE}".encode()),
    }
    inputs = {}
    for name, (file, content) in files.items():
        (folder / file).write_bytes(content)
        kept = engine.store.hold_artifact(folder / file, file)
        inputs[name] = {"path": str(engine.store.fetch_artifact(kept.sha256)), **kept._asdict()}
    (folder / "ship.yaml").write_text(SHIP)
    [wait] = engine.run(folder / "ship.yaml", inputs).waits
    return wait["id"], inputs


# Shows P8
def test_files_are_shown_beside_an_approval_and_what_each_choice_leads_to(
    api: Api, tmp_path: Path
) -> None:
    wait, inputs = with_files(api.engine, tmp_path)
    owner, path = Browser(api), f"/approvals/{wait}"
    text = owner("GET", path).text
    assert f'artifacts/{inputs["picture"]["sha256"]}" alt="scan.png"' in text
    assert "Careful &lt;script&gt;" in text
    assert "<table>" not in text
    [link] = re.findall(r'href="(\?[^"]*file=[^"]+)">Preview', text)
    text = owner("GET", path + link.replace("&amp;", "&")).text
    assert "<td>&lt;script&gt;alert(1)&lt;/script&gt;</td>" in text
    assert "<script>alert" not in text
    hidden = Browser(api, api.token("user:otto"))("GET", f"{path}{link.replace('&amp;', '&')}")
    assert not any(name in hidden.text for name in ("scan.png", "Careful", "alert(1)"))
    dock = html.unescape(words(text[text.index('class="dock"') : text.index("<dialog")]))
    assert dock.endswith(
        "Ship continues with Ship the <parcel>. Hold ends the flow. "
        "Reject needs a comment and continues with Send back. Give up continues with Send back."
    ), dock


def test_the_next_approval_opens_after_a_decision(api: Api, ben: Browser) -> None:
    waits = [waiting(api, name)[1] for name in ("Ada", "Bea", "Cy")]
    for wait, following in zip(waits, (*waits[1:], None), strict=True):
        opened = f"/approvals/{wait}"
        page = ben("GET", opened).text
        found = re.findall(r'name="next" value="(\w+)"', page)
        assert found == ([] if following is None else [following])
        form = {
            "form_token": ben.form_token(opened),
            "choice": "reject",
            "form.grade": "junior",
            "form.salary": "1",
        }
        if following is not None:
            form["next"] = following
        answer = ben("POST", opened, form)
        assert answer.status_code == 303, answer.text
        expected = opened if following is None else f"/approvals/{following}?decided={wait}"
        assert answer.headers["location"] == expected
        page = ben("GET", expected).text
        if following is not None:
            assert f'rejected by ben</span></span>: <a href="{opened}">Hire' in page
    assert "Nothing waits for you" in ben("GET", "/approvals").text


def test_return_in_a_field_decides_nothing(api: Api, ben: Browser) -> None:
    """A browser presses the first button of a form then, which is the disabled one."""
    _, wait = waiting(api)
    text = ben("GET", f"/approvals/{wait}").text
    form = text[text.index('<form method="post" id="decide"') :]
    assert re.findall(r"<button[^>]*>", form)[0] == "<button disabled hidden>"


def test_what_a_user_may_not_decide_is_not_for_the_user(api: Api) -> None:
    """An approval without assignees is for all users with the right, and for no others."""
    (api.folder / "any.yaml").write_text(
        "flowengine: 1\nid: any\nsteps: [{id: ask, approval: {title: Any?}}]\n"
    )
    [wait] = api.engine.run(api.folder / "any.yaml").waits
    for user, count in (("user:ben", 1), ("user:vera", 0), ("user:otto", 0)):
        token = api.token(user)
        mine = api("GET", "/v1/approvals?assignee=me", token=token, code=200)["items"]
        assert len(mine) == count, user
        assert len(api("GET", "/v1/approvals", token=token, code=200)["items"]) == 1
        inbox = Browser(api, token)("GET", "/approvals").text
        assert (f"/approvals/{wait['id']}" in inbox) is bool(count), user


VOTED = """
flowengine: 1
id: voted
steps:
  - id: ask
    approval:
      title: Open an office?
      body: "In **Bern**, with `4` rooms:\\n\\n- quiet\\n- warm"
      need: 2
      assignees: ["group:finance", "user:ben"]
      choices: [{id: approve}, {id: reject, title: Do not open, comment: required}]
"""


def test_an_approval_that_the_user_has_given_is_left_to_the_others(
    api: Api, ben: Browser, tmp_path: Path
) -> None:
    (tmp_path / "voted.yaml").write_text(VOTED)
    result = api.engine.run("voted.yaml")
    [wait] = result.waits
    path, carla = f"/approvals/{wait['id']}", Browser(api, api.token("user:carla"))
    assert "In Bern, with 4 rooms: · quiet · warm<" in ben("GET", "/approvals").text
    form = {"form_token": ben.form_token(path)}
    refused = ben("POST", path, {**form, "choice": "reject"})
    assert refused.status_code == 422
    assert "&#39;Do not open&#39; needs a comment" in refused.text
    ben("POST", path, {**form, "choice": "approve"})
    api.engine.resume(result.execution)
    assert links(ben("GET", "/approvals").text) == []
    assert "You have approved" in ben("GET", path).text
    assert 'class="count"' not in ben("GET", "/flows").text
    assert links(carla("GET", "/approvals").text) == [path]
    assert "1 of 2 approvals: ben" in carla("GET", path).text


def links_in(text: str) -> list[str]:
    return [html.unescape(link) for link in re.findall(r'href="([^"]+)"', text)]


CARDS = """
flowengine: 1
id: cards
steps: [{id: card, map: {over: 3, concurrency: 3}, python: "effects:act", effect: once}]
"""


def test_interrupted_items_of_a_map_are_one_question_with_the_single_ones_below(
    tmp_path: Path,
) -> None:
    world.make(tmp_path, "steps: [{id: a, output: 1}]")
    (tmp_path / "cards.yaml").write_text(CARDS)
    store = FaultyStore()
    with suppress(ProcessDied), Engine(store) as engine:
        engine.subscribe(lambda update: store.die() if update.step is not None else None)
        engine.run(tmp_path / "cards.yaml", id="cards")
    store.restart()
    api = Api(tmp_path, (), Engine(store, user=OWNER))
    try:
        waits = api.engine.resume("cards").waits
        owner = Browser(api)
        text = owner("GET", "/approvals").text
        assert "3 items of card were interrupted. Did they take effect?" in text
        assert [link.partition("?")[0] for link in links(text)] == [
            f"/approvals/{wait['id']}" for wait in waits
        ]
        [every] = [one for one in links_in(text) if one.startswith("/bulk/approvals?")]
        assert "Answer all 3 at once" in text
        assert "3 can be decided" in owner("GET", every).text
        assert every in links_in(owner("GET", f"/approvals/{waits[0]['id']}").text)
        api.engine.approvals.decide(waits[0]["id"], "retry", resume=False)
        assert "2 items of card" in owner("GET", "/approvals").text
    finally:
        api.close()
