"""How much memory and processor a process may use here, and what its container uses.

Owns the meaning of the files in control groups, of /proc/meminfo and of the process's own limits.
Where groups lie is the business of ``sizing.cgroups``; what one process uses, of
``sizing.memory``. The file system's root is an argument, so that all of it runs on recorded trees.

The smallest limit wins, wherever it stands. What is not a positive number that means something
("max", 0, version 1's huge number for "none", an unreadable file) is no limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sizing.cgroups import Group, own_groups, read_text
from sizing.errors import HostProbeError

#: Version 1 writes "no limit" as the largest 64-bit number rounded down to a page.
_NO_LIMIT_BYTES: Final = 1 << 62
_LIMIT_FILES: Final = {1: ("memory.limit_in_bytes",), 2: ("memory.max", "memory.high")}
#: Digits of the largest 64-bit number.
_LONGEST_NUMBER: Final = 20
#: More processors than any kernel is built for; bounds what a garbled list can ask for.
_MOST_CPUS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """The memory that a process, with everything else in its container, may use."""

    limit_bytes: int
    #: what set it, in words
    source: str
    #: the file that says so
    path: Path


@dataclass(frozen=True, slots=True)
class CpuLimit:
    """The processors that a process, with everything else in its container, may use."""

    #: > 0; a quota may be a fraction
    cores: float
    #: what set it, in words
    source: str
    #: the file that says so
    path: Path


def memory_limit(root: Path = Path("/"), pid: int | str = "self") -> MemoryLimit:
    """Return the smallest memory limit that applies to a process.

    Parameters
    ----------
    root : Path
        Root of the file system to read.
    pid : int or str
        The process.

    Returns
    -------
    MemoryLimit
        The smallest of: the limits of its control group and of every enclosing one that is
        visible (version 2, then 1), its own address space limit (RLIMIT_AS), physical memory.

    Raises
    ------
    HostProbeError
        If nothing says anything, not even /proc/meminfo.

    Notes
    -----
    Units: bytes.
    ``memory.high`` counts as a limit: a group above it is not killed, but slowed down until
    nothing moves, since what a worker holds cannot be reclaimed.
    ``hierarchical_memory_limit`` of version 1 is the smallest limit of all enclosing groups, those
    above the container's mount included, which no other file shows.

    Source
    ------
    cgroup-v2.rst and cgroup-v1/memory.rst of the Linux kernel, proc(5), getrlimit(2).

    Examples
    --------
    >>> memory_limit().limit_bytes > 0
    True
    """
    limits = list(_memory_limits(root, pid))
    if not limits:
        raise HostProbeError(wanted="memory limit", path=str(root / "proc/meminfo"))
    # The first of equals: the source nearest to the process.
    return min(limits, key=lambda limit: limit.limit_bytes)


def cpu_limit(root: Path = Path("/"), pid: int | str = "self") -> CpuLimit:
    """Return the smallest processor limit that applies to a process.

    Parameters
    ----------
    root : Path
        Root of the file system to read.
    pid : int or str
        The process.

    Returns
    -------
    CpuLimit
        The smallest of: the quota of its control group and of every enclosing one that is
        visible, the size of its cpuset, the online processors that its affinity allows.

    Raises
    ------
    HostProbeError
        If nothing says anything.

    Notes
    -----
    Units: cores (a quota of 150 ms in each period of 100 ms is 1.5 cores).
    CPU shares and weights are no limit: they only count under contention.

    Source
    ------
    cgroup-v2.rst, scheduler/sched-bwc.rst and cgroup-v1/cpusets.rst of the Linux kernel.

    Examples
    --------
    >>> cpu_limit().cores > 0
    True
    """
    limits = [*_quotas(root, pid), *_cpu_sets(root, pid)]
    if not limits:
        path = root / "sys/devices/system/cpu/online"
        raise HostProbeError(wanted="number of processors", path=str(path))
    return min(limits, key=lambda limit: limit.cores)


def cgroup_used_bytes(root: Path = Path("/"), pid: int | str = "self") -> int | None:
    """Return the unreclaimable memory of the container's group: anonymous and shared.

    Parameters
    ----------
    root : Path
        Root of the file system to read.
    pid : int or str
        The process.

    Returns
    -------
    int or None
        Bytes. None when the process's group is not a container's own (a login session holds
        other people's processes), or says nothing.

    Notes
    -----
    Units: bytes.
    Counts what summed resident sizes count once per process only once, and shared memory that no
    process has mapped at the moment as well. Page cache is left out: it makes room by itself.
    A group counts as the container's own when it carries a limit, or is all of its hierarchy
    that is visible.

    Source
    ------
    memory.stat in cgroup-v2.rst (anon, shmem) and cgroup-v1/memory.rst (total_rss, total_shmem).
    """
    for group in own_groups("memory", root, pid):
        if not group.is_own or not _is_container(group):
            continue
        stat = _key_values(read_text(group.directory / "memory.stat"))
        for anonymous, shared in (("anon", "shmem"), ("total_rss", "total_shmem")):
            if anonymous in stat:
                return stat[anonymous] + stat.get(shared, 0)
    return None


def oom_kills(root: Path = Path("/"), pid: int | str = "self") -> int | None:
    """Return how many processes of the process's group the kernel has killed for memory.

    Parameters
    ----------
    root : Path
        Root of the file system to read.
    pid : int or str
        The process.

    Returns
    -------
    int or None
        Kills since the group was made; None when unknown.

    Notes
    -----
    Units: processes. Its growth while a handler process died tells a kill by the kernel from
    one by a signal.

    Source
    ------
    memory.events in cgroup-v2.rst; memory.oom_control in cgroup-v1/memory.rst.
    """
    for group in own_groups("memory", root, pid):
        if not group.is_own:
            continue
        for name in ("memory.events", "memory.oom_control"):
            counts = _key_values(read_text(group.directory / name))
            if "oom_kill" in counts:
                return counts["oom_kill"]
    return None


def _memory_limits(root: Path, pid: int | str) -> Iterator[MemoryLimit]:
    for group in own_groups("memory", root, pid):
        where = f"control group, version {group.version}"
        for directory in group.upwards():
            at = "container limit" if directory == group.directory else "limit of an outer group"
            for name in _LIMIT_FILES[group.version]:
                path = directory / name
                limit_bytes = _bytes_limit(read_text(path))
                if limit_bytes is not None:
                    yield MemoryLimit(limit_bytes, f"{at} ({where}, {name})", path)
        if group.version == 1:
            path = group.directory / "memory.stat"
            inherited = _key_values(read_text(path)).get("hierarchical_memory_limit", 0)
            if 0 < inherited < _NO_LIMIT_BYTES:
                source = f"limit of an outer group ({where}, hierarchical_memory_limit)"
                yield MemoryLimit(inherited, source, path)
    path = root / "proc" / str(pid) / "limits"
    for line in (read_text(path) or "").splitlines():
        if line.startswith("Max address space"):
            limit_bytes = _bytes_limit(line.removeprefix("Max address space"))
            if limit_bytes is not None:
                yield MemoryLimit(limit_bytes, "address space of one process (RLIMIT_AS)", path)
    path = root / "proc/meminfo"
    physical_kib = _key_values(read_text(path)).get("MemTotal:", 0)
    if physical_kib:
        yield MemoryLimit(physical_kib * 1024, "physical memory", path)


def _quotas(root: Path, pid: int | str) -> Iterator[CpuLimit]:
    for group in own_groups("cpu", root, pid):
        for directory in group.upwards():
            if group.version == 2:
                path = directory / "cpu.max"
                # "max 100000" or "150000 100000"
                words = (read_text(path) or "").split()
                quota, period = words if len(words) == 2 else ("", "")
            else:
                path = directory / "cpu.cfs_quota_us"
                quota = read_text(path) or ""
                period = read_text(directory / "cpu.cfs_period_us") or ""
            quota_us, period_us = _positive(quota), _positive(period)
            if quota_us and period_us:
                source = f"processor quota (control group, version {group.version}, {path.name})"
                yield CpuLimit(quota_us / period_us, source, path)


def _cpu_sets(root: Path, pid: int | str) -> Iterator[CpuLimit]:
    path = root / "sys/devices/system/cpu/online"
    online = _cpu_list(read_text(path))
    if not online:
        # Where /sys is hidden. One line "processor : n" for each, on every architecture we know.
        path = root / "proc/cpuinfo"
        lines = (read_text(path, 1 << 22) or "").splitlines()
        online = set(range(sum(line.startswith("processor\t") for line in lines)))
    if online:
        yield CpuLimit(float(len(online)), "processors that are online", path)
    for group in own_groups("cpuset", root, pid):
        # The effective set takes the enclosing ones into account already.
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
            path = group.directory / name
            cpus = _cpu_list(read_text(path))
            if cpus:
                source = f"cpuset (control group, version {group.version}, {name})"
                yield CpuLimit(float(len(cpus)), source, path)
                break
    path = root / "proc" / str(pid) / "status"
    for line in (read_text(path) or "").splitlines():
        if line.startswith("Cpus_allowed_list:"):
            # An unrestricted process is allowed processors that could be plugged in, too.
            allowed = _cpu_list(line.partition(":")[2])
            usable = allowed & online if online else allowed
            if usable:
                yield CpuLimit(float(len(usable)), "processor affinity of the process", path)


def _is_container(group: Group) -> bool:
    if group.version == 2:
        own = _bytes_limit(read_text(group.directory / "memory.max"))
        # The real root of the hierarchy has no such file, a mounted group has.
        is_top = not (group.directory / "memory.max").exists()
    else:
        own = _bytes_limit(read_text(group.directory / "memory.limit_in_bytes"))
        # A file that only the real root of a version 1 hierarchy has.
        is_top = (group.directory / "release_agent").exists()
    return own is not None or (group.directory == group.mount and not is_top)


def _bytes_limit(text: str | None) -> int | None:
    limit_bytes = _positive(text)
    return limit_bytes if limit_bytes is not None and limit_bytes < _NO_LIMIT_BYTES else None


def _positive(text: str | None) -> int | None:
    words = (text or "").split()
    word = words[0] if words else ""
    if not word.isascii() or not word.isdigit() or len(word) > _LONGEST_NUMBER:
        return None
    return int(word) or None


def _key_values(text: str | None) -> dict[str, int]:
    """Read lines of a word and a number, with or without a unit after it."""
    values = {}
    for line in (text or "").splitlines():
        words = line.split()
        if len(words) >= 2 and words[1].isascii() and words[1].isdigit():
            values[words[0]] = int(words[1][:_LONGEST_NUMBER])
    return values


def _cpu_list(text: str | None) -> set[int]:
    """Read "0-3,8,10-11"; what is not such a list is the empty set."""
    cpus: set[int] = set()
    for part in (text or "").strip().split(","):
        first, dash, last = part.strip().partition("-")
        low = int(first) if _is_cpu(first) else None
        high = low if not dash else int(last) if _is_cpu(last) else None
        if low is None or high is None:
            return set()
        cpus.update(range(low, high + 1))
    return cpus


def _is_cpu(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) < 6 and int(word) < _MOST_CPUS
