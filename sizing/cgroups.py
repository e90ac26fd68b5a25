"""Where the control groups of a process lie in the file system, version 1 and 2.

Owns the joining of /proc/<pid>/cgroup (which group) with /proc/<pid>/mountinfo (where groups are
visible), and tolerant, bounded reads of small kernel files. Knows nothing of what the files in a
group mean (see ``sizing.limits``). The file system's root is an argument.

A file that is missing, unreadable or odd never raises: it says nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from stat import S_ISDIR
from typing import Final

#: A host with thousands of containers has a mount table of some megabytes.
_MOUNT_TABLE_BYTES: Final = 8 << 20
_SMALL_FILE_BYTES: Final = 64 << 10
#: Bounds the search for a group of unknown name; a large host has some thousand.
_MOST_GROUPS: Final = 20_000
_OCTAL_ESCAPE = re.compile(r"\\([0-7]{3})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Group:
    """One control group of the process, as far as it is visible here."""

    #: 1 or 2
    version: int
    #: the group's directory; when the group itself is not visible, the nearest that is
    directory: Path
    #: where its hierarchy, or the visible part of it, is mounted
    mount: Path
    #: whether ``directory`` is the process's own group
    is_own: bool

    def upwards(self) -> Iterator[Path]:
        """Yield the group's directory and each enclosing one, up to the mount."""
        directory = self.directory
        while True:
            yield directory
            if directory == self.mount:
                return
            directory = directory.parent


@dataclass(frozen=True, slots=True)
class _Mount:
    version: int
    controllers: frozenset[str]
    root: PurePosixPath
    point: Path


def read_text(path: Path, most_bytes: int = _SMALL_FILE_BYTES) -> str | None:
    """Return the beginning of a file as text; None when it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(most_bytes).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None


def own_groups(controller: str, root: Path = Path("/"), pid: int | str = "self") -> list[Group]:
    """Return the groups that may limit a process through a controller, version 2 first.

    Parameters
    ----------
    controller : str
        Name of a controller, such as "memory", "cpu" or "cpuset".
    root : Path
        Root of the file system.
    pid : int or str
        The process.

    Returns
    -------
    list of Group
        One for each mount that shows the process's group. On a hybrid host the version 2
        hierarchy has no memory controller: its group is listed, and has no such files.

    Notes
    -----
    The mount's root field is a prefix of the group's path: inside a container the hierarchy is
    usually mounted *at* the container's group, and the path in /proc/<pid>/cgroup is the host's.
    With a cgroup namespace both are relative to the namespace's root, and ``/..`` steps stand for
    groups above it. Where the mount begins above the namespace (a host's groups bound into a
    container), the names between are found by looking for the process.
    Where no mount shows the group, the mount points themselves are taken: the nearest visible
    evidence. A limit found there may be one that does not apply, which only makes us careful.

    Source
    ------
    proc(5), cgroups(7), cgroup_namespaces(7).
    """
    process = root / "proc" / str(pid)
    paths = _group_paths(read_text(process / "cgroup") or "", controller)
    mounts = [
        mount
        for mount in _mounts(read_text(process / "mountinfo", _MOUNT_TABLE_BYTES) or "", root)
        if (mount.version == 2 or controller in mount.controllers) and _is_directory(mount.point)
    ]
    if not mounts:
        mounts = _usual_mounts(controller, root)
    groups = []
    for version in (2, 1):
        path = paths.get(version, PurePosixPath("/"))
        here = [mount for mount in mounts if mount.version == version]
        joined = [_join(mount, path, process) for mount in here]
        groups += [group for group in joined if group.is_own] or joined
    return groups


def _group_paths(text: str, controller: str) -> dict[int, PurePosixPath]:
    """Return the path of the process's group by version."""
    paths = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if not colon or not path.startswith("/"):
            continue
        if number == "0" and not controllers:
            paths[2] = PurePosixPath(path)
        elif controller in controllers.split(","):
            paths[1] = PurePosixPath(path)
    return paths


def _mounts(text: str, root: Path) -> Iterator[_Mount]:
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if not separator or len(fields) < 6 or kinds[0] not in ("cgroup", "cgroup2"):
            continue
        yield _Mount(
            version=2 if kinds[0] == "cgroup2" else 1,
            controllers=frozenset(kinds[-1].split(",")),
            root=PurePosixPath(_unescape(fields[3])),
            point=root / _unescape(fields[4]).lstrip("/"),
        )


def _unescape(field: str) -> str:
    return _OCTAL_ESCAPE.sub(lambda match: chr(int(match[1], 8)), field)


def _usual_mounts(controller: str, root: Path) -> list[_Mount]:
    """Return the places that everyone mounts groups at: plain files laid over them count too."""
    top, point = PurePosixPath("/"), root / "sys/fs/cgroup"
    return [
        _Mount(2, frozenset(), top, point),
        _Mount(1, frozenset((controller,)), top, point / controller),
    ]


def _join(mount: _Mount, path: PurePosixPath, process: Path) -> Group:
    directory: Path | None = None
    if path.is_relative_to(mount.root):
        below = path.relative_to(mount.root).parts
        # Steps up from a namespace's root lead out of what this mount shows.
        directory = None if ".." in below else mount.point.joinpath(*below)
    elif set(mount.root.parts[1:]) == {".."}:
        names = path.parts[1:]
        up = names.count("..")
        unknown = len(mount.root.parts) - 1 - up
        directory = _find(mount.point, unknown, names[up:], process) if unknown > 0 else None
    return Group(
        version=mount.version,
        directory=directory or mount.point,
        mount=mount.point,
        is_own=directory is not None and _is_directory(directory),
    )


def _find(top: Path, unknown: int, below: tuple[str, ...], process: Path) -> Path | None:
    """Return the group that lists the process, some levels of unknown names below the top."""
    # "self" is a link to the number.
    pid = process.resolve().name
    for directory in islice(_directories_below(top, unknown), _MOST_GROUPS):
        group = directory.joinpath(*below)
        if pid in (read_text(group / "cgroup.procs") or "").split():
            return group
    return None


def _directories_below(top: Path, levels: int) -> Iterator[Path]:
    """Yield the directories so many levels below; one that vanishes meanwhile has none."""
    if not levels:
        yield top
        return
    try:
        with os.scandir(top) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for name in names:
        yield from _directories_below(top / name, levels - 1)


def _is_directory(path: Path) -> bool:
    # Path.is_dir raises where a directory above may not be searched.
    try:
        return S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError):
        return False
