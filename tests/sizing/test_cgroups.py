"""Where the groups of a process lie: the tables of the kernel, line by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from sizing.cgroups import Group, own_groups, read_text

V2 = "35 31 0:26 {root} {point} rw,nosuid shared:4 - cgroup2 none rw\n"
V1 = "3{n} 31 0:2{n} / /groups/{name} ro,nosuid master:11 - cgroup none rw,{controllers}\n"


def tree(root: Path, cgroup: str, mountinfo: str, *directories: str, pid: str = "self") -> Path:
    """Write the tables of a process, and make the directories of groups."""
    process = root / "proc" / pid
    process.mkdir(parents=True)
    (process / "cgroup").write_text(cgroup)
    (process / "mountinfo").write_text(mountinfo)
    for name in directories:
        (root / name).mkdir(parents=True)
    return root


def test_each_controller_of_version_1_has_a_group_of_its_own(tmp_path: Path) -> None:
    """Of several hierarchies the one that names the controller, also among others."""
    root = tree(
        tmp_path,
        "6:cpu,cpuacct:/c\n4:memory:/m\n3:cpuset:/s\n",
        V1.format(n=2, name="cpu", controllers="cpu,cpuacct")
        + V1.format(n=3, name="memory", controllers="memory"),
        "groups/cpu/c",
        "groups/cpu/m",
        "groups/memory/m",
    )
    memory = root / "groups/memory"
    assert own_groups("memory", root) == [Group(1, memory / "m", memory, is_own=True)]
    cpu = root / "groups/cpu"
    assert own_groups("cpuacct", root) == [Group(1, cpu / "c", cpu, is_own=True)]


def test_a_path_may_contain_what_separates(tmp_path: Path) -> None:
    """A colon in the name of a group, and " - " in the name of what is mounted."""
    mount = V2.format(root="/", point="/groups").replace("none", "a - b")
    root = tree(tmp_path, "0::/a:b\n", mount, "groups/a:b")
    assert [group.directory for group in own_groups("memory", root)] == [root / "groups/a:b"]


@pytest.mark.parametrize(
    "garbage", ["no colon\n", "0::relative\n", "7::/other\n", "0:memory:/other\n", "::/other\n"]
)
def test_lines_that_are_odd_are_passed_over(tmp_path: Path, garbage: str) -> None:
    """Before or after the line that says it, they say nothing."""
    for number, text in enumerate((garbage + "0::/app\n", "0::/app\n" + garbage)):
        mount = V2.format(root="/", point="/groups")
        root = tree(tmp_path / str(number), text, mount, "groups/app", "groups/other")
        assert [group.directory.name for group in own_groups("cpu", root)] == ["app"]


def test_bytes_that_are_no_text_leave_the_rest_of_a_file(tmp_path: Path) -> None:
    """A group whose name is no UTF-8 stands beside ours."""
    root = tree(tmp_path, "", V2.format(root="/", point="/groups"), "groups/app")
    (root / "proc/self/cgroup").write_bytes(b"4:memory:/\xff\n0::/app\n")
    assert own_groups("memory", root)[0].directory == root / "groups/app"


def test_a_mount_whose_directory_is_hidden_is_no_evidence(tmp_path: Path) -> None:
    """A table may name what another mount covers; then the usual place is tried."""
    root = tree(tmp_path, "0::/\n", V2.format(root="/", point="/hidden"), "sys/fs/cgroup")
    assert [group.mount for group in own_groups("memory", root) if group.is_own] == [
        root / "sys/fs/cgroup"
    ]


def test_a_process_without_a_group_is_taken_to_be_at_the_top(tmp_path: Path) -> None:
    """A sandbox lays files over the usual places and names no group: they are its own."""
    root = tree(tmp_path, "", "", "sys/fs/cgroup/memory")
    place = root / "sys/fs/cgroup"
    assert own_groups("memory", root) == [
        Group(2, place, place, is_own=True),
        Group(1, place / "memory", place / "memory", is_own=True),
    ]


def test_a_table_of_many_mounts_is_read_to_its_end(tmp_path: Path) -> None:
    """Two thousand containers before the line that matters are 150 KiB."""
    others = "40 30 8:1 / /var/lib/docker/overlay2/0123456789abcdef/merged rw - ext4 none rw\n"
    table = 2_000 * others + V2.format(root="/", point="/groups")
    root = tree(tmp_path, "0::/app\n", table, "groups/app")
    assert own_groups("memory", root)[0].directory == root / "groups/app"


def test_the_beginning_of_a_large_file_is_enough(tmp_path: Path) -> None:
    """No file of the kernel can make us read without end."""
    (tmp_path / "large").write_text("x" * 100_000)
    assert read_text(tmp_path / "large", 4) == "xxxx"
    assert len(read_text(tmp_path / "large") or "") == 65_536
    assert read_text(tmp_path / "missing") is None


def test_the_process_itself_is_found_by_its_number(tmp_path: Path) -> None:
    """/proc/self is a link to the number that the group lists."""
    own = "groups/one/two"
    root = tree(tmp_path, "0::/\n", V2.format(root="/../..", point="/groups"), own, pid="42")
    (root / own / "cgroup.procs").write_text("41\n42\n")
    (root / "proc/self").symlink_to("42")
    assert own_groups("memory", root) == [Group(2, root / own, root / "groups", is_own=True)]


@pytest.mark.parametrize("group", ["/../..", "/../../x"])
def test_a_group_at_the_top_of_a_mount_above_is_not_searched(tmp_path: Path, group: str) -> None:
    """The steps up cancel: no name is unknown, so whoever lists the process is not the group."""
    root = tree(
        tmp_path, f"0::{group}\n", V2.format(root="/..", point="/groups"), "groups/x", pid="42"
    )
    (root / "groups/x/cgroup.procs").write_text("42\n")
    (root / "groups/cgroup.procs").write_text("42\n")
    assert own_groups("memory", root, 42) == [
        Group(2, root / "groups", root / "groups", is_own=False)
    ]
