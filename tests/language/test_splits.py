"""Branches and splits: the paths that a token takes (F21, F81-F83)."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from flowengine import FlowFileError
from tests.language.stage import Stage


def test_switch_takes_the_first_way_that_holds(stage: Stage) -> None:
    text = """
inputs: {n: {type: integer}}
steps:
  - id: route
    next:
      first:
        - {when: "${{ inputs.n > 100 }}", to: large}
        - {when: "${{ inputs.n > 10 }}", to: middle}
        - {else: small}
  - {id: large, python: "tools:act", with: {value: L}, next: done}
  - {id: middle, python: "tools:act", with: {value: M}, next: done}
  - {id: small, python: "tools:act", with: {value: S}, next: done}
  - {id: done, output: "${{ join.output }}"}
outputs: {size: "${{ steps.done.output }}"}
"""
    for n, size in ((1000, "L"), (11, "M"), (10, "S")):
        assert stage.play(text, inputs={"n": n}).outputs == {"size": size}


P, Q = {"when": "${{ inputs.p }}"}, {"when": "${{ inputs.q }}"}
SPLITS: list[tuple[dict[str, Any], dict[str, str]]] = [
    # `next`, then the steps that run if p and q hold (pq), only p, only q, or none
    ({"all": ["b"]}, {"pq": "b", "p": "b", "q": "b", "": "b"}),
    ({"all": ["b", "c"]}, {"pq": "bc", "p": "bc", "q": "bc", "": "bc"}),
    ({"all": ["b", {**P, "to": "c"}]}, {"pq": "bc", "p": "bc", "q": "b", "": "b"}),
    (
        {"all": ["b", {**P, "to": "c"}, {"else": "d"}]},
        {"pq": "bc", "p": "bc", "q": "bd", "": "bd"},
    ),
    (
        {"all": [{"else": "d"}, {**P, "to": "c"}, "b", {**Q, "to": "e"}]},
        {"pq": "bce", "p": "bc", "q": "be", "": "bd"},
    ),
    (
        {"all": [{**P, "to": "b"}, {**Q, "to": "c"}]},
        {"pq": "bc", "p": "b", "q": "c", "": "NoBranch"},
    ),
    (
        {"all": [{**P, "to": "b"}, {**Q, "to": "c"}, {"else": "d"}]},
        {"pq": "bc", "p": "b", "q": "c", "": "d"},
    ),
    ({"all": [{**P, "to": "b"}, {"else": "end"}]}, {"pq": "b", "p": "b", "q": "", "": ""}),
    ({"all": [{**P, "to": "end"}, "b"]}, {"pq": "b", "p": "b", "q": "b", "": "b"}),
    ({"first": [{**P, "to": "b"}, {"else": "c"}]}, {"pq": "b", "p": "b", "q": "c", "": "c"}),
    (
        {"first": [{**P, "to": "b"}, {**Q, "to": "c"}, {"else": "d"}]},
        {"pq": "b", "p": "b", "q": "c", "": "d"},
    ),
    (
        {"first": [{**P, "to": "b"}, {**Q, "to": "c"}]},
        {"pq": "b", "p": "b", "q": "c", "": "NoBranch"},
    ),
]


@pytest.mark.parametrize(("ways", "taken"), SPLITS, ids=[json.dumps(w) for w, _ in SPLITS])
def test_split_follows_what_holds(
    stage: Stage, ways: dict[str, Any], taken: dict[str, str]
) -> None:
    named = [name for name in "bcde" if f'"{name}"' in json.dumps(ways)]
    steps = [{"id": name, "python": "tools:act", "next": "end"} for name in named]
    flow = {
        "inputs": {"p": {"type": "boolean"}, "q": {"type": "boolean"}},
        "steps": [{"id": "a", "next": ways}, *steps],
        "outputs": {name: f"${{{{ steps.{name}.status }}}}" for name in named},
    }
    for holding, steps_taken in taken.items():
        inputs = {"p": "p" in holding, "q": "q" in holding}
        outcome = stage.play(flow, inputs=inputs, most=3)
        if steps_taken == "NoBranch":
            assert outcome.error_type == "NoBranch"
        else:
            ran = [name for name, status in outcome.outputs.items() if status == "succeeded"]
            assert "".join(ran) == steps_taken, holding


def test_condition_of_a_way_that_has_no_value_fails_the_step(stage: Stage) -> None:
    text = """
inputs: {n: {type: integer}}
steps:
  - id: a
    next: {first: [{when: "${{ 10 / inputs.n > 1 }}", to: b}, {else: end}]}
    on_error: [{type: ExpressionError, next: c}]
  - {id: b, output: b, next: end}
  - {id: c, output: "${{ steps.a.status }}"}
outputs: {c: "${{ steps.c.output }}"}
"""
    assert stage.play(text, inputs={"n": 0}).outputs == {"c": "failed"}
    assert stage.play(text, inputs={"n": 1}).outputs == {"c": None}


def test_ways_are_chosen_by_what_the_step_gave(stage: Stage) -> None:
    text = """
steps:
  - id: a
    python: "tools:act"
    output: {n: "${{ result + 1 }}"}
    next: {first: [{when: "${{ output.n == 2 && outcome == 'ok' }}", to: b}, {else: c}]}
  - {id: b, output: b, next: end}
  - {id: c, output: c}
outputs: {b: "${{ steps.b.output }}", c: "${{ steps.c.output }}"}
"""
    assert stage.play(text, {"a": 1}).outputs == {"b": "b", "c": None}
    assert stage.play(text, {"a": 2}).outputs == {"b": None, "c": "c"}


# Skipping (F81)

SKIPPED = """
inputs: {{go: {{type: boolean}}}}
signals: {{yes_: {{}}, no_: {{}}}}
steps:
  - id: ask
    when: ${{{{ inputs.go }}}}
    wait: {{first: [{alternatives}]}}
    next: {{outcome: {{{ways}}}}}
  - {{id: left, output: left, next: end}}
  - {{id: right, output: right, next: end}}
  - {{id: past, output: "${{{{ steps.ask.outcome }}}}", next: end}}
outputs: {{past: "${{{{ steps.past.output }}}}", left: "${{{{ steps.left.output }}}}"}}
"""


def test_skipped_step_goes_where_skipped_leads_in_any_order_of_choices(stage: Stage) -> None:
    alternatives = ["{id: a, signal: yes_}", "{id: b, signal: no_}"]
    ways = ["a: left", "b: right", "skipped: past"]
    for two in itertools.permutations(alternatives):
        for three in itertools.permutations(ways):
            text = SKIPPED.format(alternatives=", ".join(two), ways=", ".join(three))
            outcome = stage.play(text, inputs={"go": False}, most=1)
            assert outcome.outputs == {"past": "skipped", "left": None}


def test_skipped_step_goes_where_else_leads(stage: Stage) -> None:
    both = "{id: a, signal: yes_}, {id: b, signal: no_}"
    text = SKIPPED.format(alternatives=both, ways="a: left, b: right, else: past")
    assert stage.play(text, inputs={"go": False}).outputs["past"] == "skipped"


def test_leaving_out_skipped_is_an_error(stage: Stage) -> None:
    both = "{id: a, signal: yes_}, {id: b, signal: no_}"
    with pytest.raises(FlowFileError, match=r"E209.*skipped"):
        stage.compile(SKIPPED.format(alternatives=both, ways="a: left, b: right"))


@pytest.mark.parametrize(
    "ways", ["b", "{all: [b]}", "{first: [{when: '${{ output == null }}', to: b}, {else: end}]}"]
)
def test_skipped_step_is_followed_by_every_other_next_as_if_it_had_run(
    stage: Stage, ways: str
) -> None:
    text = f"""
steps:
  - {{id: a, when: "${{{{ false }}}}", python: "tools:act", set: {{n: 5}}, next: {ways}}}
  - id: b
    output: ["${{{{ steps.a.status }}}}", "${{{{ steps.a.outcome }}}}", "${{{{ steps.a.output }}}}"]
state: {{n: {{type: integer, default: 0}}}}
outputs: {{a: "${{{{ steps.b.output }}}}", n: "${{{{ state.n }}}}"}}
"""
    outcome = stage.play(text, {"a": RuntimeError("a skipped step does nothing")})
    assert outcome.outputs == {"a": ["skipped", "skipped", None], "n": 0}


def test_skipped_map_group_and_approval_do_nothing_at_all(stage: Stage) -> None:
    text = """
steps:
  - {id: m, when: "${{ false }}", map: "${{ 1 / 0 }}", python: "tools:act"}
  - {id: g, when: "${{ false }}", deadline: 1s, group: [{id: inner, fail: no}]}
  - {id: ask, when: "${{ false }}", approval: Sure?, next: {outcome: {approve: end, else: last}}}
  - {id: last, output: "${{ [steps.m.status, steps.g.status, steps.ask.outcome] }}"}
outputs: {all: "${{ steps.last.output }}"}
"""
    assert stage.play(text).outputs == {"all": ["skipped"] * 3}


# Outcomes that raise (F82)

APPROVAL = """
steps:
  - id: ask
    approval:
      title: Sure?
      choices: [approve, {{id: deny, counts_as: reject}}, later]
      expires: 1h
    {modifiers}
  - {{id: yes_, output: yes_, next: end}}
  - {{id: no_, output: "${{{{ steps.ask.output.choice }}}}", next: end}}
  - {{id: late, output: late, next: end}}
  - {{id: handled, output: "${{{{ steps.ask.error.type }}}}", next: end}}
outputs:
  yes_: ${{{{ steps.yes_.output }}}}
  no_: ${{{{ steps.no_.output }}}}
  late: ${{{{ steps.late.output }}}}
  handled: ${{{{ steps.handled.output }}}}
"""
ROUTED = "next: {outcome: {approve: yes_, later: late, deny: no_, expired: late}}"
RAISING = "next: {outcome: {approve: yes_, later: no_}}"
HANDLED = """on_error:
      - {type: Expired, next: late}
      - {type: Rejected, next: handled}
    next: {outcome: {approve: yes_, later: no_}}"""
BY_ELSE = "next: {outcome: {approve: yes_, else: late}}"


def _asked(modifiers: str) -> str:
    """Return the flow without unreachable steps."""
    lines = APPROVAL.format(modifiers=modifiers).splitlines()
    kept = []
    for line in lines:
        name = line.strip().removeprefix("- {id: ").split(",")[0].split(":")[0]
        is_step = name in {"yes_", "no_", "late", "handled"}
        if not is_step or f": {name}" in modifiers:
            kept.append(line)
    return "\n".join(kept)


@pytest.mark.parametrize(
    ("modifiers", "answer", "expected"),
    [
        (ROUTED, "approve", {"yes_": "yes_"}),
        (ROUTED, "deny", {"no_": "deny"}),
        (ROUTED, "later", {"late": "late"}),
        (ROUTED, None, {"late": "late"}),
        (RAISING, "deny", "Rejected"),
        (RAISING, None, "Expired"),
        (RAISING, "later", {"no_": "later"}),
        (HANDLED, "deny", {"handled": "Rejected"}),
        (HANDLED, None, {"late": "late"}),
        (HANDLED, "approve", {"yes_": "yes_"}),
        (BY_ELSE, "deny", {"late": "late"}),
        (BY_ELSE, None, {"late": "late"}),
        (BY_ELSE, "later", {"late": "late"}),
    ],
)
def test_rejection_and_expiry_go_where_they_are_routed_or_raise(
    stage: Stage, modifiers: str, answer: str | None, expected: Any
) -> None:
    result = stage.run(_asked(modifiers))
    if answer is None:
        ended = stage.later(result.execution, 3600)
    else:
        decision = stage.decide("ask", answer)
        assert decision.result is not None
        ended = decision.result
    if isinstance(expected, str):
        assert ended.error is not None
        assert (ended.status, ended.error["type"], ended.error["step"]) == (
            "failed",
            expected,
            "ask",
        )
    else:
        assert ended.outputs is not None
        assert {k: v for k, v in ended.outputs.items() if v is not None} == expected


def test_expiry_that_names_a_choice_is_that_choice(stage: Stage) -> None:
    text = """
steps:
  - id: ask
    approval: {title: Sure?, expires: 1h, on_expire: reject}
    next: {outcome: {approve: end, reject: told}}
  - id: told
    output: ["${{ steps.ask.output.by }}", "${{ steps.ask.output.via }}"]
outputs: {told: "${{ steps.told.output }}"}
"""
    result = stage.run(text)
    assert stage.later(result.execution, 3600).outputs == {"told": ["system", "expiry"]}


def test_raised_rejection_tells_handlers_the_decision(stage: Stage) -> None:
    text = """
steps:
  - id: ask
    approval: Sure?
    on_error: [{type: Rejected, output: "${{ error.data.comment + ' by ' + error.data.by }}"}]
outputs: {why: "${{ steps.ask.output }}", status: "${{ steps.ask.status }}"}
"""
    stage.run(text)
    result = stage.decide("ask", "reject", comment="too much").result
    assert result is not None
    assert result.outputs == {"why": "too much by user:ben", "status": "succeeded"}


WAIT = """
signals: {{paid: {{}}}}
steps:
  - {{id: pay, wait: {{signal: paid}}, timeout: 1h, {modifiers}}}
  - id: late
    output: "${{{{ [steps.pay.status, string(steps.pay.output == null)] }}}}"
    next: end
outputs: {{late: "${{{{ steps.late.output }}}}"}}
"""


def test_wait_that_timed_out_goes_where_it_is_routed_or_raises(stage: Stage) -> None:
    for modifiers, late in (
        ("next: {outcome: {ok: end, timeout: late}}", ["succeeded", "true"]),
        ("next: {outcome: {ok: end, else: late}}", ["succeeded", "true"]),
        ("next: end, on_error: [{type: Timeout, next: late}]", ["failed", "true"]),
    ):
        text = WAIT.format(modifiers=modifiers)
        ended = stage.later(stage.run(text).execution, 3600)
        assert ended.outputs == {"late": late}, modifiers
        stage.run(text)
        result = stage.signal("paid", execution=stage.engine.waits().items[0]["execution"]).result
        assert result is not None
        assert result.outputs == {"late": None}
    text = WAIT.format(modifiers="next: {outcome: {ok: late}}")
    ended = stage.later(stage.run(text).execution, 3600)
    assert ended.error is not None
    assert (ended.status, ended.error["type"]) == ("failed", "Timeout")
