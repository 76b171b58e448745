"""Your own environment, from Python: train one agent while the physics of its world changes."""
# python examples/own_environment.py

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

import clearl


class Delivery(gymnasium.Env):
    """Stop a sledge at the door; the ground is rough in summer and icy in winter."""

    observation_space = Box(-10.0, 10.0, (3,), np.float32)
    action_space = Discrete(3)

    def __init__(self, friction):
        self.friction = friction

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.speed, self.steps = self.np_random.uniform(-1, 1), 0.0, 0
        return self.observe(), {}

    def step(self, action):
        self.speed = (1 - self.friction) * self.speed + 0.05 * (action - 1)
        self.place = float(np.clip(self.place + self.speed, -1, 1))
        self.steps += 1
        return self.observe(), 1 - abs(self.place), False, self.steps == 100, {}

    def observe(self):
        return np.array([self.place, self.speed, self.friction], np.float32)  # shows which season it is


def summer():
    return Delivery(friction=0.5)


def winter():
    return Delivery(friction=0.02)


def main(out="runs/delivery", **settings):
    """Train, and print what the agent can do at the end of each season."""
    # Worker processes cannot import the functions of the program itself. From a module of your own, they train on all
    # cores: leave out `runtime`.
    budget = {"cycles": 2, "frames_per_visit": 20_000, "runtime": "inline", **settings}
    result = clearl.run(preset="gym-classic", tasks={"summer": summer, "winter": winter}, out=out, **budget)
    for row in result.metrics.where(kind="eval", switch=True):
        print(f"after {row['frames']:>6,} frames: {row['return']:5.1f} of at most 100 in {row['task']}")

    agent, world = result.agent, winter()
    observation, _ = world.reset(seed=0)
    agent.reset()  # at the start of every episode
    for _ in range(100):
        observation, *_ = world.step(agent.act(observation, task="winter", deterministic=True))
    print(f"{abs(world.place):.2f} from the door at the end of an episode in winter")


if __name__ == "__main__":
    main()
