"""Environment frames per second of one peer on Atari's space_invaders, as its own documentation would have it run.

    python benchmarks/peers/measure.py PEER [--seconds 60] [--repeats 3] [--json FILE]

Runs in the peer's own virtual environment (see run.sh). All use the `nature` net, 84x84 grey frames, a stack of 4, an
action repeat of 4, T = 20 and B = 32 unrolls where the peer has such settings, and every core.
"""

# Each peer is installed in its own environment only.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CORES = len(os.sched_getaffinity(0))
STEPS, BATCH, REPEAT = 20, 32, 4
GAME = "ALE/SpaceInvaders-v5"
Measured = tuple[float, dict[str, Any]]
"""Frames per second, and the settings that are worth a line in the table."""


def clearl(seconds: float) -> Measured:
    """CLEAR 50-50 with `local`, evaluation and replay included."""
    from clearl.bench.endtoend import train
    from clearl.bench.workloads import workload

    config = workload("atari", torso="nature")
    return train(config, seconds, 10_000.0).frames_per_s, {"slots": config.slots, "runtime": "local"}


def stable_baselines3(algorithm: str) -> Callable[[float], Measured]:
    """A2C or PPO with SubprocVecEnv; 32 environments, as its zoo takes 8 to 16 and more is to its favour here."""

    def measure(seconds: float) -> Measured:
        import stable_baselines3
        from stable_baselines3.common.callbacks import BaseCallback
        from stable_baselines3.common.env_util import make_atari_env
        from stable_baselines3.common.vec_env import SubprocVecEnv, VecFrameStack

        class Stop(BaseCallback):
            """Marks steps and times after a warm-up, and ends the training."""

            def _on_step(self) -> bool:
                now = time.monotonic()
                if not hasattr(self, "began"):
                    self.began = now
                if now - self.began < 0.2 * seconds:
                    self.mark = (now, self.num_timesteps)
                self.last = (now, self.num_timesteps)
                return now - self.began < seconds

        envs = VecFrameStack(make_atari_env(GAME, n_envs=BATCH, seed=0, vec_env_cls=SubprocVecEnv), 4)
        settings = {"A2C": {"n_steps": STEPS}, "PPO": {"n_steps": 128, "batch_size": 256, "n_epochs": 4}}[algorithm]
        stop = Stop()
        getattr(stable_baselines3, algorithm)("CnnPolicy", envs, device="cpu", **settings).learn(10**9, stop)
        envs.close()
        (first_s, first), (last_s, last) = stop.mark, stop.last
        return REPEAT * (last - first) / (last_s - first_s), {"envs": BATCH, "vec_env": "SubprocVecEnv", **settings}

    return measure


def rllib_impala(seconds: float) -> Measured:
    """IMPALA with one env runner fewer than cores, at least one, and the learner in the driver."""
    import ray
    from ray.rllib.algorithms.impala import IMPALAConfig
    from ray.rllib.connectors.env_to_module.frame_stacking import FrameStackingEnvToModule
    from ray.rllib.connectors.learner.frame_stacking import FrameStackingLearner
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.rllib.env.wrappers.atari_wrappers import wrap_atari_for_new_api_stack
    from ray.tune import register_env

    def make(config: dict[str, Any]) -> Any:
        import ale_py
        import gymnasium

        gymnasium.register_envs(ale_py)
        return wrap_atari_for_new_api_stack(gymnasium.make(GAME, frameskip=1), dim=84)

    register_env("bench", make)
    ray.init(num_cpus=CORES + 1, include_dashboard=False, log_to_driver=False)
    runners = max(1, CORES - 1)
    per_runner = max(1, BATCH // runners)
    config = (
        IMPALAConfig()
        .environment("bench")
        .env_runners(
            num_env_runners=runners, num_envs_per_env_runner=per_runner, rollout_fragment_length=STEPS,
            env_to_module_connector=lambda *_, **__: FrameStackingEnvToModule(num_frames=4),
        )
        .learners(num_learners=0)
        .training(
            train_batch_size_per_learner=STEPS * BATCH,
            learner_connector=lambda *_: FrameStackingLearner(num_frames=4),
        )
        .rl_module(
            model_config=DefaultModelConfig(
                conv_filters=[(32, 8, 4), (64, 4, 2), (64, 3, 1)], head_fcnet_hiddens=[512], vf_share_layers=True
            )
        )
    )  # fmt: skip
    algorithm = config.build_algo()
    marks: list[tuple[float, float]] = []
    began = time.monotonic()
    while time.monotonic() - began < seconds or len(marks) < 3:
        result = algorithm.train()
        trained = result["learners"]["__all_modules__"]["num_env_steps_trained_lifetime"]
        marks.append((time.monotonic(), float(trained)))
    algorithm.stop()
    ray.shutdown()
    (first_s, first), (last_s, last) = marks[len(marks) // 5], marks[-1]
    return REPEAT * (last - first) / (last_s - first_s), {"env_runners": runners, "envs_per_runner": per_runner}


def sample_factory(seconds: float) -> Measured:
    """APPO with V-trace on, one worker a core, its Atari example's encoder (convnet_atari is the nature net)."""
    from sample_factory.train import make_runner
    from sf_examples.atari.train_atari import parse_atari_args, register_atari_components

    register_atari_components()
    settings = {
        "env": "atari_spaceinvaders", "device": "cpu", "num_workers": CORES, "num_envs_per_worker": BATCH // CORES,
        "rollout": STEPS, "batch_size": STEPS * BATCH, "with_vtrace": True, "recurrence": 1, "use_rnn": False,
        "encoder_conv_architecture": "convnet_atari", "train_for_seconds": int(seconds),
        "restart_behavior": "overwrite", "experiment": "bench", "train_dir": "build/peers/sample-factory",
    }  # fmt: skip
    config = parse_atari_args([f"--{key}={value}" for key, value in settings.items()])
    config, runner = make_runner(config)
    runner.init()
    began = time.monotonic()
    runner.run()
    frames = sum(runner.env_steps.values())
    return frames / (time.monotonic() - began), settings


PEERS: dict[str, dict[str, Callable[[float], Measured]]] = {
    "clearl": {"clearl": clearl},
    "stable-baselines3": {"sb3-a2c": stable_baselines3("A2C"), "sb3-ppo": stable_baselines3("PPO")},
    "rllib": {"rllib-impala": rllib_impala},
    "sample-factory": {"sample-factory": sample_factory},
}


def main() -> None:
    """Measure one peer and write what it did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    rows = []
    for name, measure in PEERS[options.peer].items():
        row: dict[str, Any] = {"name": name, "frames_per_s": [], "settings": {}}
        for _ in range(options.repeats):
            rate, row["settings"] = measure(options.seconds)
            row["frames_per_s"].append(rate)
            print(f"{name}: {rate:,.0f} frames/s", flush=True)
        rows.append(row)
    options.json.write_text(json.dumps({"peer": options.peer, "cores": CORES, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
