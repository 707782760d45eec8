"""What lists show of executions and search: titles, key inputs, failures. See the conformance."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.errors import StoreError, UsageError
from flowengine.journal.sqlite import queries, search
from flowengine.journal.sqlite.store import SqliteStore
from tests.journal.database import connection_of
from tests.replacing import Limits

STRING = {"type": "string"}
TITLES: list[tuple[str | None, dict[str, Any], dict[str, Any], str | None, dict[str, Any]]] = [
    (None, {}, {}, None, {}),
    ("Order", {}, {}, "Order", {}),
    ("Order", {"n": STRING}, {"n": "7"}, "Order", {"n": "7"}),
    ("Order", {"n": {"default": 7}, "m": {"default": 8}}, {"m": 9}, "Order", {"m": 9}),
    (None, {"n": {}, "x": {}}, {"n": 1.5, "x": None}, None, {"n": 1.5}),
    (None, {"on": {}}, {"on": True}, None, {"on": True}),
    (None, {"a": {}, "b": {}}, {"a": "", "b": [1]}, None, {}),
    (None, {name: {} for name in "abcd"}, dict.fromkeys("abcd", 1), None, {"a": 1, "b": 1, "c": 1}),
    (None, {"a": {}}, {"a": "x\n\u202e y " + "z" * 99}, None, {"a": "x y " + "z" * 55 + "…"}),
    ("No. ${{ inputs.n }}", {"n": {"type": "integer"}}, {"n": 7}, "No. 7", {}),
    ("${{ inputs.n }}", {"n": STRING}, {"n": "a\nb" + "c" * 300}, "a b" + "c" * 196 + "…", {}),
    ("${{ execution.labels.team }}", {"n": {}}, {"n": 7}, "…", {"n": 7}),
    ("For ${{ inputs.n }}", {"n": STRING}, {"n": ""}, "For", {}),
    ("${{ inputs.n }}", {"n": STRING}, {"n": " "}, "…", {}),
    ("$${{ not }}", {"n": STRING}, {"n": "x"}, "${{ not }}", {"n": "x"}),
    ("By ${{ inputs.pw }}", {"pw": {"writeOnly": True}}, {"pw": "x"}, "By ***", {}),
    (None, {"pin": {"type": "string", "format": "password"}}, {"pin": "x"}, None, {}),
    (None, {"api_key": {}, "user_password": {}}, {"api_key": "x", "user_password": "y"}, None, {}),
    ("Of ${{ inputs.n }}", {"n": STRING}, {"n": "is hidden-value ok"}, "Of is *** ok", {}),
    (None, {"n": STRING}, {"n": "is hidden-value ok"}, None, {"n": "is *** ok"}),
]  # fmt: skip
"""Title in the file, schemas and values of inputs → title and key inputs in lists."""


def flow(title: str | None, inputs: dict[str, Any]) -> dict[str, Any]:
    secrets = {"key": {"env": "HIDDEN_VALUE"}}
    step = {"id": "a", "http": {"url": "https://x", "headers": {"a": "${{ secrets.key }}"}}}
    data = {"flowengine": 1, "id": "it", "inputs": inputs, "secrets": secrets}
    named = {} if title is None else {"title": title}
    return {**data, **named, "steps": [{**step, "when": "${{ false }}"}]}


def test_the_title_is_evaluated_once_and_key_inputs_are_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIDDEN_VALUE", "hidden-value")
    with Engine(tmp_path / "store", durability="none") as engine:
        for title, schemas, inputs, shown, key_inputs in TITLES:
            file = tmp_path / "flow.yaml"
            file.write_text(json.dumps(flow(title, schemas)))
            id = engine.start(file, inputs)
            info = engine.executions.summary(id)
            assert (info.get("title"), info.get("key_inputs", {})) == (shown, key_inputs), title
        assert engine.executions.counts()["running"] == len(TITLES)
        assert engine.executions.list(search=" \n").items == engine.executions.list().items
        with pytest.raises(UsageError, match="201 characters"):
            engine.executions.list(search="x" * 201)


def test_a_search_finds_what_was_not_indexed_yet_also_after_deletions(
    tmp_path: Path, limits: Limits
) -> None:
    """Texts are added some at a time: none of those between is left out, nor kept for ever."""
    limits(search, _EVERY=4, _MOST=3)
    file = tmp_path / "flow.yaml"
    file.write_text("{flowengine: 1, id: it, inputs: {n: {}}, steps: [{id: a, fail: bad luck}]}")
    with Engine(tmp_path / "store", durability="none") as engine:
        ids = [engine.run(file, {"n": f"n{n}"}).execution for n in range(11)]
        store = engine.store
        assert isinstance(store, SqliteStore)
        with closing(sqlite3.connect(tmp_path / "store" / "flowengine.db")) as damage, damage:
            damage.execute("DROP TABLE texts")
            damage.execute("INSERT OR IGNORE INTO unindexed VALUES (11)")
        ids += [engine.run(file, {"n": f"n{n}"}).execution for n in range(11, 14)]

        def found(text: str) -> set[str]:
            return {item["execution"] for item in engine.executions.list(search=text).items}

        assert found("bad") == {*ids}
        for n in (0, 5, 13):
            assert found(f"n{n}") >= {ids[n]}
        engine.store.prune(0, (), [ids[13], ids[2]])
        assert found("luck") == {*ids} - {ids[13], ids[2]}
        rows = connection_of(store).execute("SELECT count(*) FROM texts").fetchone()
        assert rows == (12,)


def test_without_fts5_everything_works_except_for_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    limits(search, _EVERY=1)
    monkeypatch.setattr(queries, "MAKE_TEXTS", queries.MAKE_TEXTS.replace("fts5", "fts_none"))
    file = tmp_path / "flow.yaml"
    file.write_text("{flowengine: 1, id: it, steps: [{id: a, output: 1}]}")
    with Engine(tmp_path / "store", durability="none") as engine:
        id = engine.run(file).execution
        with pytest.raises(StoreError, match="was built without FTS5") as caught:
            engine.executions.list(search="it")
        assert caught.value.hint is not None
        assert "filter by flow" in caught.value.hint
        assert engine.executions.list(flow="it").items[0]["execution"] == id
        assert engine.store.prune(0, (), [id]).executions == 1
