# Shows F7
"""Flows built in Python: every style yields the same graph and behavior as a file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine, ExecutionResult, Flow, UsageError, cel, check, load
from flowengine.flow.building.steps import Words
from flowengine.flow.compile import compile_text
from flowengine.flow.models import Step
from tests.building import work


def same(flow: Flow, text: str) -> None:
    """Check that a flow equals a file, and still does after it was written out."""
    hash = flow.compile().hash
    written = flow.to_yaml()
    found: dict[str, Any] = {}
    exec(flow.to_python(), found)
    found["flow"].folder = flow.folder

    file = compile_text(f"flowengine: 1\nid: {flow.id}\n{text}", folder=flow.folder)
    assert file.hash == hash, written
    assert compile_text(written, folder=flow.folder).hash == hash, written
    assert found["flow"].compile().hash == hash, flow.to_python()


def run(flow: Flow, inputs: dict[str, Any] | None = None) -> ExecutionResult:
    with Engine(None) as engine:
        return engine.run(flow, inputs)


def test_a_branch_by_conditions_and_one_by_outcomes() -> None:
    flow = Flow("refund", inputs={"amount": float})
    route = flow.step("route")
    ask = flow.step("ask", approval=f"Refund {cel.inputs.amount}?")
    pay = flow.step(work.pay)
    refuse = flow.step(work.refuse, with_={"reason": "too much"})
    route.first((cel.inputs.amount <= 50, pay), (cel.inputs.amount > 500, refuse), otherwise=ask)
    ask.on(approve=pay, reject=refuse)
    pay.end()
    flow.output("told", cel.default(pay.output, refuse.output))

    same(
        flow,
        """
inputs: {amount: {type: number}}
steps:
  - id: route
    next:
      first:
        - {when: "${{ inputs.amount <= 50 }}", to: pay}
        - {when: "${{ inputs.amount > 500 }}", to: refuse}
        - {else: ask}
  - id: ask
    approval: Refund ${{ inputs.amount }}?
    next: {outcome: {approve: pay, reject: refuse}}
  - {id: pay, python: "tests.building.work:pay", with: {amount: "${{ inputs.amount }}"}, next: end}
  - {id: refuse, python: "tests.building.work:refuse", with: {reason: too much}}
outputs: {told: "${{ default(steps.pay.output, steps.refuse.output) }}"}
""",
    )
    assert run(flow, {"amount": 20.0}).outputs == {"told": "paid 20.0"}
    assert run(flow, {"amount": 900.0}).outputs == {"told": "refuse: too much"}
    assert run(flow, {"amount": 90.0}).status == "waiting"


def test_chains_fork_join_and_for_each() -> None:
    flow = Flow("count", inputs={"topic": str})
    found = flow.to(work.pages).last
    each = found.for_each(work.words, as_="page", concurrency=2)
    sum_ = flow.step(work.total, with_={"counts": each.output})
    note = flow.step(work.say, with_={"value": "counted"})
    both = flow.step("both", join="all", output=[sum_.output, note.output])
    each.to(sum_, note).to(both).end()
    flow.output("both", both.output)

    same(
        flow,
        """
inputs: {topic: {type: string}}
steps:
  - id: pages
    python: tests.building.work:pages
    with: {topic: "${{ inputs.topic }}"}
    next: words
  - id: words
    map: {over: "${{ steps.pages.output }}", as: page, concurrency: 2}
    python: tests.building.work:words
    with: {page: "${{ page }}"}
    next: {all: [total, say]}
  - id: total
    python: tests.building.work:total
    with: {counts: "${{ steps.words.output }}"}
    next: both
  - {id: say, python: "tests.building.work:say", with: {value: counted}, next: both}
  - id: both
    join: all
    output: ["${{ steps.total.output }}", "${{ steps.say.output }}"]
    next: end
outputs: {both: "${{ steps.both.output }}"}
""",
    )
    assert run(flow, {"topic": "a b"}).outputs == {"both": [9, "counted"]}


def test_groups_compensation_handlers_and_finally() -> None:
    work.done.clear()
    flow = Flow("trip")
    flow.tool(work.say, effect="idempotent")
    with flow.group(
        "book", on_error=[{"type": "Broke", "compensate": True, "next": "sorry"}]
    ) as book:
        hotel = flow.step("hotel", output={"id": "H"})
        hotel.spec["compensate"] = {"call": work.say, "with": {"value": f"no {hotel.output.id}"}}
        with flow.parallel("others"):
            flow.step("seat", output="7A")
            flow.step(work.broken)
        with book.finally_():
            flow.step("tidy", call=work.say, with_={"value": "tidied"})
    flow.step("thanks", output="booked").end()
    flow.step("sorry", output="not booked")
    with flow.finally_():
        flow.step("last", call=work.say, with_={"value": "the end"})
    flow.output("told", cel.default(cel.steps.thanks.output, cel.steps.sorry.output))

    same(
        flow,
        """
tools: {say: {python: "tests.building.work:say", effect: idempotent}}
steps:
  - id: book
    group:
      - id: hotel
        output: {id: H}
        compensate: {call: say, with: {value: "no ${{ output.id }}"}}
      - id: others
        parallel:
          - {id: seat, output: 7A}
          - {id: broken, python: "tests.building.work:broken"}
    finally: [{id: tidy, call: say, with: {value: tidied}}]
    on_error: [{type: Broke, compensate: true, next: sorry}]
  - {id: thanks, output: booked, next: end}
  - {id: sorry, output: not booked}
finally: [{id: last, call: say, with: {value: the end}}]
outputs: {told: "${{ default(steps.thanks.output, steps.sorry.output) }}"}
""",
    )
    assert run(flow).outputs == {"told": "not booked"}
    assert work.done == ["no H", "tidied", "the end"]


def test_signals_state_emit_and_waits() -> None:
    flow = Flow("news", inputs={"urls": list[str]})
    read = flow.state("read", list[str], default=[], reducer="append")
    flow.state("longest", str, default="", reducer=work.longer)
    page = flow.signal("page", {"type": "object"}, key=cel.execution.id)
    begin = flow.step("begin")
    each = flow.step(
        "each", map={"over": cel.inputs.urls, "as": "url"}, output=cel.url,
        set={"read": cel.url, "longest": cel.url},
    ).emit(page, {"url": cel.url}).emit(page, {})  # fmt: skip
    first = flow.step("first", wait={"signal": page}, timeout=timedelta(hours=1))
    begin.to(each, first)
    each.end()
    first.end()
    flow.output("read", cel.size(read), int)
    flow.output("longest", cel.state.longest)

    same(
        flow,
        """
inputs: {urls: {type: array, items: {type: string}}}
state:
  read: {type: array, items: {type: string}, default: [], reducer: append}
  longest: {type: string, default: "", reducer: {python: "tests.building.work:longer"}}
signals: {page: {key: "${{ execution.id }}", data: {type: object}}}
steps:
  - {id: begin, next: {all: [each, first]}}
  - id: each
    map: {over: "${{ inputs.urls }}", as: url}
    output: ${{ url }}
    set: {read: "${{ url }}", longest: "${{ url }}"}
    emit: [{signal: page, data: {url: "${{ url }}"}}, {signal: page, data: {}}]
    next: end
  - {id: first, wait: {signal: page}, timeout: 1h, next: end}
outputs:
  read: {value: "${{ size(state.read) }}", type: integer}
  longest: ${{ state.longest }}
""",
    )
    result = run(flow, {"urls": ["a", "ccc", "bb"]})
    assert result.outputs == {"read": 3, "longest": "ccc"}


def test_everything_that_a_file_can_say_is_an_argument() -> None:
    flow = Flow(
        "all", version="3", limits={"steps": 50}, defaults={"retry": 2}, on_error="compensate"
    )
    flow.input("when", {"type": "string"}, default="2026-11-25T09:00:00Z", description="Then")
    token = flow.secret("TOKEN", env="TOKEN")
    flow.tool(
        "rate",
        args={"type": "object", "properties": {"to": {"type": "string"}}},
        http={"url": f"http://localhost/{cel.args.to}", "headers": {"Token": token}},
    )
    flow.tool(work.say, with_={"value": "Hi"})
    flow.step(
        "ask",
        call="rate",
        with_={"to": "USD"},
        retry=3,
        timeout="5s",
        deadline=timedelta(minutes=1),
    )
    flow.step("get", http="http://localhost/", lock="net", when=cel.steps.ask.output.status == 200)
    flow.step(
        "count",
        run={"command": ["wc", "-w"], "stdin": "a b"},
        effect="pure",
        in_="host",
        on_crash="fail",
    )
    flow.step(
        "again", output=1, loop={"until": cel.output > 0, "max": 2, "every": "1s"}, title="More"
    )
    flow.step("until", wait={"until": datetime(2026, 11, 25, 9, tzinfo=UTC)})
    stop = flow.step("stop", cancel={"steps": ["until"], "as": "succeeded"})
    flow.step("fail", fail={"type": "Stop", "data": (1, 2)})

    same(
        flow,
        """
version: "3"
limits: {steps: 50}
defaults: {retry: 2}
on_error: compensate
inputs: {when: {type: string, default: "2026-11-25T09:00:00Z", description: Then}}
secrets: {TOKEN: {env: TOKEN}}
tools:
  rate:
    args: {type: object, properties: {to: {type: string}}}
    http: {url: "http://localhost/${{ args.to }}", headers: {Token: "${{ secrets.TOKEN }}"}}
  say: {python: "tests.building.work:say", with: {value: Hi}}
steps:
  - {id: ask, call: rate, with: {to: USD}, retry: 3, timeout: 5s, deadline: 1m}
  - {id: get, http: "http://localhost/", lock: net, when: "${{ steps.ask.output.status == 200 }}"}
  - {id: count, run: {command: [wc, -w], stdin: a b}, effect: pure, in: host, on_crash: fail}
  - {id: again, output: 1, loop: {until: "${{ output > 0 }}", max: 2, every: 1s}, title: More}
  - {id: until, wait: {until: "2026-11-25T09:00:00Z"}}
  - {id: stop, cancel: {steps: [until], as: succeeded}}
  - {id: fail, fail: {type: Stop, data: [1, 2]}}
""",
    )
    assert repr(stop) == "<step stop>"


def test_every_word_of_a_step_is_an_argument() -> None:
    kinds = {"python", "http", "web_search", "run", "agent", "action"}
    words = {word.rstrip("_") for word in Words.__annotations__} - kinds
    of_the_language = {*Step.fields_by_key(), "background", "environments"}

    assert words == of_the_language - {"id", "finally"}


def test_types_become_schemas() -> None:
    flow = Flow("typed", inputs=work.Order, state=work.Ticket)
    flow.step("begin", set={"title": cel.inputs.customer})

    compiled = flow.compile().flow
    assert compiled["inputs"]["customer"] == {"type": "string"}
    assert compiled["inputs"]["express"] == {"type": "boolean", "default": False}
    assert compiled["inputs"]["kind"]["enum"] == ["private", "company"]
    line = compiled["inputs"]["lines"]["items"]
    assert line["properties"]["count"] == {"type": "integer", "default": 1}
    assert compiled["state"]["labels"]["default"] == []
    with pytest.raises(Exception, match=r"count"), Engine(None) as engine:
        engine.run(flow, {"customer": "a", "lines": [{"article": "x", "count": "y"}]})


def test_shared_definitions_stand_where_they_are_looked_for() -> None:
    flow = Flow("typed", inputs={"orders": list[work.Order]})
    flow.step("a")
    order = {"customer": "a", "lines": [{"article": "x", "count": 2}]}

    assert run(flow, {"orders": [order]}).status == "succeeded"
    with pytest.raises(Exception, match="count"):
        run(flow, {"orders": [{"customer": "a", "lines": [{"article": "x", "count": "y"}]}]})
    with pytest.raises(UsageError, match="has no JSON Schema"):
        flow.input("y", type(lambda: 1))


def test_a_flow_that_begins_elsewhere_and_at_several_steps() -> None:
    flow = Flow("begins")
    last = flow.step("last", output="last")
    one = flow.step("one", output=1)
    flow.to(one).to(last)
    assert [step["id"] for step in flow.compile().flow["steps"]] == ["begin", "last", "one"]
    assert [s["address"] for s in shown(flow)] == ["begin", "one", "last"]

    both = Flow("both")
    one, two = both.step("one", output=1), both.step("two", output=2)
    both.to(one, two).to(both.step("sum", join="all", output=one.output + two.output))
    both.output("sum", cel.steps.sum.output)
    assert run(both).outputs == {"sum": 3}


def shown(flow: Flow) -> list[Any]:
    with Engine(None) as engine:
        return list(engine.executions.show(engine.run(flow).execution)["steps"])


def test_a_file_is_read_and_extended(tmp_path: Path) -> None:
    file = tmp_path / "hello.yaml"
    file.write_text("flowengine: 1\nid: hello\nsteps:\n  - {id: greet, output: Hello}\n")

    flow = Flow.from_yaml(file)
    more = flow.step("more", output=f"{cel.steps.greet.output}, world")
    flow.output("text", more.output)

    assert run(flow).outputs == {"text": "Hello, world"}
    assert load(flow).hash == flow.compile().hash
    assert check(flow) == []


def test_a_step_is_still_its_function() -> None:
    flow = Flow("calls")
    longer = flow.step(work.longer)

    assert longer("a", "bb") == "bb"
    assert longer.__wrapped__ is work.longer
    with pytest.raises(TypeError, match="no Python function"):
        flow.step("other")()


def test_what_means_nothing_is_refused() -> None:
    flow = Flow("wrong")
    a, b = flow.step("a"), flow.step("b")
    a.to(b)
    with pytest.raises(
        UsageError, match=r"'first' sets the next steps of 'a', but .*test_flow.py:\d+ already does"
    ):
        a.first((cel.inputs.x, b))
    with pytest.raises(UsageError, match="the chain has ended"):
        b.end().to(a)
    with pytest.raises(UsageError, match="step of another flow"):
        Flow("other").to(a)
    with pytest.raises(UsageError, match="is already a step"):
        flow.step(a)
    with pytest.raises(UsageError, match="is not a target"):
        a.to(3)  # type: ignore[arg-type]
    flow.step("c", output=a)
    with pytest.raises(UsageError, match=r"data is expected\nwrite a.output"):
        flow.compile()
    other = Flow("set")
    other.step("c", output={1, 2})
    with pytest.raises(UsageError, match="cannot be part of a flow"):
        other.compile()


def test_flows_inside_a_flow() -> None:
    flow = Flow("outer", inputs={"names": list[str]})
    flow.tool(work.say, effect="pure")
    child = flow.subflow("child", inputs={"name": str}, state={"kept": str})
    child.step("keep", set={"kept": cel.inputs.name})
    say = child.step("tell", call=work.say, with_={"value": cel.state.kept})
    child.output("told", say.output)
    each = flow.step(
        "each", flow=child, map={"over": cel.inputs.names, "as": "name"}, with_={"name": cel.name}
    )
    flow.output("all", each.output)

    same(
        flow,
        """
inputs: {names: {type: array, items: {type: string}}}
tools: {say: {python: "tests.building.work:say", effect: pure}}
flows:
  child:
    inputs: {name: {type: string}}
    state: {kept: {type: string}}
    steps:
      - {id: keep, set: {kept: "${{ inputs.name }}"}}
      - {id: tell, call: say, with: {value: "${{ state.kept }}"}}
    outputs: {told: "${{ steps.tell.output }}"}
steps:
  - id: each
    map: {over: "${{ inputs.names }}", as: name}
    flow: child
    with: {name: "${{ name }}"}
outputs: {all: "${{ steps.each.output }}"}
""",
    )
    assert run(flow, {"names": ["a", "b"]}).outputs == {"all": [{"told": "a"}, {"told": "b"}]}
    with pytest.raises(UsageError, match=r"<flow child> is a part of <flow outer>"):
        child.compile()
    flow.step("other", flow=Flow("stranger"))
    with pytest.raises(UsageError, match=r"<flow stranger> is not part of <flow outer>"):
        flow.compile()


def test_branches_that_signals_and_writes_begin() -> None:
    flow = Flow("news", state={"last": str})
    page = flow.signal("page", str)
    flow.step("begin", output=1).emit(page, "a").emit(page, "b").end()
    seen = flow.state("seen", list[str], default=[], reducer="append")
    store = flow.step("store", set={"seen": cel.signal.data, "last": "x"})
    flow.when(page, match=cel.signal.data != "b").to(store)
    note = flow.step("note", set={"seen": cel.state.last})
    flow.when(state="last").to(note).end()
    flow.output("seen", seen)

    same(
        flow,
        """
state:
  last: {type: string}
  seen: {type: array, items: {type: string}, default: [], reducer: append}
signals: {page: {data: {type: string}}}
steps:
  - {id: begin, output: 1, emit: [{signal: page, data: a}, {signal: page, data: b}], next: end}
  - id: store
    trigger: {signal: page, match: "${{ signal.data != 'b' }}"}
    set: {seen: "${{ signal.data }}", last: x}
    next: end
  - {id: note, trigger: {state: last}, set: {seen: "${{ state.last }}"}, next: end}
outputs: {seen: "${{ state.seen }}"}
""",
    )
    assert run(flow).outputs == {"seen": ["a", "x"]}
    with pytest.raises(UsageError, match="'when' starts one step"):
        flow.when(page).to("end")


def test_a_step_that_two_signals_begin() -> None:
    flow = Flow("news")
    page, note = flow.signal("page", str), flow.signal("note", str)
    flow.step("begin", output=1).emit(page, "a").emit(note, "b").end()
    seen = flow.state("seen", list[str], default=[], reducer="append")
    store = flow.step("store", set={"seen": cel.signal.name + cel.signal.data})
    flow.when(page).to(store)
    flow.when("note").to(store).end()
    flow.output("seen", seen)
    same(
        flow,
        """
state: {seen: {type: array, items: {type: string}, default: [], reducer: append}}
signals: {page: {data: {type: string}}, note: {data: {type: string}}}
steps:
  - {id: begin, output: 1, emit: [{signal: page, data: a}, {signal: note, data: b}], next: end}
  - id: store
    trigger: {signal: [page, note]}
    set: {seen: "${{ signal.name + signal.data }}"}
    next: end
outputs: {seen: "${{ state.seen }}"}
""",
    )
    assert run(flow).outputs == {"seen": ["pagea", "noteb"]}
    with pytest.raises(UsageError, match=r"'store' has a trigger already, at .*test_flow.py:\d+"):
        flow.when(page, match=cel.signal.data != "b").to(store)
