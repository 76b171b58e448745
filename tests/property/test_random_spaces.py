"""Any nested observation and action space trains, resumes bit for bit, is exported and acts."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import space_suite
import torch
from gymnasium import spaces
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from clearl.artifacts import export_agent, load_agent
from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.experiment import run
from clearl.records.schema import Row
from clearl.storage.checkpoints import CheckpointStore

SMALL: dict[str, Any] = {
    "suite": "spaces", "tasks": ("a", "b"), "imports": ("space_suite",), "runtime": "inline", "slots": 2,
    "batch_unrolls": 2, "unroll_steps": 5, "frames_per_visit": 20, "cycles": 1, "eval_every_frames": 20,
    "eval_episodes": 1, "eval_max_steps": 3, "checkpoint_every_frames": 10, "buffer_frames": 100, "lstm_size": 4,
    "record_every_updates": 1, "replay_store": "disk", "fisher_batches": 1, "learner_threads": 1,
}  # fmt: skip


EXAMPLES, NIGHTLY_EXAMPLES = 12, 300


def boxes(dtypes: list[Any]) -> st.SearchStrategy[spaces.Box]:
    shapes = st.lists(st.integers(1, 4), min_size=0, max_size=3).map(tuple)
    return st.builds(lambda shape, dtype: spaces.Box(0, 5, shape, dtype), shapes, st.sampled_from(dtypes))


WHOLE = st.one_of(
    st.builds(spaces.Discrete, st.integers(1, 6), start=st.integers(-2, 2)),
    st.builds(spaces.MultiDiscrete, st.lists(st.integers(1, 4), min_size=1, max_size=3)),
    st.builds(spaces.MultiBinary, st.integers(1, 4)),
)
ENDS = [(0.0, 0.0), (-np.inf, np.inf), (0.0, np.inf), (-np.inf, -1.0), (-1e9, 1e9)]
REAL = st.one_of(
    boxes([np.float32, np.float64]),
    st.builds(
        lambda ends, dtype: spaces.Box(*np.array(ends, dtype).T, dtype=dtype),
        st.lists(st.sampled_from(ENDS), min_size=1, max_size=3), st.sampled_from([np.float32, np.float64]),
    ),
)  # fmt: skip
PARTS = st.one_of(WHOLE, boxes([np.float32, np.uint8, np.float64]))


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def wrap(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        tuples = st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple)
        return st.one_of(tuples, st.dictionaries(st.sampled_from(["x", "y", "0"]), inner, min_size=1).map(spaces.Dict))

    return st.recursive(leaves, wrap, max_leaves=4)


REFUSALS = ("images and vectors cannot share one network", "actions, b ")
"""Parts of the errors for tasks that cannot be joined, by their observations or kinds of actions."""


class Stop(Exception):
    """The run is to end here."""


def stop_after(updates: int):
    def listen(row: Row) -> None:
        if row["kind"] == "train" and row["updates"] >= updates:
            raise Stop

    return listen


def parameters(out: Path) -> dict[str, torch.Tensor]:
    saved = CheckpointStore(out / "checkpoints").newest()
    assert saved is not None
    return saved.tree["learner"]["tensors"]


def check(config: RunConfig, root: Path) -> None:
    """Train, interrupt and resume, export, act."""
    run(config, root / "whole", console=False)
    with pytest.raises(Stop):
        run(config, root / "halves", console=False, listeners=[stop_after(2)])
    run(config, root / "halves", console=False)
    whole, halves = parameters(root / "whole"), parameters(root / "halves")
    assert whole.keys() == halves.keys() and all(torch.equal(whole[name], halves[name]) for name in whole)
    export_agent(root / "whole", root / "agent", trust=True)
    agent = load_agent(root / "agent")
    for task, (observation, action) in space_suite.SPACES.items():
        agent.reset()
        assert action.contains(agent.act(observation.sample(), task=task))


@pytest.mark.parametrize(
    "examples",
    [pytest.param(EXAMPLES, id="some"), pytest.param(NIGHTLY_EXAMPLES, id="many", marks=pytest.mark.nightly)],
)
def test_any_space_trains_resumes_exports_and_acts_or_is_refused_by_name(examples: int) -> None:
    settings(
        max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True,
        phases=[Phase.generate],
    )(check_spaces)()  # fmt: skip


@given(
    observation=nested(PARTS), other=nested(PARTS), action=nested(st.one_of(WHOLE, REAL)),
    second=st.none() | nested(st.one_of(WHOLE, REAL)),
    method=st.sampled_from(["clear", "ewc+clear", "progress-compress"]), lstm=st.booleans(), stack=st.integers(1, 2),
    masked=st.booleans(), normalise=st.booleans(), std=st.sampled_from(["network", "free"]),
)  # fmt: skip
def check_spaces(
    observation: Any,
    other: Any,
    action: Any,
    second: Any,
    method: str,
    lstm: bool,
    stack: int,
    masked: bool,
    normalise: bool,
    std: str,
) -> None:
    space_suite.SPACES.clear()
    space_suite.SPACES.update(a=(observation, action), b=(other, action if second is None else second))
    space_suite.MASKED[0] = masked
    config = RunConfig(
        **SMALL,
        method=method,
        lstm=lstm,
        frame_stack=stack,
        normalise_observations=normalise,
        scale_returns=normalise,
        action_std=std,
    )
    with tempfile.TemporaryDirectory() as root:
        try:
            check(config, Path(root))
        except ConfigError as error:
            assert any(reason in str(error) for reason in REFUSALS), error
