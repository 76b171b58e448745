from __future__ import annotations

import numpy as np

from clearl.tasks.autoreset import NextStepAutoreset
from clearl.types import EnvStep


def answer(autoreset: NextStepAutoreset, *, terminated: list[bool], truncated: list[bool]) -> EnvStep:
    n = len(terminated)
    return autoreset.answer(np.zeros((n, 1)), np.zeros(n, np.float32), np.array(terminated), np.array(truncated))


def test_the_step_after_an_end_is_ignored_and_opens_an_episode() -> None:
    autoreset = NextStepAutoreset(3)
    ended = answer(autoreset, terminated=[True, False, False], truncated=[False, True, False])
    assert ended.valid.tolist() == [True, True, True]
    assert ended.first.tolist() == [False, False, False]
    after = answer(autoreset, terminated=[False] * 3, truncated=[False] * 3)
    assert after.valid.tolist() == [False, False, True]
    assert after.first.tolist() == [True, True, False]
    assert answer(autoreset, terminated=[False] * 3, truncated=[False] * 3).valid.all()


def test_a_death_at_the_time_limit_is_a_death() -> None:
    ended = answer(NextStepAutoreset(1), terminated=[True], truncated=[True])
    assert (ended.terminated.tolist(), ended.truncated.tolist()) == ([True], [False])


def test_after_a_reset_every_action_counts() -> None:
    autoreset = NextStepAutoreset(1)
    answer(autoreset, terminated=[True], truncated=[False])
    autoreset.reset()
    after = answer(autoreset, terminated=[False], truncated=[False])
    assert after.valid.all()
    assert not after.first.any()
