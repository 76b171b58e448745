"""The agent: actions as environments take them, singly and in batches, for a task or for the only one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from clearl.acting.agent import Agent, Origin
from clearl.acting.agent_tasks import AgentTask, tasks_from_json, tasks_to_json
from clearl.errors import ConfigError, CorruptFileError, UnknownNameError
from clearl.nets.network import build_network
from clearl.spaces import TaskSpec, discrete_spec
from clearl.tasks.actions import TaskActions, common_actions, describe_actions


def an_agent(*, lstm: bool = False, stack: int = 1, **action_spaces: spaces.Space) -> Agent:
    actions = {name: TaskActions(describe_actions(name, space)) for name, space in action_spaces.items()}
    action = common_actions(actions)
    spec = TaskSpec(discrete_spec((3,), "float32", 2, stack=stack).observation, action)
    network = build_network(spec, torso="mlp", lstm=lstm, lstm_size=4, seed=1)
    tasks = {name: AgentTask(each.mask(action), each) for name, each in actions.items()}
    through_json = tasks_from_json(tasks_to_json(tasks), spec, "a file")
    return Agent(network, spec, reward_clip="none", tasks=through_json)


def test_a_continuous_action_comes_as_the_environment_takes_it() -> None:
    agent = an_agent(swing=spaces.Box(-2, 2, (1,)))
    action = agent.act(np.zeros(3))
    assert action.shape == (1,) and action.dtype == np.float32 and -2 <= action[0] <= 2
    assert agent.act(np.zeros(3), deterministic=True) == agent.act(np.zeros(3), deterministic=True)


def test_it_is_shown_as_its_tasks_and_the_checkpoint_that_it_comes_from() -> None:
    agent = an_agent(few=spaces.Discrete(2), many=spaces.Discrete(6))
    assert repr(agent) == "Agent(few, many)"
    agent.origin = Origin(Path("runs/a/checkpoints/checkpoint-00000002"), 240_640)
    assert repr(agent) == "Agent(few, many; runs/a/checkpoints/checkpoint-00000002, after 240,640 frames)"
    assert repr(Agent(agent.network, agent.spec, reward_clip="none")) == "Agent(tasks unknown)"
    one = spaces.Discrete(2)
    assert repr(an_agent(a=one, b=one, c=one, d=one, e=one, f=one)) == "Agent(a, b, c, d, e, ...)"


def test_a_batch_gets_as_many_actions() -> None:
    agent = an_agent(swing=spaces.Box(-2, 2, (2,)), lstm=True, stack=2)
    for _ in range(3):
        actions = agent.act(np.random.default_rng(0).normal(size=(5, 3)), reward=np.ones(5), first=np.arange(5) == 0)
        assert actions.shape == (5, 2)
    with pytest.raises(ConfigError, match="4 observations follow 5; call reset"):
        agent.act(np.zeros((4, 3)))
    agent.reset()
    assert an_agent(choose=spaces.Discrete(3)).act(np.zeros((4, 3))).shape == (4,)


def test_a_batch_acts_as_its_members_do_alone() -> None:
    together, alone = (
        an_agent(lstm=True, turn=spaces.Box(-1, 1, (1,))),
        an_agent(lstm=True, turn=spaces.Box(-1, 1, (1,))),
    )
    observations = np.random.default_rng(0).normal(size=(4, 3, 3))
    many = [together.act(step, reward=0.5, deterministic=True) for step in observations]
    for place in range(3):
        alone.reset()
        for t in range(4):
            action = alone.act(observations[t, place], reward=0.5, deterministic=True)
            np.testing.assert_allclose(action, many[t][place], rtol=1e-4, atol=1e-6)


def test_the_task_says_which_actions_exist() -> None:
    agent = an_agent(few=spaces.Discrete(2, start=10), many=spaces.Discrete(6))
    assert {agent.act(np.zeros(3), task="few") for _ in range(60)} == {10, 11}
    assert len({agent.act(np.zeros(3), task="many") for _ in range(200)}) == 6
    assert {agent.act(np.zeros(3), task="many", mask=np.arange(6) == 3) for _ in range(9)} == {3}
    with pytest.raises(UnknownNameError, match="did you mean 'many'"):
        agent.act(np.zeros(3), task="mny")
    with pytest.raises(ConfigError, match=r"a mask of shape \(2,\) does not fit 6"):
        agent.act(np.zeros(3), mask=np.ones(2))


def test_a_mask_is_taken_as_the_environment_gives_it() -> None:
    agent = an_agent(few=spaces.Discrete(2, start=10), many=spaces.Discrete(6))
    assert {agent.act(np.zeros(3), task="few", mask=[False, True]) for _ in range(9)} == {11}
    agent.reset()
    masks = np.array([[1, 0], [0, 1], [1, 0]], np.int8)
    assert agent.act(np.zeros((3, 3)), task="few", mask=masks).tolist() == [10, 11, 10]
    hybrid = an_agent(both=spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (2,)))))
    for mask in ([0, 0, 1], (np.array([0, 0, 1]),), [[0, 0, 1]]):
        choice, reals = hybrid.act(np.zeros(3), mask=mask)
        assert choice == 2 and np.abs(reals).min() > 0
    buttons = an_agent(buttons=spaces.MultiDiscrete([2, 3]))
    assert buttons.act(np.zeros(3), mask=(np.array([0, 1]), np.array([1, 0, 0]))).tolist() == [1, 0]
    buttons.reset()
    each = (np.array([[0, 1], [1, 0]]), np.array([[1, 0, 0], [0, 0, 1]]))
    assert buttons.act(np.zeros((2, 3)), mask=each).tolist() == [[1, 0], [0, 2]]


@pytest.mark.parametrize(
    ("mask", "problem"),
    [
        (np.zeros(6), "allows no action at all"),
        (np.zeros(2), "allows no action at all"),
        ([1, 0, 0], "3 flags instead of 2"),
        (np.ones((3, 2)), "3 masks do not fit 1 observations"),
        ([[1, 0], [1]], "a mask is an array of flags"),
        (np.arange(6) > 1, "allows no action at all"),  # none that the task has
        ([0, -np.inf, 0, 0, 0, 0], "the mask holds other numbers than 0 and 1"),
        ([0, -np.inf], "action_mask holds other numbers than 0 and 1"),
    ],
    ids=str,
)
def test_a_mask_that_does_not_fit_is_refused(mask: Any, problem: str) -> None:
    agent = an_agent(few=spaces.Discrete(2), many=spaces.Discrete(6))
    with pytest.raises(ConfigError, match=problem):
        agent.act(np.zeros(3), task="few", mask=mask)


def test_where_tasks_differ_a_continuous_agent_asks_which() -> None:
    agent = an_agent(narrow=spaces.Box(-1, 1, (1,)), wide=spaces.Box(-9, 9, (2,)))
    with pytest.raises(ConfigError, match=r"say which task this is, with task=...: narrow, wide"):
        agent.act(np.zeros(3))
    assert agent.act(np.zeros(3), task="narrow").shape == (1,)


def test_nested_actions_come_back_nested() -> None:
    space = spaces.Dict({"arm": spaces.Box(-1, 1, (2,)), "grip": spaces.Discrete(2)})
    assert space.contains(an_agent(robot=space).act(np.zeros(3)))
    assert all(space.contains(action) for action in an_agent(robot=space).act(np.zeros((2, 3))))


@pytest.mark.parametrize("values", [[], {"a": 3}, {"a": {"mask": [1, 0]}}, {"a": {"mask": [True]}}], ids=str)
def test_damaged_tasks_are_refused(values: object) -> None:
    with pytest.raises(CorruptFileError, match="a file"):
        tasks_from_json(values, discrete_spec((3,), "float32", 2), "a file")
