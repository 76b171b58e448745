"""Compare the speed of two versions of clearl on one workload, by turns of a second (see benchmarks/turns.py).

    python -m benchmarks.versions --before CHECKOUT --after CHECKOUT [--workload minatar] [--pairs 6] [--seconds 20]

Both train with the same settings: those of the workload that both versions know. `--set NAME=VALUE` gives the newer
version a setting that the older one lacks, to take a new default out of the comparison. Prints the speed of `after`
over the speed of `before` for each pair, their median, and the seconds from the command to the first update of each.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml
from benchmarks.turns import raced

from clearl.bench.endtoend import sized
from clearl.bench.workloads import WORKLOADS, workload
from clearl.config import to_yaml
from clearl.records.reader import scan_rows
from clearl.records.schema import METRICS_FILE

_GUESSED_FRAMES_PER_S = {"minatar": 25_000.0, "minatar-lstm": 12_000.0, "atari": 7_000.0, "atari-lstm": 6_000.0}
_START_LIMIT_S = 120.0
# Versions differ in how often they evaluate; evaluations of one step leave the speed of training.
_TRAINING_ONLY = {"eval_every_frames": 10**12, "eval_episodes": 1, "eval_max_steps": 1, "record_every_updates": 10}
_LIST_SETTINGS = (
    "import dataclasses, json; from clearl.config import RunConfig; "
    "print(json.dumps([field.name for field in dataclasses.fields(RunConfig)]))"
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="checkout of the older version")
    parser.add_argument("--after", type=Path, required=True, help="checkout of the newer version")
    parser.add_argument("--workload", default="minatar", choices=sorted(WORKLOADS))
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds of work for each side of a pair")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="for the newer version only")
    options = parser.parse_args()
    environments = [_environment(options.before), _environment(options.after)]
    common = common_settings(options.workload, options.seconds, environments)
    settings = [common, common + "".join(f"{name}: {value}\n" for name, _, value in _pairs(options.set))]
    ratios = []
    for index in range(options.pairs):
        order = (0, 1) if index % 2 == 0 else (1, 0)
        seconds, _ = raced([settings[side] for side in order], [environments[side] for side in order])
        before, after = (seconds[order.index(side)] for side in (0, 1))
        ratios.append(before / after)
        print(f"pair {index + 1}: after / before {ratios[-1]:.3f}", flush=True)
    print(f"{options.workload}: median {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    starts = [
        [first_update_s(text, environment) for text, environment in zip(settings, environments, strict=True)]
        for _ in range(options.pairs)
    ]
    before, after = (statistics.median(side) for side in zip(*starts, strict=True))
    print(f"start to first update: before {before:.2f} s, after {after:.2f} s")


def common_settings(name: str, seconds: float, environments: list[dict[str, str]]) -> str:
    """Write the settings of a workload that both versions know as YAML."""
    config = sized(workload(name, **_TRAINING_ONLY), seconds * _GUESSED_FRAMES_PER_S.get(name, 3_000.0))
    known = set.intersection(*(_settings_of(environment) for environment in environments))
    values = yaml.safe_load(to_yaml(config))
    return yaml.safe_dump({key: value for key, value in values.items() if key in known and key != "preset"})


def first_update_s(settings: str, environment: dict[str, str]) -> float:
    """Measure the seconds from the command to the row of the first update."""
    with tempfile.TemporaryDirectory(prefix="clearl-bench-") as directory:
        file, out = Path(directory) / "config.yaml", Path(directory) / "run"
        file.write_text(settings)
        command = [sys.executable, "-m", "clearl", "run", "--config", str(file), "--out", str(out), "--quiet"]
        started = time.monotonic()
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        try:
            while time.monotonic() - started < _START_LIMIT_S and process.poll() is None:
                metrics = out / METRICS_FILE
                if metrics.exists() and any(row["kind"] == "train" for row in scan_rows(metrics).rows):
                    return time.monotonic() - started
                time.sleep(0.01)
        finally:
            process.terminate()
            process.wait()
    raise SystemExit("no update took place; run the command by hand to see why")


def _pairs(texts: list[str]) -> list[tuple[str, str, str]]:
    return [text.partition("=") for text in texts]


def _settings_of(environment: dict[str, str]) -> set[str]:
    answer = subprocess.run([sys.executable, "-c", _LIST_SETTINGS], env=environment, capture_output=True, check=True)
    return set(json.loads(answer.stdout))


def _environment(checkout: Path) -> dict[str, str]:
    source = checkout.resolve() / "src"
    if not source.is_dir():
        raise SystemExit(f"{checkout} is not a checkout of clearl: it has no src")
    # Both sides start from compiled files, as an installed version does.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return inherited | {"PYTHONPATH": str(source)}


if __name__ == "__main__":
    main()
