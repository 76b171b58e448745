"""Tell whether a directory is on a local or a network file system."""

from __future__ import annotations

import os
import re
from pathlib import Path

_REMOTE = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "9p", "ceph", "lustre", "gpfs", "beegfs", "panfs", "pvfs2",
     "orangefs", "ocfs2", "gfs2", "glusterfs", "davfs", "vboxsf", "virtiofs")
)  # fmt: skip


def remote_file_system(directory: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str | None:
    """Return the type of the remote file system that holds or will hold `directory`; None where it is local.

    FUSE counts as remote (sshfs, s3fs, rclone), except for the block devices that it mounts. Without a list of mounts
    (macOS), every directory counts as local.
    """
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    place, kind = os.path.realpath(directory), ""
    longest = -1
    for line in lines:
        before, _, after = line.partition(" - ")
        point = _unescaped(before.split()[4])
        # Of two mounts at the same point, the later one hides the earlier.
        if _is_below(place, point) and len(point) >= longest:
            longest, kind = len(point), after.split()[0]
    is_remote = kind in _REMOTE or (kind.startswith("fuse") and kind != "fuseblk")
    return kind if is_remote else None


def _is_below(place: str, point: str) -> bool:
    return place == point or place.startswith(point.rstrip("/") + "/")


def _unescaped(point: str) -> str:
    """Replace the octal numbers that stand for blanks, tabs, line breaks and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), point)
