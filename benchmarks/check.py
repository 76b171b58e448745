"""`make bench-check`: measure every figure of the speed targets, and compare it with the least it must reach.

    python -m benchmarks.check [--only NAME,NAME] [--repeats 3] [--seconds 20] [--json FILE]

Ratios are taken within one run, the two sides by turns (of a second each where both are trainings of ours, see
benchmarks/turns.py); the median over the repeats counts, with the tolerance of the table below, which is what the
median still wanders on a machine that others use. The exit code is 1 if one fails. Of figures in FILE only those that
are measured now are replaced. Those against peers need benchmarks/peers/run.sh, which installs them at the first time.
Sample Factory is skipped, with the reason, where it does not run as it is shipped.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.peers.compare import TARGETS
from benchmarks.replay import ATARI, GAMES, play
from benchmarks.turns import seconds_for_the_same

from clearl.bench.endtoend import long_enough, train
from clearl.bench.measure import measure
from clearl.bench.stages import StageProcesses
from clearl.bench.workloads import workload
from clearl.config import RunConfig, to_yaml
from clearl.records.schema import METRICS_FILE
from clearl.replay.codec import Codec
from clearl.replay.framing import HEADER_NBYTES

_START_UP_LIMIT_S = 120.0
_SLOW = 2_000.0
_PEER_SECONDS = 60
_MAY_NOT_RUN = "sample-factory"
# The first and the last evaluation always take place: of one step of one episode, they cost nothing.
_NEVER = 10**12
_NO_EVALUATION = {"eval_every_frames": _NEVER, "eval_episodes": 1, "eval_max_steps": 1}
# One worker that does nothing but step an environment in Python: what that prints costs it more than any other.
_PLAIN = {
    "preset": None, "tasks": (), "imports": ("benchmarks.chatty",), "method": "baseline", "workers": 1, "slots": 32,
    "batch_unrolls": 32, **_NO_EVALUATION,
}  # fmt: skip
_SHAPES = {"preset": None, "tasks": (), "imports": ("benchmarks.shapes",), "torso": "mlp", **_NO_EVALUATION}


class NotMeasured(Exception):
    """The program that a figure is compared with does not run here."""


@dataclass(frozen=True)
class Options:
    """The number and the length of measurements."""

    repeats: int
    seconds: float


@dataclass(frozen=True)
class Guard:
    """A figure, its bound, and the share of the bound by which a median may miss it."""

    about: str
    bound: float
    tolerance: float
    measure: Callable[[Options], list[float]]
    at_least: bool = True

    def holds(self, value: float) -> bool:
        """Return whether the value keeps the bound, within the tolerance."""
        slack = self.tolerance * self.bound
        return value >= self.bound - slack if self.at_least else value <= self.bound + slack


def achieved_over_ideal(name: str) -> Callable[[Options], list[float]]:
    """Return the ratio that `clearl bench` measures."""

    def values(options: Options) -> list[float]:
        result = measure(name, repeats=options.repeats, seconds=options.seconds, say=_say)
        return result["achieved_over_ideal_spread"]["values"]

    return values


def rate_ratio(
    name: str, changes: Mapping[str, object], other_changes: Mapping[str, object]
) -> Callable[[Options], list[float]]:
    """Return the rate of training with some settings over that with others: see `benchmarks.turns`."""

    def values(options: Options) -> list[float]:
        config, other = workload(name, **changes), workload(name, **other_changes)
        guess, ratios = train(config, options.seconds, _SLOW).frames_per_s, []  # sizes the others
        for repeat in range(options.repeats + options.repeats % 2):  # each goes first equally often
            pair = [config, other] if repeat % 2 == 0 else [other, config]
            spent, frames = seconds_for_the_same(pair, run_s(config, options.seconds, guess), guess)
            guess = frames / statistics.mean(spent)
            ratios.append(spent[1] / spent[0] if repeat % 2 == 0 else spent[0] / spent[1])
        return ratios

    return values


def run_s(config: RunConfig, seconds: float, guess_frames_per_s: float) -> float:
    """Return `seconds`, or more where evaluation needs them for its share; runs without evaluation do not."""
    return seconds if config.eval_every_frames == _NEVER else long_enough(config, seconds, guess_frames_per_s)


def rate_over_peer(name: str) -> Callable[[Options], list[float]]:
    """Return clearl's rate over another program's, measured in turns as often as asked for."""

    def values(options: Options) -> list[float]:
        script = Path(__file__).parent / "peers" / "run.sh"
        with tempfile.TemporaryDirectory(prefix="clearl-bench-") as directory:
            result = Path(directory) / "peers.json"
            command = ["bash", script, "--only", name, "--rounds", options.repeats, "--seconds", _PEER_SECONDS]
            subprocess.run([*map(str, command), "--json", str(result)], check=True, stdout=subprocess.DEVNULL)
            (peer,) = [row for row in json.loads(result.read_text())["peers"] if row["name"] == name]
        if "error" in peer:
            raise NotMeasured(peer["error"]) if name == _MAY_NOT_RUN else SystemExit(f"{name}: {peer['error']}")
        return peer["ratios"]

    return values


def share_of_peak(name: str, **changes: object) -> Callable[[Options], list[float]]:
    """Return the learner's operations over those of matrix products, each per second of a core."""

    def values(options: Options) -> list[float]:
        config = workload(name, **changes)
        shares = []
        with StageProcesses("learner", config) as learner, StageProcesses("matmul", config) as peak:
            learner.wait_until_ready()
            peak.wait_until_ready()
            for _ in range(options.repeats):
                most = peak.measure(options.seconds / 10).frames_per_cpu_s
                done = learner.measure(options.seconds / 4).frames_per_cpu_s * learner.flops_per_frame
                shares.append(done / most)
        return shares

    return values


def bytes_per_frame(options: Options) -> list[float]:
    """Return the bytes of replay for each step that can be trained on, logits included; mean over the six games."""
    codec, means = Codec(ATARI), []
    for game in GAMES:
        sizes = [len(codec.encode(row)) + HEADER_NBYTES for row in play(game, 60)]
        means.append(statistics.mean(sizes) / ATARI.unroll_steps)
    return [statistics.mean(means)]


def start_up(name: str) -> Callable[[Options], list[float]]:
    """Measure the seconds from the start of `clearl run` to its first update; the first run only warms the caches."""
    return lambda options: [
        _first_update_s(workload(name, record_every_updates=1)) for _ in range(options.repeats + 1)
    ][1:]


def help_time(options: Options) -> list[float]:
    """Measure the seconds of `clearl --help`."""
    return [_seconds([sys.executable, "-m", "clearl", "--help"]) for _ in range(options.repeats + 1)][1:]


GUARDS: dict[str, Guard] = {
    "atari": Guard("achieved / ideal, atari", 0.80, 0.05, achieved_over_ideal("atari")),
    "atari-lstm": Guard("achieved / ideal, atari-lstm", 0.80, 0.05, achieved_over_ideal("atari-lstm")),
    "minatar": Guard("achieved / ideal, minatar", 0.70, 0.05, achieved_over_ideal("minatar")),
    "control": Guard("achieved / ideal, control", 0.80, 0.05, achieved_over_ideal("control")),
    "mujoco": Guard("achieved / ideal, mujoco", 0.70, 0.05, achieved_over_ideal("mujoco")),
    "dict": Guard(
        "Dict observation / the same numbers in one Box", 0.90, 0.03,
        rate_ratio("minatar", {**_SHAPES, "suite": "gym:Parts-v0"}, {**_SHAPES, "suite": "gym:Whole-v0"}),
    ),
    "dict-robot": Guard(
        "Dict observation / the same numbers in one Box, HalfCheetah", 0.90, 0.03,
        rate_ratio("minatar", {**_SHAPES, "suite": "gym:RobotParts-v0"}, {**_SHAPES, "suite": "gym:RobotWhole-v0"}),
    ),
    # An update with so many more unrolls must not cost more than they do.
    "both": Guard(
        "`pairs: both` / `pairs: either`, replay_ratio 1, minatar", 1 / 2, 0.05,
        rate_ratio("minatar", {"pairs": "both", **_NO_EVALUATION}, {"pairs": "either", **_NO_EVALUATION}),
    ),
    "both-half": Guard(
        "`pairs: both` / `pairs: either`, replay_ratio 0.5, minatar", 1 / 1.5, 0.05,
        rate_ratio(
            "minatar", {"pairs": "both", "replay_ratio": 0.5, **_NO_EVALUATION}, {"pairs": "either", **_NO_EVALUATION}
        ),
    ),
    "replay-atari": Guard(
        "CLEAR's rate / baseline's, atari", 0.95, 0.03, rate_ratio("atari", {}, {"method": "baseline"})
    ),
    "replay": Guard(
        "CLEAR's rate / baseline's, minatar", 0.95, 0.03, rate_ratio("minatar", {}, {"method": "baseline"})
    ),
    "disk": Guard(
        "replay on disk / in RAM, atari", 0.95, 0.03,
        rate_ratio("atari", {"replay_store": "disk"}, {"replay_store": "ram"}),
    ),
    "output": Guard(
        "environment that prints 300 B a step / silent", 0.90, 0.03,
        rate_ratio("minatar", {**_PLAIN, "suite": "gym:Chatty-v0"}, {**_PLAIN, "suite": "gym:Silent-v0"}),
    ),
    "evaluation": Guard("with evaluation / without", 0.90, 0.03, rate_ratio("minatar", {}, _NO_EVALUATION)),
    "peak-shallow": Guard("learner, share of matmul peak, shallow net", 0.40, 0.10, share_of_peak("atari")),
    "peak-minatar": Guard(
        "learner, share of matmul peak, MinAtar net at B = 128", 0.30, 0.10,
        share_of_peak("minatar", slots=128, batch_unrolls=128),
    ),
    **{name: Guard(f"frames/s over {name}'s", least, 0.05, rate_over_peer(name)) for name, least in TARGETS.items()},
    "bytes": Guard("bytes of replay per Atari frame", 350.0, 0.0, bytes_per_frame, at_least=False),
    "start-minatar": Guard("start to first update, minatar, s", 8.0, 0.10, start_up("minatar"), at_least=False),
    "start-atari": Guard("start to first update, atari, s", 8.0, 0.10, start_up("atari"), at_least=False),
    "help": Guard("clearl --help, s", 0.5, 0.10, help_time, at_least=False),
}  # fmt: skip


def main() -> None:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(GUARDS), help=f"some of: {', '.join(GUARDS)}")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    unknown = [name for name in arguments.only.split(",") if name not in GUARDS]
    if unknown:
        parser.error(f"no such figure: {', '.join(unknown)}")
    options, rows = Options(arguments.repeats, arguments.seconds), []
    for name in arguments.only.split(","):
        try:
            rows.append(judge(name, GUARDS[name], options))
        except NotMeasured as reason:
            print(f"skipped {GUARDS[name].about}: {reason}", flush=True)
            continue
        print(as_line(rows[-1]), flush=True)
    if arguments.json:
        write(arguments.json, rows)
    failed = [row["name"] for row in rows if not row["holds"]]
    sys.exit(f"missed: {', '.join(failed)}" if failed else 0)


def write(path: Path, rows: list[dict]) -> None:
    """Add these figures to the file; they replace older ones of the same names."""
    before = json.loads(path.read_text())["figures"] if path.exists() else []
    found = {row["name"]: row for row in [*before, *rows]}
    path.parent.mkdir(parents=True, exist_ok=True)
    figures = [found[name] for name in GUARDS if name in found]
    path.write_text(json.dumps({"v": 2, "figures": figures}, indent=2) + "\n")


def judge(name: str, guard: Guard, options: Options) -> dict:
    """Measure one figure; return it as JSON types."""
    values = guard.measure(options)
    value = statistics.median(values)
    facts = {"name": name, "about": guard.about, "bound": guard.bound, "at_least": guard.at_least, **asdict(options)}
    return {**facts, "tolerance": guard.tolerance, "value": value, "values": values, "holds": guard.holds(value)}


def as_line(row: dict) -> str:
    """Format a figure as one line of the table."""
    sign, verdict = ">=" if row["at_least"] else "<=", "ok" if row["holds"] else "MISSED"
    spread = f"({min(row['values']):.3g} .. {max(row['values']):.3g})"
    return f"{verdict:<7}{row['about']:<56}{row['value']:>8.3g} {sign} {row['bound']:<6g} {spread}"


def _first_update_s(config: RunConfig) -> float:
    with tempfile.TemporaryDirectory(prefix="clearl-bench-") as directory:
        file, out = Path(directory) / "config.yaml", Path(directory) / "run"
        file.write_text(to_yaml(config))
        command = [sys.executable, "-m", "clearl", "run", "--config", str(file), "--out", str(out), "--quiet"]
        started = time.monotonic()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            while b'"kind":"train"' not in _read(out / METRICS_FILE):
                spent = time.monotonic() - started
                if child.poll() is not None or spent > _START_UP_LIMIT_S:
                    sys.exit(f"the run has not learnt after {spent:.0f} s")
                time.sleep(0.01)
            return time.monotonic() - started
        finally:
            child.terminate()
            child.wait()


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _seconds(command: list[str]) -> float:
    started = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - started


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
