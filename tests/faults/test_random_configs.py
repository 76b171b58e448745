from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import seed as fix_seed
from hypothesis import settings as examples
from hypothesis import strategies as st

from clearl.config import Setting, resolve, settings
from clearl.errors import ConfigError, MissingExtraError
from clearl.experiment import run
from clearl.learning.learner import Learner, UpdateStats
from clearl.methods import CORRECTIONS, method_spellings
from clearl.runtimes.host import _try_out
from clearl.types import Batch, Visit

UPDATES = 2
LIMIT_S = 2.0
# Tiny sizes: what is tried is whether settings go together, not how much a machine can hold.
BASE: dict[str, Any] = {
    "runtime": "inline", "slots": 2, "batch_unrolls": 2, "unroll_steps": 3, "frames_per_visit": 40, "eval_episodes": 1,
    "eval_max_steps": 2, "fisher_batches": 2, "learner_threads": 1, "lstm_size": 4,
}  # fmt: skip
_TAKEN_BACK = {"frames_per_visit": "episodes_per_visit"}
SOUND: dict[str, list[Any]] = {
    "method": method_spellings(),
    "suite": ["minatar", "gym:CartPole-v1", "gym:CartPole-v1,Acrobot-v1", "gym:MountainCar-v0"],
    "tasks": [(), ("breakout",), "breakout,asterix@1", ("freeway", "seaquest", "space_invaders"), ("CartPole-v1",)],
    "protocol": ["sequential", "simultaneous", "separate", "probe"],
    "correction": list(CORRECTIONS),
    "schedule": [None],
    "environments": [()],
    "wrappers": [()],
    "mirrors": [()],
    "cycles": [1, 2, 7],
    "frames_per_visit": [1, 12, 40, 1000, 10**9, None],
    "episodes_per_visit": [1, 5, 10**9, None],
    "probe_task": [None, "breakout", "asterix"],
    "probe_position": [0, 1, 3],
    "preset": [None, "minatar", "minatar-schemes", "gym-classic"],
    "imports": [(), ("math",), ("json", "os.path")],
    "runtime": ["inline"],
    "workers": [None, 1, 2],
    "slots": [1, 2, 3, 5],
    "device": ["cpu"],
    "learner_threads": [None, 1],
    "address": [None],
    "unroll_steps": [1, 2, 5],
    "batch_unrolls": [1, 2, 3, 5],
    "torso": ["mlp", "minatar", "nature", "impala_shallow", "impala_deep"],
    "lstm_size": [1, 4, 9],
    "eval_episodes": [1, 2],
    "eval_max_steps": [1, 3],
    "fisher_batches": [1, 3],
    "tensorboard": [False],
    "wandb": [False],
    "level_cache": [None, "cache"],
}
STRANGE: dict[str, list[Any]] = {
    "method": ["clera", "ewc+ewc"],
    "suite": ["minatra", "gym:", "gym:NoSuch-v0", "gym:Pendulum-v1", "gym:CartPole-v1,CartPole-v1"],
    "tasks": [("brakeout",), ("breakout", "breakout"), ("breakout@99",), ("",), ("../../etc",)],
    "protocol": ["sequentail"],
    "preset": ["minatr"],
    "imports": [("no.such.module",), ("not a name",), ("../climb",)],
    "runtime": ["inlin"],
    "device": ["cuda", "cuda:7", "mps", "tpu", "cpu:0"],
    "address": ["auto"],
    "torso": ["resnet"],
    "buffer_frames": [10**13],
    "slots": [4097],
}
NONSENSE = [None, "", "text", -1, 0, 1.5, math.nan, math.inf, -math.inf, 10**30, True, [], {}, [1], b"bytes", "1e3"]


def sound_values(setting: Setting) -> list[Any]:
    """Values that the field takes, its limits among them."""
    if setting.name in SOUND:
        return SOUND[setting.name]
    if setting.kind is bool:
        return [False, True]
    if get_args(setting.kind):
        return list(get_args(setting.kind))
    limits = setting.limits
    assert limits is not None, f"{setting.name} has no limits: give values for it in SOUND"
    between = [setting.kind(limits.low + (limits.high - limits.low) * share) for share in (1e-6, 1e-3, 0.5)]
    return [setting.kind(limits.low), setting.kind(limits.high), *between, *([None] if setting.optional else [])]


def any_value(setting: Setting) -> st.SearchStrategy[Any]:
    sound = st.sampled_from(sound_values(setting))
    beyond = [setting.limits.low - 1, setting.limits.high * 2] if setting.limits else []
    strange = st.sampled_from([*STRANGE.get(setting.name, []), *NONSENSE, *beyond])
    return st.integers(0, 9).flatmap(lambda dice: strange if dice == 0 else sound)


@st.composite
def flags(draw: st.DrawFn) -> dict[str, Any]:
    """Some settings, most of them sound, so that about as many configs run as are refused."""
    chosen = draw(st.lists(st.sampled_from(sorted(settings())), max_size=6, unique=True))
    return {name: draw(any_value(settings()[name])) for name in chosen}


class EnoughError(Exception):
    """Two updates have run."""


@pytest.fixture(autouse=True)
def stop_after_two_updates(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    phases = Learner.phases

    def counted(learner: Learner, batch: Batch, visit: Visit | None) -> Generator[str, None, UpdateStats]:
        stats = yield from phases(learner, batch, visit)
        if learner.updates == UPDATES:
            raise EnoughError
        return stats

    monkeypatch.setattr(Learner, "phases", counted)
    yield


def outcome(chosen: dict[str, Any]) -> str:
    """Return the outcome of a config: two updates, an earlier end by its own budget, or an error that names a field."""
    directory, begun = Path(tempfile.mkdtemp()), time.monotonic()
    try:
        base = {key: value for key, value in BASE.items() if not (key in _TAKEN_BACK and _TAKEN_BACK[key] in chosen)}
        config = resolve(flags={**base, **chosen})
        result = run(config, directory / "run", console=False)
    except EnoughError:
        return "two updates"
    except (ConfigError, MissingExtraError) as error:
        assert time.monotonic() - begun < LIMIT_S, f"{error} took {time.monotonic() - begun:.1f} s"
        assert any(name.removesuffix("s") in str(error) for name in settings()), f"no field is named: {error}"
        return "refused"
    finally:
        shutil.rmtree(directory)
    frames, enough = config.frames_per_visit, UPDATES * (config.batch_unrolls + config.slots) * config.unroll_steps
    short = frames is None or frames * config.cycles < enough * (config.action_repeat or 1)
    assert result.status == "finished" and short, f"{config} ended before {UPDATES} updates"
    return "over before two updates"


def explore(number: int, seed: int) -> Counter[str]:
    counted = Counter[str]()
    for suite in ("minatar", "gym:CartPole-v1"):
        outcome({"suite": suite})  # imports are made once, not within the limit of some config
    _try_out()

    @examples(
        max_examples=number, deadline=None, database=None, derandomize=False, phases=[Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow], report_multiple_bugs=False,
    )  # fmt: skip
    @given(flags())
    def try_one(chosen: dict[str, Any]) -> None:
        counted[outcome(chosen)] += 1

    fix_seed(seed)(try_one)()
    return counted


def test_random_configs() -> None:
    counted = explore(150, seed=1)
    assert counted["two updates"] >= 40 and counted["refused"] >= 20


@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_ten_thousand_random_configs(record_property: Callable[[str, object], None]) -> None:
    counted = explore(10_000, seed=2)
    record_property("configs", ", ".join(f"{count} {name}" for name, count in sorted(counted.items())))
    assert counted["two updates"] >= 2500 and counted["refused"] >= 2500
