"""Tasks as functions: named, imported by every process, or refused with the way out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import clearl
from clearl.errors import ConfigError
from clearl.plugins import named_modules
from clearl.records.reader import read_rows
from clearl.records.schema import METRICS_FILE
from clearl.tasks.makers import name_makers, use_makers

SMALL: dict[str, Any] = {
    "torso": "mlp", "slots": 2, "batch_unrolls": 2, "unroll_steps": 5, "frames_per_visit": 40, "eval_every_frames": 40,
    "eval_episodes": 1, "eval_max_steps": 5, "buffer_frames": 40, "method": "clear", "workers": 1,
}  # fmt: skip

MODULE = """
import gymnasium

def make_winter(length=0.5):
    env = gymnasium.make("CartPole-v1")
    env.unwrapped.length = length
    return env

def make_summer():
    return gymnasium.make("Acrobot-v1")
"""


@pytest.mark.parametrize("runtime", ["inline", "local"])
def test_functions_of_a_module_are_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str) -> None:
    (tmp_path / f"seasons_{runtime}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    seasons = __import__(f"seasons_{runtime}")
    tasks = {"winter": seasons.make_winter, "summer": seasons.make_summer}
    result = clearl.run(tasks=tasks, out=tmp_path / "run", runtime=runtime, **SMALL)
    assert result.status == "finished"
    rows = result.metrics
    assert {"winter", "summer"} == {row["task"] for row in rows if row["kind"] == "eval"}
    text = (tmp_path / "run" / "config.yaml").read_text()
    assert f"winter=seasons_{runtime}:make_winter" in text


def test_a_spec_is_a_task_and_parameters_reach_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "seasons_of_parameters.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    from clearl.tasks.single import make_env

    environments, problems = name_makers({"pole": gymnasium.spec("CartPole-v1")})
    assert problems == {} and environments[0].startswith("pole=spec:{")
    use_makers([*environments, "winter=seasons_of_parameters:make_winter"])
    assert make_env("pole").unwrapped.spec.id == "CartPole-v1"
    assert make_env("winter?length=3").unwrapped.length == 3
    assert "seasons_of_parameters" in named_modules({"environments": ["winter=seasons_of_parameters:make_winter"]})
    assert "gymnasium.envs.classic_control.cartpole" in named_modules({"environments": list(environments)})


def test_a_function_that_workers_cannot_import_is_refused_with_the_way_out(tmp_path: Path) -> None:
    tasks = {"a": lambda: gymnasium.make("CartPole-v1")}
    with pytest.raises(ConfigError, match=r"cannot import it: put it into a file.*or train.*runtime='inline'"):
        clearl.run(tasks=tasks, out=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()
    assert clearl.run(tasks=tasks, out=tmp_path / "run", runtime="inline", **SMALL).status == "finished"


def test_a_script_without_a_main_guard_says_at_once_what_to_do(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"{MODULE}\nimport clearl\nclearl.run(tasks={{'w': make_winter}}, out='run', **{SMALL!r})\n")
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "make_winter is defined in the program that runs" in done.stderr
    assert "my_envs.make_winter" in done.stderr and not (tmp_path / "run").exists()


def test_a_script_without_a_main_guard_trains_on_functions_of_a_module(tmp_path: Path) -> None:
    (tmp_path / "unguarded_seasons.py").write_text(MODULE)
    script = tmp_path / "train.py"
    script.write_text(
        "import clearl, gymnasium, unguarded_seasons\n"
        "tasks = {'w': unguarded_seasons.make_winter, 'spec': gymnasium.spec('Acrobot-v1')}\n"
        f"print(clearl.run(tasks=tasks, out='run', runtime='local', **{SMALL!r}).status)\n"
    )
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "finished", done.stderr  # run twice, as by a child, it would end otherwise
    evaluated = {row["task"] for row in read_rows(tmp_path / "run" / METRICS_FILE) if row["kind"] == "eval"}
    assert evaluated == {"w", "spec"}


def test_at_the_prompt_a_function_is_refused_with_the_way_out_which_works(tmp_path: Path) -> None:
    typed = f"""{MODULE}
import clearl
settings = {SMALL!r}
clearl.run(tasks={{"w": make_winter}}, out="run", **settings)
print(clearl.run(tasks={{"w": make_winter}}, out="run", runtime="inline", **settings).status)
"""
    done = subprocess.run(
        [sys.executable, "-i", "-q"], input=typed, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert "or train in this process with runtime='inline'" in done.stderr
    assert done.stdout.splitlines()[-1] == "finished", done.stderr


@pytest.mark.parametrize("tasks", [{"a=b": dict}, {"": dict}, {"a": 3}])
def test_what_makes_no_environment_is_refused(tasks: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tasks:"):
        clearl.run(tasks=tasks, out=tmp_path / "run", **SMALL)


def test_settings_that_name_what_is_not_there_are_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be imported"):
        use_makers(["a=no_such_module_at_all:make"])
    with pytest.raises(ConfigError, match="program that started the run"):
        use_makers(["never given=here:"])
    with pytest.raises(ConfigError, match="not a Gymnasium spec"):
        use_makers(["a=spec:{}"])
