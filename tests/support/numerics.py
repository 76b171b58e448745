"""Short inline runs whose parameters are pinned bit for bit: `python numerics.py` prints a digest for each.

Started as a process of its own, with the environment of `ENVIRONMENT`, so that every x86 machine computes with the
same instructions and the digests can be compared between machines.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
}

# Every setting that a preset or a default might change one day is named here: the digests pin code, not defaults.
SMALL: dict[str, Any] = {
    "suite": "minatar", "tasks": ("breakout", "breakout@1"), "protocol": "sequential", "cycles": 2, "seed": 3,
    "runtime": "inline", "slots": 6, "batch_unrolls": 4, "unroll_steps": 5, "frames_per_visit": 600, "torso": "minatar",
    "eval_every_frames": 1000, "eval_episodes": 2, "eval_max_steps": 30, "record_every_updates": 20,
    "buffer_share": 0.5, "replay_store": "ram", "replay_fraction": 0.5, "entropy_weight": 0.01, "discount": 0.99,
    "rho_bar": 1.0, "c_bar": 1.0, "policy_gradient_weight": 1.0, "value_weight": 0.5, "policy_cloning_weight": 0.01,
    "value_cloning_weight": 0.005, "reward_clip": "unit", "optimizer": "adam", "learning_rate": 0.003, "anneal": False,
    "adam_eps": 1e-5, "grad_norm_clip": 40.0, "sticky_action_probability": 0.0, "checkpoint_every_frames": None,
}  # fmt: skip

ELASTIC: dict[str, Any] = {"fisher_batches": 3, "ewc_lambda": 500.0, "online_ewc_lambda": 75.0, "ewc_gamma": 0.99}
COMPRESS: dict[str, Any] = {
    **ELASTIC, "compress_frames": 200, "compress_on_top": False, "compress_temperature": 1.0, "reset_active": True,
}  # fmt: skip

CASES: dict[str, dict[str, Any]] = {
    "baseline": {"method": "baseline"},
    "clear": {"method": "clear"},
    "clear-75-25": {"method": "clear", "replay_fraction": 0.25, "sticky_action_probability": 0.1},
    "clear-lstm": {"method": "clear", "lstm": True, "lstm_size": 32},
    "clear-rmsprop": {"method": "clear", "optimizer": "rmsprop", "anneal": True, "learning_rate": 0.002},
    "clear-games": {"method": "clear", "tasks": ("space_invaders", "asterix"), "protocol": "simultaneous"},
    "clear-vectors": {"method": "clear", "suite": "gym:CartPole-v1,Acrobot-v1", "tasks": (), "torso": "mlp"},
    "clear-stack": {"method": "clear", "frame_stack": 3, "suite": "minigrid", "tasks": ("MiniGrid-Empty-5x5-v0",)},
    "ewc": {"method": "ewc", **ELASTIC},
    "online-ewc": {"method": "online-ewc", **ELASTIC},
    "ewc+clear": {"method": "ewc+clear", **ELASTIC},
    "online-ewc+clear": {"method": "online-ewc+clear", **ELASTIC},
    "progress-compress": {"method": "progress-compress", **COMPRESS},
    "progress-compress+clear": {"method": "progress-compress+clear", "lstm": True, "lstm_size": 16, **COMPRESS},
}


def digest(out: Path) -> dict[str, Any]:
    """The network's parameters by their bytes alone, whatever their names; and what was evaluated on the way."""
    from clearl.storage.checkpoints import CheckpointStore

    saved = CheckpointStore(out / "checkpoints").newest()
    assert saved is not None
    learner = saved.tree["learner"]
    network = {name: tensor for name, tensor in learner["tensors"].items() if name.startswith("network/")}
    assert network, "the checkpoint has no tensors named network/..."
    hashes = sorted(hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for tensor in network.values())
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    evaluations = [row for row in rows if row["kind"] == "eval" and not row.get("switch")]
    scores = [[row["task"], row["frames"], row["return"]] for row in evaluations]
    return {
        "parameters": hashlib.sha256("".join(hashes).encode()).hexdigest()[:16],
        "updates": int(learner["state"]["counters"]["updates"]),
        "returns": hashlib.sha256(json.dumps(scores).encode()).hexdigest()[:16],
    }


def main(names: list[str]) -> None:
    from clearl.config import RunConfig
    from clearl.experiment import run

    digests = {}
    with tempfile.TemporaryDirectory() as root:
        for name in names or CASES:
            run(RunConfig(**{**SMALL, **CASES[name]}), Path(root) / name, console=False)
            digests[name] = digest(Path(root) / name)
    print(json.dumps(digests, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
