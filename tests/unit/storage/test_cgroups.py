"""Memory limits and kills of control groups, laid out as the kernel does."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearl.storage.cgroups import CpuGroups, MemoryGroups


def lay_out(tmp_path: Path, membership: str, files: dict[str, str]) -> MemoryGroups:
    (tmp_path / "membership").write_text(membership)
    for name, text in files.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return MemoryGroups(tmp_path / "root", tmp_path / "membership", tmp_path / "vmstat")


def test_the_tightest_limit_of_nested_version_2_groups_counts(tmp_path: Path) -> None:
    files = {
        "job/step/memory.max": "max\n", "job/step/memory.current": "70\n",
        "job/memory.max": "1000\n", "job/memory.current": "400\n",
        "memory.max": "5000\n", "memory.current": "500\n",
    }  # fmt: skip
    assert lay_out(tmp_path, "0::/job/step\n", files).headroom_nbytes() == 600


def test_version_1_groups_have_limits_too(tmp_path: Path) -> None:
    files = {"memory/a/memory.limit_in_bytes": "1000\n", "memory/a/memory.usage_in_bytes": "950\n"}
    assert lay_out(tmp_path, "4:cpu,memory:/a\n3:pids:/b\n", files).headroom_nbytes() == 50


def test_a_container_that_sees_the_path_of_its_host_reads_its_own_root(tmp_path: Path) -> None:
    files = {"memory.max": "100\n", "memory.current": "30\n"}
    assert lay_out(tmp_path, "0::/docker/0123\n", files).headroom_nbytes() == 70


def test_no_groups_are_no_limit(tmp_path: Path) -> None:
    assert MemoryGroups(tmp_path, tmp_path / "none", tmp_path / "none").headroom_nbytes() is None


@pytest.mark.parametrize(
    ("membership", "name", "text"),
    [
        ("0::/a\n", "a/memory.events", "oom 3\noom_kill 2\n"),
        ("4:memory:/a\n", "memory/a/memory.oom_control", "under_oom 0\noom_kill 2\n"),
    ],
)
def test_kills_for_lack_of_memory_are_counted(tmp_path: Path, membership: str, name: str, text: str) -> None:
    assert lay_out(tmp_path, membership, {name: text}).oom_kills() == 2


def test_without_a_group_those_of_the_machine_are(tmp_path: Path) -> None:
    groups = lay_out(tmp_path, "0::/\n", {})
    (tmp_path / "vmstat").write_text("pgfault 12\noom_kill 7\n")
    assert groups.oom_kills() == 7


@pytest.mark.parametrize(
    ("membership", "files", "cores"),
    [
        ("0::/job/step\n", {"job/step/cpu.max": "max 100000\n", "job/cpu.max": "200000 100000\n"}, 2),
        ("0::/job/step\n", {"job/step/cpu.max": "150000 100000\n", "job/cpu.max": "400000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/docker/0123\n", {"cpu.max": "300000 100000\n"}, 3),
        ("0::/a\n", {"a/cpu.max": "max 100000\n"}, None),
        ("0::/a\n", {"a/cpu.max": "nonsense\n"}, None),
        ("4:cpu,cpuacct:/a\n", {"cpu/a/cpu.cfs_quota_us": "400000\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, 4),
        ("4:cpu,cpuacct:/a\n", {"cpu/a/cpu.cfs_quota_us": "-1\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, None),
        ("0::/a\n", {}, None),
    ],
)
def test_a_quota_of_cpu_time_is_a_number_of_cores(
    membership: str, files: dict[str, str], cores: int | None, tmp_path: Path
) -> None:
    groups = lay_out(tmp_path, membership, files)
    assert CpuGroups(groups.root, groups.membership).cores() == cores
