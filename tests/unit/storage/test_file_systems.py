from __future__ import annotations

from pathlib import Path

import pytest

from clearl.storage.file_systems import remote_file_system


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    """Mounts below a directory of the test, as the kernel lists them."""
    points = {
        "": "ext4", "/home": "nfs4", "/home/me/scratch": "xfs", "/my\\040data": "fuse.sshfs", "/usb": "fuseblk",
        "/big": "lustre", "/twice": "ext4",
    }  # fmt: skip
    lines = [f"2{i} 1 0:{i} / {tmp_path}{point} rw,relatime shared:1 - {kind} source rw"
             for i, (point, kind) in enumerate([*points.items(), ("/twice", "cifs")])]  # fmt: skip
    (tmp_path / "mountinfo").write_text("20 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + "\n".join(lines) + "\n")
    return tmp_path / "mountinfo"


@pytest.mark.parametrize(
    ("directory", "remote"),
    [
        ("runs/a", None), ("home/me/runs", "nfs4"), ("homes", None), ("home/me/scratch/run", None),
        ("my data/run", "fuse.sshfs"), ("usb", None), ("big/run", "lustre"), ("twice/run", "cifs"),
    ],
)  # fmt: skip
def test_the_innermost_mount_decides(mounts: Path, directory: str, remote: str | None) -> None:
    assert remote_file_system(mounts.parent / directory, mounts) == remote


def test_a_link_leads_to_where_the_files_will_be(mounts: Path) -> None:
    (mounts.parent / "link").symlink_to(mounts.parent / "big")
    assert remote_file_system(mounts.parent / "link" / "run", mounts) == "lustre"


def test_without_a_list_of_mounts_every_directory_is_local(tmp_path: Path) -> None:
    assert remote_file_system(tmp_path, tmp_path / "nothing") is None


def test_memory_is_local() -> None:
    assert remote_file_system(Path("/dev/shm")) is None
