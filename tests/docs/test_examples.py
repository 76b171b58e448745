"""The programs in examples/: each runs with a small budget and prints what the rows of its runs say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest

import clearl
from clearl.cli.main import main
from clearl.records.table import MetricsTable

ROOT = Path(__file__).parents[2]
SMALL = {
    "frames_per_visit": 400, "slots": 4, "batch_unrolls": 4, "unroll_steps": 10, "eval_every_frames": 10_000,
    "eval_episodes": 2, "switch_episodes": 2, "eval_max_steps": 100, "runtime": "inline",
}  # fmt: skip


def run(example: str, here: Path, *, without: tuple[str, ...] = (), **settings: object) -> list[str]:
    """Return the lines that the `main` of an example prints."""
    code = (
        f"import sys\nsys.modules.update(dict.fromkeys({without!r}))\nimport {example}\n{example}.main(**{settings!r})"
    )
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "examples")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_an_environment_of_ones_own_trains_through_its_change(tmp_path: Path) -> None:
    *lines, last = run("own_environment", tmp_path, **SMALL)
    rows = MetricsTable.read(tmp_path / "runs" / "delivery").where(kind="eval", switch=True)
    assert lines == [
        f"after {row['frames']:>6,} frames: {row['return']:5.1f} of at most 100 in {row['task']}" for row in rows
    ]
    assert {row["task"] for row in rows} == {"summer", "winter"} and len(lines) == 2 * 4
    assert re.fullmatch(r"[01]\.\d\d from the door at the end of an episode in winter", last)


def test_the_next_task_compares_both_methods_before_and_after(tmp_path: Path) -> None:
    lines = run("next_task", tmp_path, **SMALL)
    assert [line.split()[0] for line in lines] == ["baseline", "clear"]
    for method, line in zip(("baseline", "clear"), lines, strict=True):
        first, then = (MetricsTable.read(tmp_path / "runs" / f"{part}-{method}") for part in ("first", "next"))
        assert {task for row in then.where(kind="segment") for task in row["tasks"]} == {"breakout", "breakout@1"}
        told = [float(number) for number in re.findall(r"-?\d+\.\d+", line)]
        scores = [
            [row["return"] for row in table.where(kind="eval", switch=True, task=task)][-1]
            for table, task in ((first, "breakout"), (then, "breakout"), (then, "breakout@1"))
        ]
        assert told == pytest.approx(scores, abs=0.005)


def test_an_exported_agent_plays_as_it_does_in_clearl_without_clearl(tmp_path: Path) -> None:
    cart = ["--preset", "gym-classic", "--tasks", "CartPole-v1", "--out", str(tmp_path / "runs/cart"), "--quiet"]
    small = [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    assert main(["run", *cart, *small]) == 0
    assert main(["export", str(tmp_path / "runs/cart"), "--format", "onnx", "--out", str(tmp_path / "agent")]) == 0
    agent, env, expected = clearl.load_agent(tmp_path / "runs/cart"), gymnasium.make("CartPole-v1"), []
    for episode in range(5):
        observation, _ = env.reset(seed=episode)
        score, done = 0.0, False
        while not done:
            observation, reward, terminated, truncated, _ = env.step(agent.act(observation, deterministic=True))
            score, done = score + float(reward), terminated or truncated
        expected.append(f"episode {episode}: return {score:.0f}")
    assert run("act_with_onnx", tmp_path, without=("clearl", "torch")) == expected
    sampled = run("act_with_onnx", tmp_path, without=("clearl", "torch"), sample=True)
    assert len(sampled) == 5 and sampled != expected


def test_the_readme_links_every_example() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    names = [path.name for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".ipynb")]
    assert len(names) >= 6
    assert [name for name in names if f"(examples/{name})" not in readme] == []
