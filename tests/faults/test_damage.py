from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from damage import KINDS, Judge, files_of, flip, judge_finished, truncate
from interrupted import crash, row_number
from whole_runs import small_config

from clearl.errors import ClearlError
from clearl.experiment import run

CONFIG = small_config(cycles=1)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    run(CONFIG, out, console=False)
    return out


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that ended some way behind its last checkpoint."""
    out = tmp_path_factory.mktemp("crashed") / "run"
    crash(CONFIG, out, at=row_number(11))
    return out


def damage_all(
    out: Path, trials: int, harm: Callable[[bytes, random.Random], bytes], seed: int
) -> dict[str, Counter[str]]:
    """Damage one file at a time, every kind equally often; return the outcomes."""
    rng, judge = random.Random(seed), Judge(out, CONFIG)
    outcomes: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    for trial in range(trials):
        kind = KINDS[trial % len(KINDS)]
        path = rng.choice(files_of(out, kind))
        # Opening a store repairs it, so all of its files are put back, not only the damaged one.
        before = {file: file.read_bytes() for file in path.parent.iterdir() if file.is_file()}
        path.write_bytes(harm(before[path], rng))
        outcomes[kind][judge.verdict(kind)] += 1
        for file, data in before.items():
            file.write_bytes(data)
    return outcomes


def check_damage(out: Path, record: Callable[[str, object], None], *, flips: int, truncations: int, seed: int) -> None:
    for name, harm, trials in [("flips", flip, flips), ("truncations", truncate, truncations)]:
        outcomes = damage_all(out, trials, harm, seed)
        total = sum(outcomes.values(), Counter())
        assert sum(total.values()) == trials
        record(name, ", ".join(f"{count} {outcome}" for outcome, count in sorted(total.items())))
        assert not outcomes["config.yaml"]["harmless"] and not outcomes["meta.json"]["harmless"]
        # Half of the damage is to the older generation, which nobody asks for; else only white space is harmless.
        for kind in ("state.json", "arrays.safetensors", "manifest.json"):
            assert outcomes[kind]["fell back"] > trials / len(KINDS) / 4, f"{kind}: {outcomes[kind]}"
        assert outcomes[".seg"]["quarantined"] > outcomes[".seg"]["harmless"]


def test_flips_and_truncations(crashed: Path, record_property: Callable[[str, object], None]) -> None:
    check_damage(crashed, record_property, flips=280, truncations=280, seed=1)


@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_ten_thousand_flips_and_a_thousand_truncations(
    crashed: Path, record_property: Callable[[str, object], None]
) -> None:
    check_damage(crashed, record_property, flips=10_000, truncations=1_000, seed=2)


def check_whole_runs(whole: Path, crashed: Path, tmp_path: Path, *, trials: int, seed: int) -> Counter[str]:
    """Damage one file and give the command again: it refuses, or ends as if nothing had been, or says what is lost."""
    rng, outcomes = random.Random(seed), Counter[str]()
    for trial in range(trials):
        out = Path(shutil.copytree(crashed, tmp_path / str(trial)))
        kind = KINDS[trial % len(KINDS)]
        path = rng.choice(files_of(out, kind))
        path.write_bytes((truncate if rng.random() < 0.3 else flip)(path.read_bytes(), rng))
        try:
            assert run(CONFIG, out, console=False).status == "finished"
        except ClearlError:
            outcomes["refused"] += 1
            continue
        outcomes[judge_finished(whole, out, CONFIG)] += 1
        shutil.rmtree(out)
    return outcomes


def test_the_command_given_again_after_damage(whole: Path, crashed: Path, tmp_path: Path) -> None:
    assert check_whole_runs(whole, crashed, tmp_path, trials=len(KINDS), seed=3)


@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_the_command_given_again_after_much_damage(
    whole: Path, crashed: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    outcomes = check_whole_runs(whole, crashed, tmp_path, trials=10 * len(KINDS), seed=4)
    record_property("damaged runs", ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())))
