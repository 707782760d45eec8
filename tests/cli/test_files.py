"""`flowengine files`: kept files are listed, and saved without overwriting anything unasked."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine

MAKES = """
flowengine: 1
id: makes
steps:
  - id: make
    map: {over: [one, two]}
    run:
      script: |
        mkdir -p out
        printf "$ITEM" > out/report.txt
        printf same > out/other.bin
      env: {ITEM: "${{ item }}"}
      files: {report: out/report.txt, other: out/other.bin}
    effect: pure
  - id: forged
    output: {name: ../../evil.txt, size: 1, sha256: HASH}
outputs:
  reports: ${{ steps.make.output }}
"""
FORGED = hashlib.sha256(b"?").hexdigest()
ONE, TWO = (hashlib.sha256(text).hexdigest() for text in (b"one", b"two"))


@pytest.fixture
def made(flowengine: CommandLine) -> CommandLine:
    (flowengine.folder / "makes.yaml").write_text(MAKES.replace("HASH", FORGED))
    flowengine("run", "makes.yaml", "--id", "m1")
    return flowengine


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_files_are_listed_with_their_steps(made: CommandLine) -> None:
    listed = made("files", "m1")
    rows = [line.split() for line in listed.out.splitlines()]
    assert rows == [
        ["NAME", "BYTES", "SHA-256", "FROM"],
        ["report.txt", "3", ONE[:8], "make[0]"],
        ["other.bin", "4", hashlib.sha256(b"same").hexdigest()[:8], "make[0]"],
        ["report.txt", "3", TWO[:8], "make[1]"],
        ["evil.txt", "1", FORGED[:8], "forged"],
    ]
    assert "flowengine files m1 --save" in listed.err
    assert made("--json", "files").json()[0]["sha256"] == ONE


def test_all_files_are_saved_and_none_is_overwritten(made: CommandLine) -> None:
    folder = made.folder / "there"
    saved = made("files", "m1", "--save", "there")
    assert "evil.txt was not saved" in saved.err
    assert names(folder) == {f"report-{ONE[:8]}.txt", f"report-{TWO[:8]}.txt", "other.bin"}
    assert (folder / f"report-{TWO[:8]}.txt").read_bytes() == b"two"
    assert not (made.folder.parent / "evil.txt").exists()

    (folder / "other.bin").write_bytes(b"mine")
    refused = made("files", "m1", "other.bin", "--save", "there", code=2)
    assert "files exist in there: other.bin" in refused.err
    assert "--force" in refused.err
    assert (folder / "other.bin").read_bytes() == b"mine"
    made("files", "m1", "other.bin", "--save", "there", "--force")
    assert (folder / "other.bin").read_bytes() == b"same"
    assert len(names(folder)) == 3


def test_a_link_in_the_place_of_a_file_is_not_followed(made: CommandLine) -> None:
    outside = made.folder / "outside.txt"
    outside.write_text("mine")
    (made.folder / "there").mkdir()
    link = made.folder / "there" / "other.bin"
    link.symlink_to(outside)
    made("files", "m1", "other.bin", "--save", "there", code=2)
    made("files", "m1", "other.bin", "--save", "there", "--force")
    assert (outside.read_text(), link.is_symlink(), link.read_text()) == ("mine", False, "same")
