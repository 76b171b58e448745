"""All settings of a run, in one frozen dataclass. Default < preset < file < flag; every name carries its unit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

Range = tuple[float, float]


@dataclass(frozen=True)
class RunConfig:
    """One training run. The names are the flags of `clearl run` and the keys of a config file."""

    # What is trained, on what, in which order.
    method: str = "clear"
    suite: str = "minatar"
    tasks: tuple[str, ...] = ()
    protocol: str = "sequential"
    cycles: int = 1
    frames_per_visit: int | None = 500_000
    episodes_per_visit: int | None = None
    probe_task: str | None = None
    probe_position: int = 0
    seed: int = 0
    preset: str | None = None
    imports: tuple[str, ...] = ()

    # Who runs it.
    runtime: Literal["inline", "local", "ray"] = "local"
    workers: int | None = None
    slots: int = 32
    device: str = "cpu"
    autocast: bool = False
    learner_threads: int | None = None
    address: str | None = None
    worker_timeout_s: float = 60.0

    # The unroll and the batch.
    unroll_steps: int = 20
    batch_unrolls: int = 32

    # The network.
    torso: str = "minatar"
    lstm: bool = False
    lstm_size: int = 256

    # CLEAR, in the paper's words.
    discount: float = 0.99
    rho_bar: float = 1.0
    c_bar: float = 1.0
    policy_gradient_weight: float = 1.0
    value_weight: float = 0.5
    entropy_weight: float = 0.01
    policy_cloning_weight: float = 0.01
    value_cloning_weight: float = 0.005
    replay_fraction: float = 0.5
    reward_clip: Literal["unit", "soft_asymmetric", "none"] = "unit"

    # Replay.
    buffer_frames: int | None = None
    buffer_share: float = 0.5
    replay_store: Literal["auto", "ram", "disk"] = "auto"
    replay_waste_share: float = 0.5
    keep_replay: bool = True

    # EWC, online EWC, Progress & Compress.
    ewc_lambda: float = 500.0
    online_ewc_lambda: float = 75.0
    ewc_gamma: float = 0.99
    fisher_batches: int = 100
    compress_frames: int | None = None
    compress_on_top: bool = False
    compress_temperature: float = 1.0
    reset_active: bool = True

    # The optimiser.
    optimizer: Literal["adam", "rmsprop"] = "adam"
    learning_rate: float = 3e-3
    anneal: bool = False
    adam_eps: float = 1e-5
    rmsprop_eps: float = 0.01
    rmsprop_decay: float = 0.99
    rmsprop_momentum: float = 0.0
    grad_norm_clip: float | None = 40.0

    # Evaluation, records and checkpoints.
    eval_every_frames: int = 20_000
    eval_episodes: int = 16
    eval_max_steps: int = 10_000
    record_every_updates: int = 20
    checkpoint_every_frames: int | None = 500_000
    tensorboard: bool = False
    wandb: bool = False

    # Environments of the suites that know these settings.
    frame_stack: int | None = None
    grayscale: bool | None = None
    action_repeat: int | None = None
    sticky_action_probability: float = 0.0
    life_loss_terminates: bool = False
    noop_max: int = 30
    level_cache: str | None = None
