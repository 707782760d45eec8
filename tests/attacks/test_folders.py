# Shows E86
"""All temporary directories are removed, with any content and after any process was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flowengine.sdk.processes import PREFIX, scratch_folder, sweep_scratch
from flowengine.util.files import remove_tree
from tests.deep_folders import make_deep

HOLD = """
import sys
from flowengine.sdk.processes import make_scratch
print(make_scratch(), flush=True)
sys.stdin.read()
"""


pytestmark = pytest.mark.usefixtures("temporary")


def holder() -> tuple[subprocess.Popen[str], Path]:
    """Start a process that has a temporary folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_what_a_killed_process_had_is_removed_by_the_next(temporary: Path) -> None:
    process, folder = holder()
    (folder / "file").write_text("x")
    assert sweep_scratch() == []  # its process lives

    process.send_signal(signal.SIGKILL)
    process.communicate()

    assert sweep_scratch() == [folder]
    assert not list(temporary.iterdir())


def test_a_process_that_is_stopped_keeps_its_folder() -> None:
    process, folder = holder()
    process.send_signal(signal.SIGSTOP)
    try:
        assert sweep_scratch() == []
        assert folder.is_dir()
    finally:
        process.send_signal(signal.SIGCONT)
        process.communicate("")


def test_what_only_has_such_a_name_is_left_alone(temporary: Path, tmp_path: Path) -> None:
    (temporary / f"{PREFIX}file").write_text("x")
    (temporary / f"{PREFIX}link").symlink_to(tmp_path)
    (temporary / "flow-of-another-program").mkdir()

    with scratch_folder() as folder:
        assert folder.is_dir()

    assert sweep_scratch() == []
    assert len(list(temporary.iterdir())) == 3


def test_nothing_that_was_done_in_a_folder_keeps_it(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    os.link(outside / "kept", folder / "hard")
    os.mkfifo(folder / "fifo")
    (folder / "new\nline \udcff").mkdir()
    locked = folder / "locked"
    (locked / "inner").mkdir(parents=True)
    (locked / "inner" / "file").write_text("x")
    for path in (locked / "inner", locked, folder):
        path.chmod(0)

    remove_tree(folder)

    assert not folder.exists()
    assert (outside / "kept").read_text() == "x"
    assert os.listdir(outside) == ["kept"]
    remove_tree(folder)  # already removed
    remove_tree(outside / "kept")  # not a folder
    assert (outside / "kept").exists()


def test_no_folder_is_too_deep(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    os.close(make_deep(folder))

    remove_tree(folder)

    assert not folder.exists()
