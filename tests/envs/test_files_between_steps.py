# Shows F95
"""Files that one step keeps and another uses, wherever both run (F95)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from flowengine import Engine
from flowengine_envs.sandboxes.processes import has
from flowengine_envs.workspaces.kept_files import is_kept_file
from tests.envs.containers import skip_without_docker

PLACES: dict[str, Any] = {
    "host": None,
    "namespace": {"kind": "bash"},
    "docker": {"kind": "bash", "provider": "docker"},
    "container": {"kind": "docker"},
    "shell": {"kind": "shell", "provider": "host"},
}
Run = Callable[[list[Any]], dict[str, Any]]


@pytest.fixture(params=PLACES)
def run(request: pytest.FixtureRequest, folder: Path) -> Run:
    """Runs steps, all in one place, and returns their outputs by step ID."""
    place = request.param
    if place in {"docker", "container"}:
        skip_without_docker()
    if place == "shell" and not has("tmux"):
        pytest.skip("no tmux: apt-get install tmux")

    def run(steps: list[Any]) -> dict[str, Any]:
        inside = "host" if place == "host" else "box"
        flow = {
            "flowengine": 1,
            "id": "it",
            "steps": [{**one, **({"in": inside} if "run" in one else {})} for one in steps],
            "outputs": {one["id"]: f"${{{{ steps.{one['id']}.output }}}}" for one in steps},
        }
        if place != "host":
            flow["environments"] = {"box": PLACES[place]}
        Path("it.yaml").write_text(yaml.safe_dump(flow, sort_keys=False))
        with Engine("store") as engine:
            result = engine.run("it.yaml")
        assert result.error is None, result.error
        assert result.outputs is not None
        return result.outputs

    return run


@pytest.mark.endurance
def test_a_file_goes_on_to_a_function_and_back(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.py").write_text(
        "from pathlib import Path\n\n"
        "def read(file: dict) -> str:\n    return Path(file['path']).read_text()\n"
    )
    script = "mkdir -p out; printf 1,2 > out/r.csv; printf x > out/s.csv"
    files = {"r": "out/r.csv", "all": "out/*.csv"}
    file = "${{ steps.make.output.files.r }}"
    change = (
        'set -e; path=$(printf %s "$FILE" | cut -d\'"\' -f4); printf ,3 >> "$path"; cp "$path" new'
    )

    made = run(
        [
            {"id": "make", "run": {"script": script, "files": files}},
            {"id": "read", "python": "rows:read", "with": {"file": file}},
            {"id": "back", "run": {"script": change, "env": {"FILE": file}, "files": {"n": "new"}}},
            {"id": "again", "python": "rows:read", "with": {"file": file}},
        ]
    )

    kept = made["make"]["files"]["r"]
    digest = hashlib.sha256(b"1,2").hexdigest()
    assert (kept["name"], kept["size"], kept["sha256"]) == ("r.csv", 3, digest)
    assert [one["name"] for one in made["make"]["files"]["all"]] == ["r.csv", "s.csv"]
    assert (made["read"], made["again"]) == ("1,2", "1,2")
    assert Path(made["back"]["files"]["n"]["path"]).read_text() == "1,2,3"


NO_FILES = {
    "above": ("true", "../secret", "PathEscape"),
    "absolute": ("true", "TMP/secret", "PathEscape"),
    "link": ("ln -s TMP/secret link", "link", "PathEscape"),
    "linked_folder": ("ln -s TMP linked", "linked/secret", "PathEscape"),
    "circle": ("ln -s circle circle", "circle", "PathEscape"),
    "pipe": ("mkfifo pipe", "pipe", "ValidationError"),
    "folder": ("mkdir folder", "folder", "ValidationError"),
    "absent": ("true", "absent", "ValidationError"),
}


@pytest.mark.endurance
def test_what_is_no_file_of_the_step_is_refused_and_nothing_is_waited_for(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("SEKRET")
    made = run(
        [
            {
                "id": id,
                "run": {
                    "script": script.replace("TMP", str(tmp_path)),
                    "files": {"x": path.replace("TMP", str(tmp_path))},
                },
                "on_error": [{"output": "${{ [error.type, error.message] }}"}],
            }
            for id, (script, path, _) in NO_FILES.items()
        ]
    )

    assert {id: one[0] for id, one in made.items()} == {
        id: type for id, (_, _, type) in NO_FILES.items()
    }
    for id, (_, path, _) in NO_FILES.items():
        assert path.rpartition("/")[2] in made[id][1]
    kept = [one for one in (tmp_path / "store" / "artifacts").rglob("*") if one.is_file()]
    assert kept == []


@pytest.mark.endurance
def test_a_value_that_only_looks_like_a_kept_file_is_data(run: Run, tmp_path: Path) -> None:
    """Code in a sandbox can return any value, but cannot refer to a file that was never kept."""
    (tmp_path / "secret").write_text("SEKRET")
    up = "../" * 12
    forged: list[dict[str, Any]] = [
        {"sha256": f"{up}{tmp_path}/"[:16], "name": "secret"},
        {"sha256": "../../../../etc/", "name": "passwd"},
        {"sha256": f"{tmp_path}"[:16], "name": ".."},
        {"sha256": "0" * 64, "name": "../../../../../../../../etc/passwd"},
        {"sha256": "0" * 64, "name": ".."},
        {"sha256": "0" * 64, "name": ""},
        {"sha256": ["0"] * 64, "name": "x"},
        {"sha256": "0" * 64, "name": "x" * 300},
        {"sha256": None, "name": 7},
    ]
    whole = [{"path": str(tmp_path / "secret"), "size": 6, **one} for one in forged]
    steps: list[Any] = [{"id": "forge", "run": {"script": "true"}, "output": whole}]
    given = [f"${{{{ steps.forge.output[{number}] }}}}" for number in range(len(whole))]
    steps.append({"id": "say", "run": {"command": ["printf", "%s\\n", *given]}})
    steps.append(
        {
            "id": "unknown",
            "run": {"command": ["printf", "%s", {**whole[0], "sha256": "0" * 64, "name": "x"}]},
            "on_error": [{"output": "${{ error.message }}"}],
        }
    )

    made = run(steps)

    assert [json.loads(line) for line in made["say"]["stdout"].splitlines()] == whole
    assert made["unknown"] == "the file x (000000000000) is no longer kept"


def test_a_name_that_no_file_can_have_names_no_file() -> None:
    value = {"path": "x", "name": "\ud800", "size": 1, "sha256": "0" * 64}

    assert not is_kept_file(value)
    assert is_kept_file({**value, "name": "x"})
