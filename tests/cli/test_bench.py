"""`clearl bench`: what it writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clearl.bench import measure as measuring
from clearl.bench.measure import spread
from clearl.bench.workloads import WORKLOADS
from clearl.cli.main import main


@pytest.fixture(autouse=True)
def figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verb without the minutes that measuring takes."""

    def measured(name: str, *, repeats: int, **_: object) -> dict:
        ratios = [0.8] * repeats
        rates = {"ideal": spread([1000.0]), "achieved": spread([800.0])}
        return {
            "workload": name, "repeats": repeats, "cores": 2, "frames_per_s": rates, "breakdown": {},
            "achieved_over_ideal": 0.8, "achieved_over_ideal_spread": spread(ratios),
        }  # fmt: skip

    monkeypatch.setattr(measuring, "measure", measured)


def test_one_workload_is_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "new" / "bench.json"
    assert main(["bench", "atari", "--json", str(file)]) == 0
    written = json.loads(file.read_text())
    assert written["achieved_over_ideal"] == 0.8 and written["repeats"] == 3
    assert "achieved / ideal" in capsys.readouterr().out


def test_all_workloads_are_in_one_file(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    assert main(["bench", "all", "--json", str(file)]) == 0
    assert [result["workload"] for result in json.loads(file.read_text())["workloads"]] == list(WORKLOADS)


@pytest.mark.parametrize("arguments", [["attari"], [], ["atari", "--repeats", "2"]])
def test_bad_input_is_refused(arguments: list[str]) -> None:
    assert main(["bench", *arguments]) == 2
