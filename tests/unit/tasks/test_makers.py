"""Tasks as functions: named, imported by every process, or refused with the way out."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec, WrapperSpec

import clearl
from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.plugins import named_modules
from clearl.records.reader import read_rows
from clearl.records.schema import METRICS_FILE
from clearl.suites import make_suite
from clearl.tasks.gymnasium_vectors import GymnasiumVector
from clearl.tasks.makers import name_makers, use_makers
from clearl.tasks.single import list_parameters, make_env


class Pole(gymnasium.Env[Any, Any]):
    """A sound environment of this module."""

    observation_space = spaces.Box(0.0, 9.0, (1,), np.float32)
    action_space = spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, length: float = 1.0, render_mode: str | None = None) -> None:
        self.length, self.render_mode = length, render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), 1.0, False, False, {}

    def render(self) -> Any:
        return np.full((4, 4, 3), self.length, np.uint8)


def make_pole(**settings: Any) -> Pole:
    return Pole(**settings)


def varied(length: float) -> Any:
    """A closure that bears the name of the function that it calls."""

    @functools.wraps(make_pole)
    def make(**settings: Any) -> Pole:
        return make_pole(length=length, **settings)

    return make


def _spec(entry_point: Any, **settings: Any) -> EnvSpec:
    return EnvSpec("Pole-v0", entry_point, **settings)


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

    environments, problems = name_makers({"pole": gymnasium.spec("CartPole-v1")})
    assert problems == {} and environments[0].startswith("pole=spec:{")
    use_makers([*environments, "winter=seasons_of_parameters:make_winter"])
    assert make_env("pole").unwrapped.spec.id == "CartPole-v1"
    assert make_env("winter?length=3").unwrapped.length == 3
    assert "seasons_of_parameters" in named_modules({"environments": ["winter=seasons_of_parameters:make_winter"]})
    assert "gymnasium.envs.classic_control.cartpole" in named_modules({"environments": list(environments)})


@pytest.mark.parametrize("entry_point", [Pole, make_pole, f"{__name__}:Pole"], ids=["class", "function", "text"])
def test_a_spec_keeps_its_keywords_time_limit_and_wrappers(entry_point: Any) -> None:
    around = WrapperSpec("TimeAware", "gymnasium.wrappers:TimeAwareObservation", {"flatten": True})
    spec = _spec(entry_point, max_episode_steps=7, kwargs={"length": 3}, additional_wrappers=(around,))
    environments, problems = name_makers({"pole": spec})
    assert problems == {} and f"{__name__}:" in environments[0]
    use_makers(environments)
    env = make_env("pole")
    assert env.unwrapped.length == 3 and env.spec.max_episode_steps == 7 and env.observation_space.shape == (2,)
    env.reset(seed=0)
    ends = [env.step(0)[2:4] for _ in range(7)]
    assert ends == [(False, False)] * 6 + [(False, True)]
    if entry_point is not make_pole:
        assert make_env("pole?length=5").unwrapped.length == 5 and "constructor: length" in str(list_parameters("pole"))


def test_all_modules_that_a_spec_imports_are_asked_for() -> None:
    """Those of a run directory may come from a stranger."""
    own = WrapperSpec("Own", "own_wrappers:Own", {})
    around = WrapperSpec("TimeAware", "gymnasium.wrappers.transform_observation:TimeAware", {})
    spec = _spec("one:Pole", vector_entry_point="two:Poles", additional_wrappers=(own, around))
    environments, _ = name_makers({"pole": spec})
    assert named_modules({"environments": environments}) == ("one", "two", "own_wrappers")
    assert named_modules({"environments": ['a=spec:{"additional_wrappers": [3]}', "b=here:"]}) == ()


def test_a_spec_can_be_filmed() -> None:
    environments, _ = name_makers({"filmed": _spec(Pole, kwargs={"length": 9})})
    suite = make_suite("gym", ("filmed",), RunConfig(environments=environments))
    scene = suite.make_scene("filmed", seed=0)  # type: ignore[attr-defined]
    assert scene.picture(scene.envs.reset())[0, 0].tolist() == [9, 9, 9]
    scene.envs.close()


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (_spec(varied(2)), "make_pole is not at the top of"),
        (_spec(Pole, kwargs={"length": np.float32(2)}), "the spec Pole-v0 cannot be written as JSON"),
    ],
    ids=["closure", "keyword"],
)
def test_a_spec_that_workers_cannot_receive_is_made_in_this_process_only(spec: EnvSpec, problem: str) -> None:
    environments, problems = name_makers({"kept": spec})
    assert environments == ("kept=here:",) and problem in problems["kept"]
    use_makers(environments)
    assert make_env("kept").unwrapped.length == 2


def test_closures_that_bear_the_name_of_another_function_stay_distinct() -> None:
    environments, problems = name_makers({"short": varied(1), "long": varied(4), "plain": make_pole})
    assert environments == ("short=here:", "long=here:", f"plain={__name__}:make_pole")
    assert all("make_pole is not at the top of" in problems[name] for name in ("short", "long"))
    use_makers(environments)
    assert [make_env(name).unwrapped.length for name in ("short", "long", "plain")] == [1, 4, 1]


def test_a_function_that_workers_cannot_import_is_refused_with_the_way_out(tmp_path: Path) -> None:
    tasks = {"a": lambda: gymnasium.make("CartPole-v1")}
    with pytest.raises(ConfigError, match=r"cannot import it: define a function.*or train.*runtime='inline'"):
        clearl.run(tasks=tasks, out=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()
    assert clearl.run(tasks=tasks, out=tmp_path / "run", runtime="inline", **SMALL).status == "finished"


class Maker:
    """Makes environments when called."""

    def __call__(self) -> Pole:
        return Pole()


@pytest.mark.parametrize(
    "made", [lambda: Pole(), functools.partial(make_pole, length=2), Maker()], ids=["lambda", "partial", "instance"]
)
def test_what_has_no_name_to_import_gets_a_remedy_that_can_be_followed(made: Any) -> None:
    _, problems = name_makers({"a": made})
    assert "define a function with def in a file, for instance make_env in my_envs.py" in problems["a"]
    assert "my_envs.<lambda>" not in problems["a"] and "my_envs.partial" not in problems["a"]


def vector_of_poles(num_envs: int) -> Any:
    return gymnasium.make_vec("CartPole-v1", num_envs)


@pytest.mark.parametrize("runtime", ["inline", "local"])
def test_a_function_that_takes_num_envs_makes_vectors(tmp_path: Path, runtime: str) -> None:
    suite = make_suite("gym", ("many",), RunConfig(environments=(f"many={__name__}:vector_of_poles",)))
    envs = suite.make("many", num_envs=3, seed=0)
    assert isinstance(envs, GymnasiumVector) and envs.reset().shape == (3, 4)
    envs.close()
    result = clearl.run(tasks={"many": vector_of_poles}, out=tmp_path / "run", runtime=runtime, **SMALL)
    assert result.status == "finished" and {row["task"] for row in result.metrics if "task" in row} == {"many"}


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: None, "its function returned None; return a gymnasium.Env"),
        (lambda: "CartPole-v1", "its function returned 'CartPole-v1'; return a gymnasium.Env"),
        (lambda: vector_of_poles(2), "returned a vector of environments; give the function an argument num_envs"),
        (lambda num_envs: make_pole(), "takes num_envs, but returned .*; return a gymnasium.vector.VectorEnv"),
        (lambda num_envs: vector_of_poles(num_envs + 1), "1 environments were asked for, and 2 made"),
    ],
    ids=["nothing", "text", "vector", "single", "number"],
)
def test_a_function_that_returns_something_else_is_named(make: Any, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"task 'a': .*{problem}"):
        clearl.run(tasks={"a": make}, out=tmp_path / "run", runtime="inline", **SMALL)


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
