"""What is recorded keeps its meaning: journals give the same states, and all views the same text.

If a view was changed on purpose, `UPDATE_GOLDEN=1 pytest tests/proof --endurance` records the views
anew. Read the differences first: run it without `UPDATE_GOLDEN`. Journals are recorded only for a
block without an archive of journals. To record them anew, delete `BLOCK.journals.tar.xz`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.flow.examples import EXAMPLES, FILES
from tests.proof import frozen
from tests.proof.frozen import STATES, differences, digests, path_of, read, views, write
from tests.proof.recording import FLOWS, PLACE, SOURCES, STORE, play_file, record

BLOCKS = [*SOURCES]
UPDATE = bool(os.environ.get("UPDATE_GOLDEN"))
HASH = re.compile(r"\b(?:[0-9a-f]{9}|[0-9a-f]{16}|[0-9a-f]{26}|[0-9a-f]{32}|[0-9a-f]{64})\b")
"""Ids of calls and of detached executions, marks of untrusted text, and hashes, which depend on
chance or on the folder."""


@pytest.fixture
def block(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A block whose journals are in the current folder."""
    name: str = request.param
    if UPDATE and not path_of(name, "journals").exists():
        freeze(name)
    frozen.unpack(name, tmp_path)
    return name


def freeze(block: str) -> None:
    """Record the journals of a block."""
    PLACE.mkdir()  # only one process records: the path becomes part of the flows
    try:
        record(block, PLACE)
        files = {
            path.relative_to(PLACE).as_posix(): path.read_bytes()
            for path in PLACE.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        write(path_of(block, "journals"), files)
    finally:
        shutil.rmtree(PLACE)


def recorded(block: str) -> tuple[dict[str, str], Any]:
    """Return the views of a block by name, and the digests of its states by execution."""
    files = {name: data.decode() for name, data in read(path_of(block, "views")).items()}
    states = json.loads(files.pop(STATES))
    return files, states


@pytest.mark.endurance
@pytest.mark.parametrize("block", BLOCKS, indirect=True)
def test_views_of_recorded_executions_keep_their_text(block: str, tmp_path: Path) -> None:
    now = views(tmp_path)
    if UPDATE:
        states = json.dumps(digests(tmp_path), indent=1)
        texts = {**now, STATES: states + "\n"}
        write(path_of(block, "views"), {name: text.encode() for name, text in texts.items()})

    before, _ = recorded(block)
    differing = differences(before, now)
    assert not differing, f"{differing}\n\nto accept all of them: see {Path(__file__).name}"


@pytest.mark.endurance
@pytest.mark.parametrize("block", BLOCKS, indirect=True)
def test_recorded_journals_replay_to_the_same_bytes(block: str, tmp_path: Path) -> None:
    _, states = recorded(block)
    assert digests(tmp_path) == states


@pytest.mark.endurance
@pytest.mark.parametrize("block", BLOCKS, indirect=True)
def test_recorded_cases_give_the_recorded_journals_again(block: str, tmp_path: Path) -> None:
    """Later retries and upgrades of an execution are not part of its case."""
    before, _ = recorded(block)
    shutil.rmtree(tmp_path / STORE)
    (tmp_path / STORE).mkdir()
    ids = [id for path in sorted(tmp_path.rglob("*.test.yaml")) for id in play_file(tmp_path, path)]
    with frozen.looking(tmp_path):
        again = {id: events(frozen.printed("events", id, "--json"), tmp_path) for id in ids}

    old = {id: events(before[f"{id}/events.json"], tmp_path)[: len(again[id])] for id in ids}
    texts = [{id: "\n".join(lines) for id, lines in found.items()} for found in (old, again)]
    assert not differences(*texts), differences(*texts)
    assert len(ids) >= 40


def events(text: str, folder: Path) -> list[str]:
    """Return the lines of a journal without ids and without the place of the flow."""
    text = text.replace(str(folder), "FOLDER").replace(str(PLACE), "FOLDER")
    return HASH.sub("HASH", text).splitlines()


def test_every_example_and_pattern_and_500_random_flows_are_recorded() -> None:
    files = {block: read(path_of(block, "journals")) for block in ("examples", "patterns")}
    ids = {name.partition("/")[0] for block in files for name in recorded(block)[0]}
    missing = [
        path.relative_to(EXAMPLES).as_posix() for path in FILES if f"{path.stem}-1" not in ids
    ]

    assert not missing, "delete examples.journals.tar.xz, then: UPDATE_GOLDEN=1 pytest tests/proof"
    assert FLOWS * (len(BLOCKS) - 2) == 500


def test_a_changed_journal_and_a_changed_view_are_found(tmp_path: Path) -> None:
    frozen.unpack("patterns", tmp_path)
    before, states = recorded("patterns")
    shown = {"01-sequence-1/show.txt": before["01-sequence-1/show.txt"]}
    changed = {name: f"{text}one more line\n" for name, text in shown.items()}

    assert not differences(shown, shown)
    told = differences(shown, changed)
    assert told.startswith("1 of 1 views differ: 1 x show.txt\n\n--- recorded: 01-sequence-1/show")
    assert told.endswith("\n+one more line")
    with closing(sqlite3.connect(tmp_path / STORE / "flowengine.db")) as database, database:
        last = "SELECT max(id) FROM events GROUP BY id >> 32 ORDER BY id LIMIT 1"
        database.execute(f"DELETE FROM events WHERE id = ({last})")
    found = digests(tmp_path)
    assert [id for id in states if found[id] != states[id]] == ["01-sequence-1"]
