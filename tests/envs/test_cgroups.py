# Shows S34
"""Control groups of both versions, on directory trees laid out like the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine_envs.sandboxes.cgroups import CgroupTree, Group, find, find_group, memory_kills

LIMITS = (1 << 20, 7, 0.5)


def mount(kind: str, root: str, place: Path, options: str) -> str:
    return f"30 25 0:26 {root} {place} rw,relatime shared:4 - {kind} {kind} rw,{options}"


def test_version_1_has_a_tree_for_each_controller(tmp_path: Path) -> None:
    for name in ("memory", "pids", "cpu"):
        (tmp_path / name / "own").mkdir(parents=True)
    lines = [
        mount("cgroup", "/", tmp_path / "memory", "memory"),
        mount("cgroup", "/", tmp_path / "pids", "pids"),
        mount("cgroup", "/", tmp_path / "cpu", "cpu,cpuacct"),
    ]
    groups = "4:memory:/own\n8:pids:/own\n1:cpu,cpuacct:/own\n0::/\n"

    tree = find("\n".join(lines), groups)

    assert tree == CgroupTree(
        1, {name: tmp_path / name / "own" for name in ("memory", "pids", "cpu")}
    )


def test_a_container_that_sees_only_its_part_finds_it(tmp_path: Path) -> None:
    lines = mount("cgroup", "/docker/abc", tmp_path, "memory")

    tree = find(lines, "4:memory:/docker/abc\n")

    assert tree == CgroupTree(1, {"memory": tmp_path})


def test_version_2_takes_the_nearest_group_that_hands_on_memory(tmp_path: Path) -> None:
    own = tmp_path / "user.slice" / "app.slice" / "run.scope"
    own.mkdir(parents=True)
    for folder, handed in ((own, ""), (own.parent, "memory pids"), (tmp_path, "memory cpu pids")):
        (folder / "cgroup.subtree_control").write_text(handed)
        (folder / "cgroup.procs").touch()

    tree = find(
        mount("cgroup2", "/", tmp_path, "nsdelegate"), "0::/user.slice/app.slice/run.scope\n"
    )

    assert tree == CgroupTree(2, {"memory": own.parent, "pids": own.parent})


def test_the_group_of_a_container_is_found_in_both_versions() -> None:
    first = "\n".join(
        [
            mount("cgroup", "/", Path("/c/memory"), "memory"),
            mount("cgroup2", "/", Path("/c/unified"), "nsdelegate"),
        ]
    )
    second = mount("cgroup2", "/", Path("/c"), "nsdelegate")

    assert find_group(first, "4:memory:/docker/abc\n0::/\n", "memory") == Path(
        "/c/memory/docker/abc"
    )
    assert find_group(second, "0::/system.slice/docker-abc.scope\n", "pids") == Path(
        "/c/system.slice/docker-abc.scope"
    )
    assert find_group("", "0::/\n", "pids") is None


@pytest.mark.parametrize(
    ("version", "files"),
    [
        (
            1,
            {
                "memory.limit_in_bytes": "1048576",
                "memory.memsw.limit_in_bytes": "1048576",
                "pids.max": "7",
                "cpu.cfs_period_us": "100000",
                "cpu.cfs_quota_us": "50000",
            },
        ),
        (
            2,
            {
                "memory.max": "1048576",
                "memory.swap.max": "0",
                "pids.max": "7",
                "cpu.max": "50000 100000",
            },
        ),
    ],
)
def test_limits_are_written_as_the_version_has_them(
    tmp_path: Path, version: int, files: dict[str, str]
) -> None:
    folder = tmp_path / "group"
    folder.mkdir()
    for name in files:
        (folder / name).touch()
    group = Group(CgroupTree(version, dict.fromkeys(("memory", "pids", "cpu"), tmp_path)), "group")

    group.make(*LIMITS)

    assert {name: (folder / name).read_text() for name in files} == files
    assert group.entrances == [f"{folder}/cgroup.procs"]


@pytest.mark.parametrize(("version", "name"), [(1, "memory.oom_control"), (2, "memory.events")])
def test_kills_for_want_of_memory_are_counted(tmp_path: Path, version: int, name: str) -> None:
    group = Group(CgroupTree(version, {"memory": tmp_path}), "group")
    assert memory_kills(group.by_controller) == 0

    (tmp_path / "group").mkdir()
    (tmp_path / "group" / name).write_text("oom 9\nunder_oom 0\noom_kill 3\n")

    assert memory_kills(group.by_controller) == 3
