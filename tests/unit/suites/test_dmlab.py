from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from clearl.config import RunConfig
from clearl.errors import MissingExtraError, UnknownNameError
from clearl.suites import make_suite
from clearl.suites.dmlab import LevelCache

STANDINS = Path(__file__).parents[2] / "support" / "standins"
TASK = "explore_object_locations_small"


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(STANDINS))
    import deepmind_lab  # pyright: ignore[reportMissingImports]  # the stand-in

    yield deepmind_lab
    sys.modules.pop("deepmind_lab")


def test_without_the_package_the_error_says_how_to_get_it() -> None:
    with pytest.raises(MissingExtraError, match="build its pip package with Bazel"):
        make_suite("dmlab", (), RunConfig())


def test_an_unknown_level_is_refused_before_the_package_is_missed() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'rooms_keys_doors_puzzle'"):
        make_suite("dmlab", ("rooms_keys_door_puzzle",), RunConfig())


def test_the_papers_three_levels_are_the_default_and_the_probe_is_known(lab) -> None:
    suite = make_suite("dmlab", (), RunConfig(protocol="probe", probe_task="natlab_varying_map_randomized"))
    assert suite.tasks == (
        "explore_object_locations_small",
        "rooms_collect_good_objects_train",
        "rooms_keys_doors_puzzle",
        "natlab_varying_map_randomized",
    )
    assert suite.spec.observation.frame_shape == (3, 72, 96)
    assert suite.spec.action.choices[0] == 9
    assert suite.spec.frames_per_step == 4


def test_lab_is_made_as_it_documents(lab) -> None:
    suite = make_suite("dmlab", (TASK,), RunConfig())
    suite.make(TASK, num_envs=1, seed=0)
    made = lab.made[-1]
    assert made.level == "contributed/dmlab30/" + TASK
    assert made.names == ["RGB_INTERLEAVED"]
    assert (made.settings["width"], made.settings["height"]) == ("96", "72")


def test_impalas_nine_actions_are_held_for_four_frames(lab) -> None:
    envs = make_suite("dmlab", (TASK,), RunConfig()).make(TASK, num_envs=9, seed=0)
    envs.reset()
    answer = envs.step(np.arange(9))
    sent = answer.frames[:, 0, 1, :7].astype(np.int8)
    assert sent.tolist() == [
        [0, 0, 0, 1, 0, 0, 0],
        [0, 0, 0, -1, 0, 0, 0],
        [0, 0, -1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0, 0],
        [-20, 0, 0, 0, 0, 0, 0],
        [20, 0, 0, 0, 0, 0, 0],
        [-20, 0, 0, 1, 0, 0, 0],
        [20, 0, 0, 1, 0, 0, 0],
        [0, 0, 0, 0, 1, 0, 0],
    ]
    assert answer.reward.tolist() == [4, -4, 0, 0, 0, 0, 4, 4, 0]


def test_the_end_of_a_level_terminates_without_asking_for_its_last_frame(lab) -> None:
    envs = make_suite("dmlab", (TASK,), RunConfig()).make(TASK, num_envs=1, seed=0)
    before = envs.reset()
    for _ in range(19):
        assert not envs.step(np.array([0])).terminated[0]
    answer = envs.step(np.array([0]))
    assert answer.terminated[0]
    assert answer.first[0]
    assert answer.reward[0] == 4
    assert not np.array_equal(answer.frames, before)


def test_compiled_levels_are_shared_through_the_cache(lab, tmp_path: Path) -> None:
    suite = make_suite("dmlab", (TASK,), RunConfig(level_cache=str(tmp_path / "levels")))
    compiled = []
    for _ in range(2):
        suite.make(TASK, num_envs=1, seed=7).reset()
        compiled.append(lab.made[-1].compiled)
    assert compiled == [1, 0]
    assert len(list((tmp_path / "levels").iterdir())) == 1


def test_a_key_of_the_cache_never_leaves_its_folder(tmp_path: Path) -> None:
    level = tmp_path / "level.pk3"
    level.write_bytes(b"one")
    cache = LevelCache(tmp_path / "levels")
    cache.write("../../evil", str(level))
    level.write_bytes(b"two")
    cache.write("../../evil", str(level))
    assert cache.fetch("../../evil", str(tmp_path / "copy.pk3"))
    assert (tmp_path / "copy.pk3").read_bytes() == b"one"
    assert not cache.fetch("other", str(tmp_path / "other.pk3"))
    assert {path.name for path in tmp_path.iterdir()} == {"level.pk3", "copy.pk3", "levels"}
