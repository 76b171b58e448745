"""Measure the environment frames per second of one program, run as its own documentation says.

On Atari's space_invaders or, with a name that ends in -cheetah, on HalfCheetah:

    python benchmarks/peers/measure.py NAME --into FILE.jsonl [--seconds 60]

Runs in the program's own virtual environment (see run.sh) and appends one line to the file: what it did, or why it did
not run. All use the `nature` net, 84x84 grey frames, a stack of 4, an action repeat of 4, no sticky actions, T = 20 and
B = 32 unrolls where the program has such settings, and every core. On HalfCheetah all use two layers of 128 units,
shared by policy and value, normalised observations and 16 environments. Settings were chosen, not searched for.
Start-up and the first fifth of the time are not counted.
"""

# Each program is installed in its own environment only.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

CORES = len(os.sched_getaffinity(0))
STEPS, BATCH, REPEAT = 20, 32, 4
ROBOTS, UNITS = 16, 128
GAME = "ALE/SpaceInvaders-v5"
_WARM_SHARE = 0.2
_LEAST_MARKS = 3
_BY_FORK = {"start_method": "fork"}
"""Stable-Baselines3's own default imports all of it anew in each of the processes."""
Measured = tuple[float, dict[str, Any]]
"""Frames per second, and the settings that are worth a line in the table."""


class Marks:
    """Pairs of (time, frames) during training; the rate leaves out the first fifth of the time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.points: list[tuple[float, float]] = []

    def add(self, frames: float) -> bool:
        """Return whether training shall continue."""
        self.points.append((time.monotonic(), frames))
        return len(self.points) < _LEAST_MARKS or self.points[-1][0] - self.points[0][0] < self.seconds

    def rate(self) -> float:
        """Return the frames per second."""
        last_s, last = self.points[-1]
        warm = self.points[0][0] + _WARM_SHARE * (last_s - self.points[0][0])
        first_s, first = next(point for point in self.points if point[0] >= warm)
        if last <= first:
            raise RuntimeError("trained too slowly for a rate; measure for longer (--seconds)")
        return (last - first) / (last_s - first_s)


def make_game(**options: Any) -> Any:
    """Make the game with one frame a step and no sticky actions: the wrappers of each program do the rest."""
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    return gymnasium.make(GAME, frameskip=1, repeat_action_probability=0.0, **options)


def clearl(name: str, **changes: Any) -> Callable[[float], Measured]:
    """Return the measurement of CLEAR 50-50 on a workload with `local`, evaluation and replay included."""

    def measure(seconds: float) -> Measured:
        from clearl.bench.endtoend import train
        from clearl.bench.workloads import workload

        config = workload(name, **changes, record_every_updates=1)
        guess = train(config, min(5.0, seconds), 2_000.0).frames_per_s
        return train(config, seconds, guess).frames_per_s, {"slots": config.slots, "runtime": "local"}

    return measure


def games() -> Any:
    """Make a vector of 32 games, where Stable-Baselines3's zoo takes 8 to 16."""
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import SubprocVecEnv, VecFrameStack

    made = make_atari_env(make_game, BATCH, 0, vec_env_cls=SubprocVecEnv, vec_env_kwargs=_BY_FORK)
    return VecFrameStack(made, 4)


def robots() -> Any:
    """Make a vector of 16 robots whose observations are normalised."""
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import SubprocVecEnv, VecNormalize

    return VecNormalize(make_vec_env("HalfCheetah-v5", ROBOTS, vec_env_cls=SubprocVecEnv, vec_env_kwargs=_BY_FORK))


def two_layers() -> dict[str, Any]:
    """Return the settings of a network like clearl's `mlp`: `net_arch` would give the value two layers of its own."""
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
    from torch import nn

    class TwoLayers(BaseFeaturesExtractor):
        def __init__(self, observation_space: Any) -> None:
            super().__init__(observation_space, UNITS)
            first, second = nn.Linear(observation_space.shape[0], UNITS), nn.Linear(UNITS, UNITS)
            self.layers = nn.Sequential(first, nn.ReLU(), second, nn.ReLU())

        def forward(self, observation: Any) -> Any:
            return self.layers(observation)

    return {"features_extractor_class": TwoLayers, "net_arch": []}


def stable_baselines3(
    algorithm: str, make_envs: Callable[[], Any], repeat: int, policy: str, network: Callable[[], dict[str, Any]],
    settings: dict[str, Any],
) -> Callable[[float], Measured]:  # fmt: skip
    """Return the measurement of A2C or PPO with SubprocVecEnv; a step counts as `repeat` frames."""

    def measure(seconds: float) -> Measured:
        import stable_baselines3
        from stable_baselines3.common.callbacks import BaseCallback

        marks = Marks(seconds)

        class Stop(BaseCallback):
            """Marks every rollout, which an update follows, and ends the training."""

            def _on_rollout_start(self) -> None:
                self.on = marks.add(repeat * self.num_timesteps)

            def _on_step(self) -> bool:
                return self.on

        envs = make_envs()
        learner = getattr(stable_baselines3, algorithm)(policy, envs, device="cpu", policy_kwargs=network(), **settings)
        learner.learn(10**9, Stop())
        envs.close()
        return marks.rate(), {"envs": envs.num_envs, "vec_env": "SubprocVecEnv", **settings}

    return measure


def rllib_impala(seconds: float) -> Measured:
    """Measure IMPALA with an env runner a core and the learner in the driver."""
    import ray
    from ray.rllib.algorithms.impala import IMPALAConfig
    from ray.rllib.connectors.env_to_module.frame_stacking import FrameStackingEnvToModule
    from ray.rllib.connectors.learner.frame_stacking import FrameStackingLearner
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.rllib.env.wrappers.atari_wrappers import wrap_atari_for_new_api_stack
    from ray.tune import register_env

    register_env("bench", lambda config: wrap_atari_for_new_api_stack(make_game(), dim=84))
    ray.init("local", num_cpus=CORES + 1, include_dashboard=False, log_to_driver=False)
    runners, per_runner = CORES, max(1, BATCH // CORES)
    config = (
        IMPALAConfig()
        .environment("bench")
        .env_runners(
            num_env_runners=runners, num_envs_per_env_runner=per_runner, rollout_fragment_length=STEPS,
            env_to_module_connector=lambda *_, **__: FrameStackingEnvToModule(num_frames=4),
        )
        .learners(num_learners=0, learner_connector=lambda *_: FrameStackingLearner(num_frames=4))
        .training(train_batch_size_per_learner=STEPS * BATCH)
        .reporting(min_time_s_per_iteration=1)
        .rl_module(
            model_config=DefaultModelConfig(
                conv_filters=[(32, 8, 4), (64, 4, 2), (64, 3, 1)], head_fcnet_hiddens=[512], vf_share_layers=True
            )
        )
    )  # fmt: skip
    algorithm, marks, going_on = config.build_algo(), Marks(seconds), True
    while going_on:
        result = algorithm.train()
        trained = result.get("learners", {}).get("__all_modules__", {}).get("num_env_steps_trained_lifetime")
        if trained is not None:
            # It counts the step after each fragment as trained on, too: never more than the environments made.
            steps = min(float(trained), float(result["env_runners"]["num_env_steps_sampled_lifetime"]))
            going_on = marks.add(REPEAT * steps)
    algorithm.stop()
    ray.shutdown()
    return marks.rate(), {"env_runners": runners, "envs_per_runner": per_runner}


def sample_factory(seconds: float) -> Measured:
    """Measure APPO, each sample trained on once, one worker a core, its Atari example's encoder (the nature net).

    Without V-trace, as in that example: with it, release 2.1.1 ends at the first update (no 'advantages' to record).
    """
    from sample_factory.algo.runners.runner import AlgoObserver
    from sample_factory.train import make_runner
    from sf_examples.atari.train_atari import parse_atari_args, register_atari_components

    marks = Marks(seconds)

    class Watch(AlgoObserver):
        """Marks every training step, and ends the training."""

        def on_training_step(self, runner: Any, training_iteration_since_resume: int) -> None:
            if not marks.add(sum(runner.env_steps.values())):
                runner.cfg.train_for_env_steps = 0

    register_atari_components()
    settings = {
        "num_workers": CORES, "num_envs_per_worker": BATCH // CORES, "worker_num_splits": 2, "rollout": STEPS,
        "batch_size": STEPS * BATCH, "async_rl": True, "num_epochs": 1,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as directory:
        fixed = {
            "env": "atari_spaceinvaders", "device": "cpu", "recurrence": 1, "use_rnn": False,
            "num_batches_per_epoch": 1, "normalize_input": False, "normalize_returns": False,
            "encoder_conv_architecture": "convnet_atari", "train_for_env_steps": 10**12,
            "restart_behavior": "overwrite", "experiment": "bench", "train_dir": directory,
        }  # fmt: skip
        arguments = parse_atari_args([f"--{key}={value}" for key, value in (settings | fixed).items()])
        arguments, runner = make_runner(arguments)
        runner.register_observer(Watch())
        runner.init()
        runner.run()
    return marks.rate(), settings


_PPO = {"batch_size": 256, "n_epochs": 4}
_ATARI = (games, REPEAT, "CnnPolicy", dict)
_CHEETAH = (robots, 1, "MlpPolicy", two_layers)
PROGRAMS: dict[str, tuple[str, Callable[[float], Measured]]] = {
    "clearl": ("clearl", clearl("atari", torso="nature")),
    "sb3-a2c": ("stable-baselines3", stable_baselines3("A2C", *_ATARI, {"n_steps": STEPS})),
    "sb3-ppo": ("stable-baselines3", stable_baselines3("PPO", *_ATARI, {"n_steps": 32, **_PPO})),
    "clearl-cheetah": ("clearl", clearl("mujoco", layer_norm=False)),
    "sb3-a2c-cheetah": ("stable-baselines3", stable_baselines3("A2C", *_CHEETAH, {"n_steps": 32})),
    "sb3-ppo-cheetah": ("stable-baselines3", stable_baselines3("PPO", *_CHEETAH, {"n_steps": 128, **_PPO})),
    "rllib-impala": ("ray", rllib_impala),
    "sample-factory": ("sample-factory", sample_factory),
}
"""By name: the package whose version counts, and the function that measures it."""


def measured(name: str, seconds: float) -> dict[str, Any]:
    """Return one line of the file."""
    package, measure = PROGRAMS[name]
    row: dict[str, Any] = {"name": name, "cores": CORES, "seconds": seconds}
    try:
        row["version"] = metadata.version(package)
        row["frames_per_s"], row["settings"] = measure(seconds)
    except Exception as error:  # noqa: BLE001 - whatever it is, the table says so
        lines = (str(error).strip() or "-").splitlines()
        said = lines[-1] if "Traceback" in lines[0] else lines[0]
        row["error"] = f"does not run: {type(error).__name__}: {said}"
    return row


def main() -> None:
    """Measure one program and write what it did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=PROGRAMS)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--into", type=Path, required=True)
    options = parser.parse_args()
    row = measured(options.name, options.seconds)
    print(row["name"], row.get("error") or f"{row['frames_per_s']:,.0f} frames/s", flush=True)
    with options.into.open("a") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
