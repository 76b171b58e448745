"""A sweep file stands for exactly the runs that it says, and every mistake in it is one line."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from clearl.errors import ClearlError
from clearl.reproduce.sweep import Sweep, command_lines, load_sweep
from clearl.wiring import run_frames

BASE = "preset: minatar\nsettings: {tasks: [breakout, asterix], frames_per_visit: 1000}\n"


def sweep(tmp_path: Path, text: str, name: str = "mine.yaml") -> Sweep:
    path = tmp_path / name
    path.write_text(BASE + text)
    return load_sweep(path)


def test_arms_times_grid_times_seeds_seed_by_seed(tmp_path: Path) -> None:
    runs = sweep(
        tmp_path,
        "arms: {a: {method: baseline}, clear: }\ngrid: {entropy_weight: [0.01, 0.03], slots: [32, 64]}\nseeds: [3, 7]",
    ).runs
    assert len(runs) == 2 * 2 * 2 * 2
    assert [run.config.seed for run in runs] == [3] * 8 + [7] * 8
    assert [run.arm for run in runs[:2]] == ["a [entropy_weight=0.01, slots=32]", "a [entropy_weight=0.01, slots=64]"]
    assert {(run.config.method, run.config.entropy_weight, run.config.slots) for run in runs} == {
        (method, entropy, slots) for method in ("baseline", "clear") for entropy in (0.01, 0.03) for slots in (32, 64)
    }
    assert all(run.config.tasks == ("breakout", "asterix") for run in runs)
    assert len({run.path for run in runs}) == 16
    assert runs[0].path == "runs/mine/a-entropy_weight-0.01-slots-32/seed-3"


def test_without_arms_it_is_one_run_a_seed(tmp_path: Path) -> None:
    runs = sweep(tmp_path, "seeds: 3").runs
    assert [run.path for run in runs] == [f"runs/mine/run/seed-{seed}" for seed in range(3)]


def test_seeds_take_turns_with_orders(tmp_path: Path) -> None:
    text = "orders: [[breakout, asterix], [asterix, breakout]]\narms: [clear, sequential]\nseeds: 3"
    runs = sweep(tmp_path, text).runs
    assert [run.config.tasks for run in runs[::2]] == [run.config.tasks for run in runs[1::2]]
    assert [run.config.tasks[0] for run in runs[::2]] == ["breakout", "asterix", "breakout"]


@pytest.mark.parametrize(
    ("orders", "said"),
    [
        ("[breakout, asterix]", "list of lists"),
        ("[]", "list of lists"),
        ("[[breakout, asterix], [breakout, freeway]]", "not the same tasks"),
    ],
)
def test_orders_that_do_not_fit_are_refused(tmp_path: Path, orders: str, said: str) -> None:
    with pytest.raises(ClearlError, match=said):
        sweep(tmp_path, f"orders: {orders}")


def test_random_draws_lie_in_their_range_and_are_the_same_every_time(tmp_path: Path) -> None:
    rate = "{low: 0.0001, high: 0.01, log: true}"
    text = f"random: {{samples: 40, seed: 5, settings: {{learning_rate: {rate}, slots: [32, 64]}}}}"
    rates = [run.config.learning_rate for run in sweep(tmp_path, text).runs]
    assert rates == [run.config.learning_rate for run in sweep(tmp_path, text).runs]
    assert len(set(rates)) > 30 and all(1e-4 <= rate <= 1e-2 for rate in rates)
    below = sum(rate < 1e-3 for rate in rates)  # half of them, if even in the logarithm
    assert 10 <= below <= 30
    other = [run.config.learning_rate for run in sweep(tmp_path, text.replace("seed: 5", "seed: 6")).runs]
    assert rates != other


def test_commands_are_for_a_shell(tmp_path: Path) -> None:
    swept = sweep(tmp_path, "arms: {'odd name; rm': {method: clear}}")
    (line,) = command_lines(swept.runs, Path("my runs"))
    words = shlex.split(line)
    assert words[:3] == ["clearl", "run", "--config"]
    assert words[words.index("--arm") + 1] == "odd name; rm"
    assert words[words.index("--out") + 1] == "my runs/runs/mine/odd-name-rm/seed-0"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("grids: {slots: [1]}", "did you mean 'grid'"),
        ("grid: {slots: 32}", "must be a list"),
        ("grid: {slotz: [32]}", "slotz"),
        ("grid: {slots: [0]}", "mine.yaml: [slots=0]: slots must be"),
        ("arms: {clearr: }", "did you mean 'clear"),
        ("arms: 3", "arms must map"),
        ("seeds: 0", "seeds must be"),
        ("seeds: [a]", "seeds must be"),
        ("random: {samples: 0, settings: {slots: [1]}}", "samples"),
        ("random: {samples: 2, settings: {slots: {low: 3}}}", "low and high"),
        ("random: {samples: 2, settings: {learning_rate: {low: 0.0, high: 1.0, log: true}}}", "low > 0"),
        ("arms: {'a/b': {method: clear}, 'a-of-b': {method: clear}}", "twice"),
        ("seeds: [1, 1]", "twice"),
        ("grid: {slots: [1, 2]}\nseeds: 100000", "more than 100,000 runs"),
        ("grid: {seed: [1, 2]}", "grid must not set seed: seeds gives it"),
        ("arms: {a: {method: clear, seed: 3}}", "arm a must not set seed"),
        ("random: {samples: 2, settings: {seed: [1, 2]}}", "random: settings must not set seed"),
        ("grid: {tasks: [[breakout]]}\norders: [[breakout, asterix]]", "grid must not set tasks: orders gives it"),
        ("arms: [{clear: {method: clear}}]", "arms must map names to values, got [{"),
        ("arms: [[clear]]", "arms must map"),
        ("arms: {}", "arms must name at least one arm"),
        ("arms: []", "arms must name at least one arm"),
        ("preset: [minatar]", "preset must be a text or none, got ['minatar']"),
        ("title: [a]", "title must be a text or none"),
        ("seeds: true", "seeds must be their number"),
        ("seeds: [true]", "seeds must be their number"),
        ("seeds: 1000000000000", "seeds must be 1 to 100,000"),
        ("random: {samples: true, settings: {slots: [1]}}", "random: samples must be a whole number"),
        ("random: {samples: 1000000000, settings: {slots: [1]}}", "random: samples must be a whole number between"),
        ("random: {samples: 2, seed: x, settings: {slots: [1]}}", "random: seed must be a whole number"),
        ("random: {samples: 2, sead: 1, settings: {slots: [1]}}", "did you mean 'seed'"),
        ("random: {seed: 2, settings: {slots: [1]}}", "random must have samples and settings"),
        ("random: {samples: 2, settings: {learning_rate: {low: a, high: b}}}", "learning_rate: low must be a number"),
        ("random: {samples: 2, settings: {learning_rate: {low: 1, high: .inf}}}", "high must be a number"),
        ("random: {samples: 2, settings: {slots: {low: 1, high: 2, whole: 1}}}", "whole must be true or false"),
        (
            "grid: {" + ", ".join(f"key{k}: [1, 2, 3, 4, 5, 6, 7, 8, 9]" for k in range(12)) + "}",
            "more than 100,000",
        ),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ClearlError) as caught:
        sweep(tmp_path, text)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_a_seed_among_the_settings_is_refused_where_it_would_be_overridden(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("settings: {seed: 7}")
    with pytest.raises(ClearlError, match="settings must not set seed: seeds gives it"):
        load_sweep(tmp_path / "mine.yaml")


def test_a_range_may_be_written_as_people_write_numbers(tmp_path: Path) -> None:
    """YAML reads 1e-4 as a text."""
    runs = sweep(tmp_path, "random: {samples: 9, settings: {learning_rate: {low: 1e-4, high: 2e-4}}}").runs
    assert all(1e-4 <= run.config.learning_rate <= 2e-4 for run in runs)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClearlError, match="nowhere.yaml cannot be read"):
        load_sweep(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    "file", sorted((Path(__file__).parents[3] / "experiments").glob("*.yaml")), ids=lambda f: f.stem
)
def test_every_experiment_that_ships_is_listed_with_its_runs_and_frames(file: Path) -> None:
    table = (file.parent / "README.md").read_text()
    (row,) = [line for line in table.splitlines() if line.startswith("|") and f"`{file.name}`" in line]
    files = [file.parent / name for name in re.findall(r"`([\w-]+\.yaml)`", row)]
    runs = [run for each in files for run in load_sweep(each).runs]
    assert len(runs) == int(row.split("|")[3])
    frames = sum(run_frames(run.config) for run in runs)
    assert frames / 1e6 == float(row.split("|")[4].replace(",", ""))


def test_all_positions_of_a_probe_are_of_one_arm(tmp_path: Path) -> None:
    text = "arms: {clear: {protocol: probe, probe_task: asterix}}\ngrid: {probe_position: [0, 1]}"
    runs = sweep(tmp_path, text).runs
    assert [run.arm for run in runs] == ["clear", "clear"]
    assert [run.path for run in runs] == [f"runs/mine/clear-probe-{position}/seed-0" for position in (0, 1)]
