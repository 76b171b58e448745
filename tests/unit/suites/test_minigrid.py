from __future__ import annotations

import numpy as np
import pytest

from clearl.config import RunConfig
from clearl.errors import UnknownNameError
from clearl.suites import make_suite
from clearl.suites.minigrid import MiniGridEnvs, MiniGridSuite

pytest.importorskip("envpool")
TURN_RIGHT, FORWARD, PICK_UP = 1, 2, 3
EMPTY = "MiniGrid-Empty-5x5-v0"
TO_THE_GOAL = [FORWARD, FORWARD, TURN_RIGHT, FORWARD, FORWARD]


def envs(task: str = EMPTY, *, num_envs: int = 2, seed: int = 0) -> MiniGridEnvs:
    return MiniGridEnvs(task, num_envs=num_envs, seed=seed)


def test_every_value_of_the_view_has_its_own_plane() -> None:
    frames = envs().reset()
    assert frames.shape == (2, 24, 7, 7)
    assert frames.dtype == bool
    assert (frames[:, :11].sum(1) == 1).all()  # one object in every cell
    assert (frames[:, 11:17].sum(1) == 1).all()  # one colour
    assert (frames[:, 17:20].sum(1) == 1).all()  # one state
    assert frames[:, 20].all()  # facing east
    assert not frames[:, 21:].any()
    goals = frames[0, 8]
    assert goals.sum() == 1  # the goal of the 5x5 room is in view


def test_the_goal_is_reached_and_the_next_action_ignored() -> None:
    pool = envs()
    pool.reset()
    answers = [pool.step(np.full(2, action)) for action in [*TO_THE_GOAL, FORWARD, FORWARD]]
    assert [bool(a.terminated[0]) for a in answers] == [False] * 4 + [True, False, False]
    assert answers[4].reward[0] == pytest.approx(1 - 0.9 * 5 / 100)
    assert not answers[4].first.any()
    assert not answers[5].valid.any()
    assert answers[5].first.all()
    assert answers[6].valid.all()


def test_a_reset_right_after_the_end_lets_the_next_action_count() -> None:
    pool = envs()
    pool.reset()
    for action in TO_THE_GOAL:
        pool.step(np.full(2, action))
    start = pool.reset()
    answer = pool.step(np.full(2, FORWARD))
    assert answer.valid.all()
    assert not np.array_equal(answer.frames, start)


def test_the_time_limit_truncates() -> None:
    pool = envs()
    pool.reset()
    answers = [pool.step(np.zeros(2, np.int64)) for _ in range(101)]
    assert [step for step, a in enumerate(answers) if a.truncated.any()] == [99]
    assert not any(a.terminated.any() for a in answers)
    assert not answers[100].valid.any()


def test_a_goal_in_the_last_step_is_no_time_out() -> None:
    pool = envs()
    pool.reset()
    around, wait = [TURN_RIGHT] * 92, [PICK_UP] * 3
    answers = [pool.step(np.full(2, action)) for action in around + TO_THE_GOAL[:3] + wait + TO_THE_GOAL[3:]]
    assert len(answers) == 100
    assert answers[-1].reward[0] == pytest.approx(0.1)
    assert answers[-1].terminated.all()
    assert not any(answer.truncated.any() for answer in answers)


def test_neighbouring_seeds_share_no_environment() -> None:
    task = "MiniGrid-SimpleCrossingS9N1-v0"
    runs = {seed: [envs(task, num_envs=8, seed=seed).reset()[i].tobytes() for i in range(8)] for seed in (1, 2, 3)}
    assert runs[1] != runs[2]
    assert runs[1][1:] != runs[2][:-1]
    assert envs(task, num_envs=8, seed=1).reset()[3].tobytes() == runs[1][3]


def test_dynamic_obstacles_know_three_actions() -> None:
    suite = make_suite("minigrid", ("MiniGrid-Dynamic-Obstacles-5x5-v0", EMPTY), RunConfig())
    assert suite.mask("MiniGrid-Dynamic-Obstacles-5x5-v0").tolist() == [True] * 3 + [False] * 4
    assert suite.mask(EMPTY).all()


def test_every_known_task_is_one_of_envpools() -> None:
    import envpool

    assert set(MiniGridSuite.known_tasks) <= set(envpool.list_all_envs())
    for task in MiniGridSuite.known_tasks:
        space = envpool.make_spec(task).action_space
        count = int(MiniGridSuite((task,), RunConfig()).mask(task).sum())
        assert space.n == count, task


def test_tasks_told_in_words_are_refused() -> None:
    with pytest.raises(UnknownNameError):
        make_suite("minigrid", ("MiniGrid-GoToDoor-5x5-v0",), RunConfig())


def test_the_picture_shows_the_goal_in_green() -> None:
    suite = make_suite("minigrid", (EMPTY,), RunConfig())
    frame = suite.make(EMPTY, num_envs=1, seed=0).reset()[0]
    picture = suite.render(EMPTY, frame)
    assert picture.shape == (112, 112, 3)
    x, y = np.argwhere(frame[8])[0]
    assert picture[16 * y + 8, 16 * x + 8].tolist() == [0, 255, 0]


def test_a_film_shows_the_whole_grid_from_above() -> None:
    suite = make_suite("minigrid", (EMPTY,), RunConfig())
    assert isinstance(suite, MiniGridSuite)
    scene = suite.make_scene(EMPTY, seed=0)
    start = scene.picture(scene.envs.reset()[0])
    turned = scene.picture(scene.envs.step(np.array([0])).frames[0])
    scene.envs.close()
    assert start.shape == turned.shape == (160, 160, 3)  # 5 x 5 cells, walls included
    assert (start == (0, 255, 0)).all(-1).sum() > 500, "the goal"
    assert not np.array_equal(start, turned)
