"""Tables and figures of the docs, from small measurements."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("performance.md", "scale.md")


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return load(ROOT / "tools" / "performance_tables.py")


@pytest.fixture
def pages(tmp_path: Path) -> list[Path]:
    """Copies of the real pages, without what was measured."""
    for name in PAGES:
        (tmp_path / name).write_text((ROOT / "docs" / name).read_text())
    return [tmp_path / name for name in PAGES]


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def growth() -> dict[str, Any]:
    rates = {name: [{"x": 4, "frames_per_s": 1000.0}, {"x": 8, "frames_per_s": 2345.6}]
             for name in ("slots", "workers", "batch", "unroll")}  # fmt: skip
    cost = {"insert_us": 40.4, "sample_us": 30.2, "atari_insert_us": 90.0}
    served = {"workload": "atari", "updates_per_s": 6.25, "frames_per_s": 16_000.0, "worker_frames_per_s": 4_000.0}
    paper = {
        "run": "DMLab", "measured_on": "vizdoom", "total_frames": 864_000_000, "frames_per_s": 10_000.0,
        "worker_frames_per_s": 2_500.0, "replay_bytes_per_frame": 2000.0, "buffer_share": 0.5, "waste_share": 0.5,
    }  # fmt: skip
    sections = {
        **rates,
        "replay": [{"held": 1000, "index_bytes": 29_000, **cost}, {"held": 10_000, "index_bytes": 290_000, **cost}],
        "memory": [
            {"frames": frames, "bytes": 6e8 + frames, "replay_bytes": 40 * frames, "buffer_frames": 500}
            for frames in (100, 600, 1000)
        ],
        "serve": [{"workers": workers, **served} for workers in (1, 2)],
        "paper": [paper],
        "operations": [{"run": "DMLab", "flops_per_frame": 20_000_000}],
    }
    return {"v": 1, "cores": 2, "sections": sections}


def scale() -> dict[str, Any]:
    rate = {"workers": 1, "ray": 900.0, "local": 1000.0, "ray_over_local": 0.9}
    sections = {
        "intake": [{"runtime": "ray", "workers": 2, "pairs_per_s": 855.0, "pair_bytes": 342_400}],
        "many": [{"workers": 100, "pairs_per_s": 1500.0, "most_pairs": 33, "fewest_pairs": 30, "max_over_min": 1.1,
                  "lag_updates": 3.1}],
        "atari": [rate],
    }  # fmt: skip
    return {"v": 1, "cores": 2, "versions": {"ray": "2.60.0"}, "sections": sections}


def test_measurements_become_tables_and_figures(tool: ModuleType, pages: list[Path], tmp_path: Path) -> None:
    (tmp_path / "growth.json").write_text(json.dumps(growth()))
    (tmp_path / "ray.json").write_text(json.dumps(scale()))
    tool.write(tmp_path, pages, tmp_path / "performance")
    performance, scaled = (page.read_text() for page in pages)
    assert "| steps of an unroll (T) | 4: 1,000, 8: 2,346 |" in performance
    assert "| 10,000 | 40 | 30 | 90 | 29 |" in performance
    assert "| buffer full | 600 | 600 | 0.0 |" in performance
    assert "| Atari, shallow net | 1: 6.2, 2: 6.2 | 16,000 | 4,000 | 4.0 workers |" in performance
    assert "F / r, 1 / r = 1 / (2 w) + 1 / L | 3.0 days |" in performance
    assert "N = 32 workers, one such learner: F / min(N w, L) | 24.0 hours |" in performance
    assert "N = 32 workers, a learner that takes N w: F / (N w) | 3.0 hours at 80,000 frames/s |" in performance
    assert "s b F (at most on disk, with waste) | 864 GB (1,728) |" in performance
    assert "with `ray`, 342 KB each | 855 | 400 of 282 KB |" in scaled
    # 20 MFLOP for each of 2,500 frames a second of a worker: 1e12 / 5e10 workers.
    assert "sustained serves: 1e12 / (o w) | 20 |" in scaled and "on 2 cores here, TFLOP/s | 0.20 |" in scaled
    assert "most / fewest pairs taken | 1.10 (33 / 30) | at most 2 |" in scaled
    assert "| Atari, shallow net, 1 worker: `ray` / `local`, frames a second | 900 / 1,000 = 0.90 |" in scaled
    shown = [line.partition("](")[2].rstrip(")") for line in performance.splitlines() if line.startswith("![")]
    assert sorted(shown) == [f"performance/{name}.svg" for name in ("memory", "projection", "rates", "replay", "serve")]
    assert all((tmp_path / figure).read_text().startswith("<?xml") for figure in shown)


def test_the_same_measurements_give_the_same_bytes(tool: ModuleType, pages: list[Path], tmp_path: Path) -> None:
    (tmp_path / "growth.json").write_text(json.dumps(growth()))
    seen = []
    for _ in range(2):
        tool.write(tmp_path, pages, tmp_path / "performance")
        files = [*pages, *sorted((tmp_path / "performance").iterdir())]
        seen.append([file.read_bytes() for file in files])
    assert seen[0] == seen[1]


def test_what_was_not_measured_leaves_its_place_alone(tool: ModuleType, pages: list[Path], tmp_path: Path) -> None:
    before = pages[0].read_text()
    content = growth()
    content["sections"] = {"serve": content["sections"]["serve"]}
    (tmp_path / "growth.json").write_text(json.dumps(content))
    tool.write(tmp_path, pages, tmp_path / "performance")
    after = pages[0].read_text()
    assert [file.name for file in (tmp_path / "performance").iterdir()] == ["serve.svg"]
    assert cut(before, "serve") == cut(after, "serve") and before != after


def cut(page: str, name: str) -> tuple[str, str]:
    head, _, rest = page.partition(f"[//]: # ({name})")
    return head, rest.partition(f"[//]: # (end {name})")[2]


def test_a_table_without_a_place_is_an_error(tool: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("[//]: # (bench)\n[//]: # (end bench)\n")
    with pytest.raises(SystemExit, match="no page has a place for: breakdown"):
        tool.write(tmp_path, [tmp_path / "page.md"], tmp_path)


def test_a_ratio_is_of_two_programs_measured_one_after_the_other(tool: ModuleType) -> None:
    compare = load(ROOT / "benchmarks" / "peers" / "compare.py").compare
    lines = [
        {"name": "clearl", "version": "0.1.0", "frames_per_s": 3000.0, "settings": {"slots": 64}},
        {"name": "sb3-a2c", "version": "2.9", "frames_per_s": 1000.0, "settings": {"envs": 32}},
        {"name": "clearl", "version": "0.1.0", "frames_per_s": 1000.0, "settings": {"slots": 64}},
        {"name": "sb3-ppo", "version": "2.9", "frames_per_s": 500.0, "settings": {"envs": 32}},
        {"name": "sample-factory", "error": "does not run: no games"},
    ]
    rows = compare(lines)
    assert {row["name"]: row.get("clearl_over_it") for row in rows} == {
        "clearl": 1.0, "sb3-a2c": 3.0, "sb3-ppo": 2.0, "sample-factory": None,
    }  # fmt: skip
    table = tool.peers_table({"peers": rows})
    assert "| sb3-a2c 2.9 | 1,000 | 3.00 | 1.5 | envs 32 |" in table
    assert table[-1].endswith("| 1.5 | does not run: no games |")
