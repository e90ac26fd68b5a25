"""Limits of memory and processors on recorded file system trees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sizing import cgroups
from sizing.errors import HostProbeError
from sizing.limits import cgroup_used_bytes, cpu_limit, memory_limit, oom_kills

MIB = 1 << 20
#: "No limit" in version 1: the largest 64-bit number, rounded down to a page.
V1_NONE = "9223372036854771712\n"
ID = "3f2c9d"

V1_MOUNTS = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 {root} /sys/fs/cgroup/cpu,cpuacct ro,nosuid master:11 - cgroup cgroup rw,cpu,cpuacct
33 31 0:31 {root} /sys/fs/cgroup/cpuset ro,nosuid master:12 - cgroup cgroup rw,cpuset
34 31 0:32 {root} /sys/fs/cgroup/memory ro,nosuid master:15 - cgroup cgroup rw,memory
"""
V2_MOUNT = "35 31 0:26 {root} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup rw,nsdelegate\n"
UNLIMITED = "Max address space         unlimited            unlimited            bytes\n"


def tree(root: Path, files: dict[str, str]) -> Path:
    """Write a tree; without being told otherwise, a machine of 16 GiB and 8 processors."""
    usual = {
        "proc/meminfo": "MemTotal:       16777216 kB\nMemFree:        1000 kB\n",
        "proc/self/limits": UNLIMITED,
        "proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-63\n",
        "sys/devices/system/cpu/online": "0-7\n",
    }
    for name, text in {**usual, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def v1_docker(root: Path, **more: str) -> Path:
    """A Docker container on version 1: the mount shows the container's own group."""
    files = {
        "proc/self/cgroup": f"6:cpu,cpuacct:/docker/{ID}\n4:memory:/docker/{ID}\n"
        f"3:cpuset:/docker/{ID}\n0::/docker/{ID}\n",
        "proc/self/mountinfo": V1_MOUNTS.format(root=f"/docker/{ID}"),
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "268435456\n",
        "sys/fs/cgroup/memory/memory.stat": "cache 9\nrss 1\nhierarchical_memory_limit 268435456\n"
        "total_cache 8000\ntotal_rss 70000\ntotal_shmem 4096\n",
        "sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "150000\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/cpuset/cpuset.cpus": "0-3\n",
        "sys/fs/cgroup/cpuset/cpuset.effective_cpus": "0-3\n",
    }
    return tree(root, {**files, **more})


def v2_container(root: Path, **more: str) -> Path:
    """A container with a cgroup namespace on version 2: everything is its own root."""
    files = {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": V2_MOUNT.format(root="/"),
        "sys/fs/cgroup/memory.max": "536870912\n",
        "sys/fs/cgroup/memory.high": "max\n",
        "sys/fs/cgroup/memory.stat": "anon 100000\nfile 70000000\nkernel 5\nshmem 25000\n",
        "sys/fs/cgroup/memory.events": "low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\n",
        "sys/fs/cgroup/cpu.max": "50000 100000\n",
        "sys/fs/cgroup/cpuset.cpus.effective": "0-7\n",
    }
    return tree(root, {**files, **more})


POD = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod7.slice"


def v2_kubernetes(root: Path) -> Path:
    """A container seen from the host's namespace: the pod's limit is smaller than its own."""
    scope = f"{POD}/cri-containerd-{ID}.scope"
    return tree(
        root,
        {
            "proc/self/cgroup": f"0::/{scope}\n",
            "proc/self/mountinfo": V2_MOUNT.format(root="/"),
            f"sys/fs/cgroup/{scope}/memory.max": "2147483648\n",
            f"sys/fs/cgroup/{scope}/memory.stat": "anon 300\nshmem 50\n",
            f"sys/fs/cgroup/{scope}/memory.events": "oom_kill 0\n",
            f"sys/fs/cgroup/{scope}/cpu.max": "max 100000\n",
            f"sys/fs/cgroup/{POD}/memory.max": "1073741824\n",
            f"sys/fs/cgroup/{POD}/cpu.max": "250000 100000\n",
            "sys/fs/cgroup/kubepods.slice/memory.max": "15032385536\n",
            "sys/fs/cgroup/kubepods.slice/cpu.max": "max 100000\n",
        },
    )


def v2_host(root: Path) -> Path:
    """A login session on a version 2 host: "max" everywhere, no file at the very top."""
    session = "user.slice/user-1000.slice/session-2.scope"
    return tree(
        root,
        {
            "proc/self/cgroup": f"0::/{session}\n",
            "proc/self/mountinfo": V2_MOUNT.format(root="/"),
            f"sys/fs/cgroup/{session}/memory.max": "max\n",
            f"sys/fs/cgroup/{session}/memory.stat": "anon 999\nshmem 9\n",
            f"sys/fs/cgroup/{session}/cpu.max": "max 100000\n",
            "sys/fs/cgroup/user.slice/user-1000.slice/memory.max": "max\n",
            "sys/fs/cgroup/user.slice/memory.max": "max\n",
            "sys/fs/cgroup/memory.stat": "anon 123456\nshmem 9\n",
        },
    )


def test_v1_container_reads_the_group_that_is_mounted(tmp_path: Path) -> None:
    """The host's path in /proc/self/cgroup is stripped of the mount's root: 256 MiB."""
    limit = memory_limit(v1_docker(tmp_path))
    assert limit.limit_bytes == 256 * MIB
    assert limit.source == "container limit (control group, version 1, memory.limit_in_bytes)"
    assert limit.path == tmp_path / "sys/fs/cgroup/memory/memory.limit_in_bytes"


def test_v1_container_counts_anonymous_and_shared_memory_of_all_below(tmp_path: Path) -> None:
    """total_rss + total_shmem = 70,000 + 4,096; the page cache is left out."""
    root = v1_docker(tmp_path)
    assert cgroup_used_bytes(root) == 74_096
    assert oom_kills(root) == 3


def test_v1_limit_above_the_mount_is_found(tmp_path: Path) -> None:
    """A pod's limit that no visible file shows stands in hierarchical_memory_limit."""
    stat = {"sys/fs/cgroup/memory/memory.stat": "hierarchical_memory_limit 134217728\n"}
    limit = memory_limit(v1_docker(tmp_path, **stat))
    assert limit.limit_bytes == 128 * MIB
    assert "hierarchical_memory_limit" in limit.source


@pytest.mark.parametrize(
    "text", ["max\n", V1_NONE, "4611686018427387904\n", "0\n", "-1\n", "", "256M\n", "9" * 5000]
)
def test_what_is_not_a_limit_is_passed_over(tmp_path: Path, text: str) -> None:
    """Words, sentinels, 0, nothing and garbage leave physical memory: 16 GiB."""
    name = "sys/fs/cgroup/memory/memory.limit_in_bytes"
    root = v1_docker(tmp_path, **{name: text, "sys/fs/cgroup/memory/memory.stat": "x y\nz\n"})
    assert memory_limit(root).limit_bytes == 16 * 1024 * MIB
    assert memory_limit(root).source == "physical memory"
    (root / name).unlink()
    assert memory_limit(root).source == "physical memory"


def test_hybrid_host_with_a_v2_line_uses_the_v1_memory_controller(tmp_path: Path) -> None:
    """A "0::" line and a version 2 mount without a memory controller do not hide version 1."""
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/system.slice/worker.service\n"
            "1:name=systemd:/system.slice/worker.service\n0::/system.slice/worker.service\n",
            "proc/self/mountinfo": V1_MOUNTS.format(root="/")
            + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            "sys/fs/cgroup/unified/system.slice/worker.service/cgroup.procs": "1\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": V1_NONE,
            "sys/fs/cgroup/memory/system.slice/memory.limit_in_bytes": "805306368\n",
            "sys/fs/cgroup/memory/system.slice/worker.service/memory.limit_in_bytes": V1_NONE,
            "sys/fs/cgroup/memory/system.slice/worker.service/memory.stat": "total_rss 7\n",
        },
    )
    limit = memory_limit(root)
    assert limit.limit_bytes == 768 * MIB
    assert limit.source == "limit of an outer group (control group, version 1," + (
        " memory.limit_in_bytes)"
    )
    # The service itself has no limit of its own and is not all that is visible.
    assert cgroup_used_bytes(root) is None
    assert oom_kills(root) is None


def test_v2_nested_the_smallest_ancestor_wins(tmp_path: Path) -> None:
    """Container 2 GiB, pod 1 GiB, all pods 14 GiB: 1 GiB; a quota of 2.5 cores of the pod's."""
    root = v2_kubernetes(tmp_path)
    assert memory_limit(root).limit_bytes == 1024 * MIB
    assert memory_limit(root).path == root / "sys/fs/cgroup" / POD / "memory.max"
    assert cpu_limit(root).cores == 2.5
    assert cgroup_used_bytes(root) == 350
    assert oom_kills(root) == 0


def test_v2_container_at_its_own_root(tmp_path: Path) -> None:
    """0::/ and a mount of / are the container's group: 512 MiB, half a core."""
    root = v2_container(tmp_path)
    assert memory_limit(root).limit_bytes == 512 * MIB
    assert cpu_limit(root).cores == 0.5
    assert cpu_limit(root).source == "processor quota (control group, version 2, cpu.max)"
    assert cgroup_used_bytes(root) == 125_000
    assert oom_kills(root) == 1


def test_v2_container_without_a_limit_still_knows_what_it_uses(tmp_path: Path) -> None:
    """An unlimited container is a container: only the host's very top lacks memory.max."""
    root = v2_container(tmp_path, **{"sys/fs/cgroup/memory.max": "max\n"})
    assert memory_limit(root).source == "physical memory"
    assert cgroup_used_bytes(root) == 125_000


def test_memory_high_is_a_limit(tmp_path: Path) -> None:
    """Above memory.high a group is slowed to a stop, so it limits like memory.max."""
    root = v2_container(tmp_path, **{"sys/fs/cgroup/memory.high": "402653184\n"})
    assert memory_limit(root).limit_bytes == 384 * MIB


def test_v2_mounted_at_the_group_without_a_namespace(tmp_path: Path) -> None:
    """The mount's root field is the group's own path: it is stripped, what is below is joined."""
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": f"0::/docker/{ID}/init.scope\n",
            "proc/self/mountinfo": V2_MOUNT.format(root=f"/docker/{ID}"),
            "sys/fs/cgroup/memory.max": "314572800\n",
            "sys/fs/cgroup/init.scope/memory.max": "max\n",
        },
    )
    assert memory_limit(root).limit_bytes == 300 * MIB


def test_a_group_is_no_prefix_by_its_letters(tmp_path: Path) -> None:
    """/docker/3f2c9d is not inside a mount of /docker/3f: the mount itself is what is left."""
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": f"0::/docker/{ID}\n",
            "proc/self/mountinfo": V2_MOUNT.format(root="/docker/3f"),
            "sys/fs/cgroup/memory.max": "104857600\n",
            "sys/fs/cgroup/memory.stat": "anon 5\n",
            "sys/fs/cgroup/2c9d/memory.max": "1048576\n",
        },
    )
    assert memory_limit(root).limit_bytes == 100 * MIB
    assert cgroup_used_bytes(root) is None


@pytest.mark.parametrize(
    ("group", "mount_root", "expected_bytes"),
    [
        # Namespace root two levels down, mount made outside: the steps cancel.
        ("/../../jobs/a", "/../..", 50 * MIB),
        # The process was moved out of its namespace: only the mount is visible.
        ("/../sibling", "/", 200 * MIB),
        # The mount begins above the namespace, and no group below it lists the process.
        ("/", "/../..", 200 * MIB),
    ],
)
def test_steps_above_a_namespace(
    tmp_path: Path, group: str, mount_root: str, expected_bytes: int
) -> None:
    """Paths with /.. are joined where they cancel, and never walked in the file system."""
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": f"0::{group}\n",
            "proc/self/mountinfo": V2_MOUNT.format(root=mount_root),
            "sys/fs/cgroup/memory.max": "209715200\n",
            "sys/fs/cgroup/jobs/memory.max": "max\n",
            "sys/fs/cgroup/jobs/a/memory.max": "52428800\n",
            "sys/fs/sibling/memory.max": "1048576\n",
        },
    )
    assert memory_limit(root).limit_bytes == expected_bytes


@pytest.mark.parametrize("group", ["/", "/app", "/../other/app"])
def test_host_groups_bound_into_a_namespace_are_searched(tmp_path: Path, group: str) -> None:
    """The names between mount and namespace are those of the group that lists the process."""
    below = group.replace("/../other", "").lstrip("/")
    # From two levels up both names are searched; one step up leaves one, then "other".
    own = f"sys/fs/cgroup/docker/{'other' if '..' in group else ID}/{below}"
    root = tree(
        tmp_path,
        {
            "proc/42/cgroup": f"0::{group}\n",
            "proc/42/mountinfo": V2_MOUNT.format(root="/../.."),
            "sys/fs/cgroup/memory.stat": "anon 9\n",
            "sys/fs/cgroup/docker/neighbour/memory.max": "1048576\n",
            "sys/fs/cgroup/docker/neighbour/cgroup.procs": "421\n0\n",
            f"{own}/memory.max": "52428800\n",
            f"{own}/memory.stat": "anon 600\nshmem 6\n",
            f"{own}/cgroup.procs": "1\n42\n",
        },
    )
    assert memory_limit(root, 42).limit_bytes == 50 * MIB
    assert cgroup_used_bytes(root, 42) == 606


def test_files_laid_over_the_usual_place_count(tmp_path: Path) -> None:
    """Without any cgroup mount the usual directories are read: plain files, or a thin sandbox."""
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": f"4:memory:/docker/{ID}\n0::/docker/{ID}\n",
            "proc/self/mountinfo": "40 30 8:1 /fake /sys/fs/cgroup ro - ext4 /dev/sda1 rw\n",
            "sys/fs/cgroup/memory.max": "134217728\n",
            "sys/fs/cgroup/cpu.max": "200000 100000\n",
        },
    )
    assert memory_limit(root).limit_bytes == 128 * MIB
    assert cpu_limit(root).cores == 2.0


def test_mount_point_with_a_space(tmp_path: Path) -> None:
    r"""The kernel writes a space in a path as \040."""
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/a b\n",
            "proc/self/mountinfo": "35 31 0:26 / /my\\040groups rw - cgroup2 cgroup rw\n",
            "my groups/a b/memory.max": "62914560\n",
        },
    )
    assert memory_limit(root).limit_bytes == 60 * MIB


def test_host_without_limits(tmp_path: Path) -> None:
    """Nothing but "max": physical memory, and no figure for a session shared with others."""
    root = v2_host(tmp_path)
    assert memory_limit(root).limit_bytes == 16 * 1024 * MIB
    assert cgroup_used_bytes(root) is None


def test_process_at_the_very_top_is_no_container(tmp_path: Path) -> None:
    """The real root of the groups holds the whole machine: its use says nothing of us."""
    v2 = {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": V2_MOUNT.format(root="/"),
        "sys/fs/cgroup/memory.stat": "anon 123456\nshmem 9\n",
    }
    assert cgroup_used_bytes(tree(tmp_path / "v2", v2)) is None
    v1 = {
        "proc/self/cgroup": "4:memory:/\n",
        "proc/self/mountinfo": V1_MOUNTS.format(root="/"),
        "sys/fs/cgroup/memory/release_agent": "\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": V1_NONE,
        "sys/fs/cgroup/memory/memory.stat": "total_rss 123456\n",
    }
    assert cgroup_used_bytes(tree(tmp_path / "v1", v1)) is None


def test_slice_of_systemd_limits_the_service(tmp_path: Path) -> None:
    """A MemoryMax on the slice is smaller than the one on the service."""
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/workers.slice/worker.service\n",
            "proc/self/mountinfo": V2_MOUNT.format(root="/"),
            "sys/fs/cgroup/workers.slice/memory.max": "3221225472\n",
            "sys/fs/cgroup/workers.slice/worker.service/memory.max": "4294967296\n",
            "sys/fs/cgroup/workers.slice/worker.service/memory.stat": "anon 40\nshmem 2\n",
        },
    )
    assert memory_limit(root).limit_bytes == 3072 * MIB
    assert cgroup_used_bytes(root) == 42


def test_address_space_limit_and_physical_memory(tmp_path: Path) -> None:
    """RLIMIT_AS (the soft one) wins when it is smaller; a container larger than the machine loses.

    The container says 64 GiB, the machine has 16, the process may use 1.
    """
    files = {"sys/fs/cgroup/memory.max": str(64 * 1024 * MIB)}
    root = v2_container(tmp_path, **files)
    assert memory_limit(root).limit_bytes == 16 * 1024 * MIB
    limits = UNLIMITED.replace("unlimited", "1073741824", 1)
    (root / "proc/self/limits").write_text("Limit  Soft  Hard  Units\n" + limits)
    assert memory_limit(root).limit_bytes == 1024 * MIB
    assert "RLIMIT_AS" in memory_limit(root).source


def test_nothing_readable_is_an_error_that_says_where(tmp_path: Path) -> None:
    """An empty tree gives no guess."""
    with pytest.raises(HostProbeError, match=r"memory limit.*proc/meminfo"):
        memory_limit(tmp_path)
    with pytest.raises(HostProbeError, match=r"number of processors.*online"):
        cpu_limit(tmp_path)
    assert cgroup_used_bytes(tmp_path) is None
    assert oom_kills(tmp_path) is None


def test_garbage_in_the_tables_is_passed_over(tmp_path: Path) -> None:
    """Truncated lines, bytes that are no text and directories in the place of files say nothing."""
    root = v2_host(tmp_path)
    (root / "proc/self/cgroup").write_bytes(b"0:\n\xff\xfe\n4:memory\n0::relative\n::\n")
    (root / "proc/self/mountinfo").write_bytes(b"- - -\n1 2 - cgroup2\n\xff - cgroup2 x y\n - \n")
    (root / "sys/fs/cgroup/memory.max").mkdir()
    assert memory_limit(root).source == "physical memory"


def test_v1_quota_and_cpuset(tmp_path: Path) -> None:
    """150 ms in each 100 ms is 1.5 cores; without a quota (-1) the cpuset's 4 remain."""
    assert cpu_limit(v1_docker(tmp_path / "a")).cores == 1.5
    quota = {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n"}
    limit = cpu_limit(v1_docker(tmp_path / "b", **quota))
    assert limit.cores == 4.0
    assert "cpuset" in limit.source


@pytest.mark.parametrize(
    ("files", "expected_cores"),
    [
        # 8 processors are online, the affinity names 64 that could be.
        ({}, 8.0),
        ({"proc/self/status": "Cpus_allowed_list:\t1,3,5-6\n"}, 4.0),
        # Two of the allowed are offline.
        ({"proc/self/status": "Cpus_allowed_list:\t6-9\n"}, 2.0),
        ({"proc/self/status": "Cpus_allowed_list:\tgarbage\n"}, 8.0),
        ({"proc/self/status": "Cpus_allowed_list:\t0-99999999\n"}, 8.0),
        ({"sys/devices/system/cpu/online": "", "proc/cpuinfo": "processor\t: 0\n" * 3}, 3.0),
    ],
)
def test_processors_and_affinity(
    tmp_path: Path, files: dict[str, str], expected_cores: float
) -> None:
    """Without a group's limit: the online processors that the process may run on."""
    assert cpu_limit(tree(tmp_path, files)).cores == expected_cores


def test_other_process_is_read_by_its_number(tmp_path: Path) -> None:
    """The group is that of the process asked for."""
    root = v2_kubernetes(tmp_path)
    (root / "proc/77").mkdir()
    (root / "proc/77/cgroup").write_text("0::/kubepods.slice\n")
    (root / "proc/77/mountinfo").write_text(V2_MOUNT.format(root="/"))
    assert memory_limit(root, 77).limit_bytes == 14 * 1024 * MIB


def test_this_machine_answers() -> None:
    """On the machine of the test: not more than physical memory and the processors there are."""
    physical_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < memory_limit().limit_bytes <= physical_bytes
    assert 0 < cpu_limit().cores <= (os.cpu_count() or 1)


def test_a_group_that_does_not_say_what_is_anonymous_says_nothing(tmp_path: Path) -> None:
    """Pages of files alone are no figure: they can be given back."""
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "proc/self/mountinfo": V2_MOUNT.format(root="/"),
            "sys/fs/cgroup/memory.max": "52428800\n",
            "sys/fs/cgroup/memory.stat": "file 70000000\n",
        },
    )
    assert memory_limit(root).limit_bytes == 50 * MIB
    assert cgroup_used_bytes(root) is None


def test_a_group_that_vanishes_while_it_is_looked_for_has_nothing_below(tmp_path: Path) -> None:
    """Containers come and go."""
    assert list(cgroups._directories_below(tmp_path / "gone", 2)) == []
