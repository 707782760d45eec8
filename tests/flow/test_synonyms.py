# Shows F11
"""Keywords of other tools: each hint names the equivalent, without further errors."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine import registry
from flowengine.errors import FlowFileError
from flowengine.flow import models
from flowengine.flow.compile import compile_text
from flowengine.flow.models import cases, flow, modifiers, step
from flowengine.flow.models.kinds import kind_names
from flowengine.flow.source.synonyms import _OF, NAMES
from flowengine.sdk.texts.near_words import nearest
from tests.rows import each_row


def known(where: str) -> set[str]:
    """Return the keys of a model or a step kind."""
    for module in (models, modifiers, step, flow, cases):
        found: Any = getattr(module, where, None)
        if found is not None:
            more = kind_names("step") if where in {"Step", "ParallelStep"} else []
            return {*found.fields_by_key(), *more}
    return set(registry.kind_class(where).configuration()["properties"])


@each_row("where", _OF)
def test_what_is_named_exists_and_no_word_is_taken(where: str) -> None:
    keys = known(where)
    words = _OF[where]
    assert {one.key for one in words.values() if one.key is not None} <= keys
    assert not words.keys() & keys


def errors(text: str) -> list[str]:
    with pytest.raises(FlowFileError) as refused:
        compile_text("flowengine: 1\nid: f\n" + text)
    return [f"{one.code} {one.hint}" for one in refused.value.diagnostics]


def test_first_names_of_paths_lead_to_those_that_are_there() -> None:
    for word, meant in {"params": "inputs", "outputs": "steps.x.output"}.items():
        (found,) = errors(f'steps: [{{id: a, output: "${{{{ {word}.x }}}}"}}]')
        assert f"did you mean '{meant}'?" in found
    assert set(NAMES.values()) <= {"inputs", "steps", "execution", "round", "error", "item"}


@each_row(
    ("word", "keys", "meant"),
    [
        ("switch", ["with", "when"], None),
        ("foreach", ["background"], None),
        ("if", ["id", "in"], None),
        ("til", ["until"], "until"),
        ("imput", ["inputs"], "inputs"),
        ("nput", ["input"], "input"),
        ("max-delay", ["delay", "max_delay"], "max_delay"),
        ("tpye", ["type"], "type"),
    ],
)
def test_a_guess_by_spelling_is_not_absurd(word: str, keys: list[str], meant: str | None) -> None:
    assert nearest(word, keys) == meant
