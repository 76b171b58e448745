"""MuJoCo's robots: `half_cheetah?direction=backward&gravity=1.5`, and every keyword of Gymnasium's constructors.

Numbers of the world are factors of the standard ones: `gravity=1.5` is half as much again. A part's factor is that of
its thickness, and its mass follows. The first number of an observation is the direction in which the robot is to move,
1 or -1, and 0 for Reacher, which has none: nothing else would tell forward from backward.

Not envpool's robots in C++: they take none of these numbers, its HalfCheetah and Hopper move away from MuJoCo's within
30 steps of the same actions, and only Reacher (1.4 times) and Hopper (1.2 times) are notably faster.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from xml.etree import ElementTree

import numpy as np

from clearl.config import RunConfig
from clearl.errors import ConfigError, MissingExtraError, UnknownNameError
from clearl.spaces import ActionSpec, ObservationSpec, PartSpec, TaskSpec
from clearl.suites.environments import EnvironmentSuite
from clearl.suites.settings import ActionRepeat
from clearl.tasks.parameters import Value, split_task
from clearl.tasks.single import env_keywords, make_env

DIRECTIONS = {"forward": 1.0, "backward": -1.0}
LARGEST_FACTOR = 100.0
WHOLE_BODY = "size"
NO_LIMBS = ("target",)
UNFIT_KEYWORDS = ("xml_file", "default_camera_config")


def _scale_gravity(model: Any, factor: float) -> None:
    model.opt.gravity[:] *= factor


def _scale_friction(model: Any, factor: float) -> None:
    model.geom_friction[:] *= factor


def _scale_damping(model: Any, factor: float) -> None:
    model.dof_damping[:] *= factor


def _scale_viscosity(model: Any, factor: float) -> None:
    model.opt.viscosity *= factor


WORLD: dict[str, Callable[[Any, float], None]] = {
    "gravity": _scale_gravity,
    "friction": _scale_friction,
    "damping": _scale_damping,
    "viscosity": _scale_viscosity,
}


@dataclass(frozen=True)
class Robot:
    """One of Gymnasium's robots, and what can be changed of it; a number that changes nothing is left out."""

    env_id: str
    xml_file: str
    """Its file among Gymnasium's assets."""
    observed: int
    """Numbers of an observation by the defaults of Gymnasium's constructor, without the direction."""
    joints: int
    """Numbers of an action."""
    world: tuple[str, ...]
    parts: Mapping[str, tuple[str, ...]]
    """Words in the names of the geoms that each parameter scales."""
    has_direction: bool = True

    @property
    def factors(self) -> tuple[str, ...]:
        """Parameters that scale something."""
        return (*self.world, *self.parts, WHOLE_BODY)


_LAND = ("gravity", "friction", "damping")
_LEGS = {"torso": ("torso",), "thigh": ("thigh",), "leg": ("leg",), "foot": ("foot",)}
_CHEETAH = {"torso": ("torso", "head"), "thigh": ("thigh",), "shin": ("shin",), "foot": ("foot",)}
ROBOTS = {
    "half_cheetah": Robot("HalfCheetah-v5", "half_cheetah.xml", 17, 6, _LAND, _CHEETAH),
    "ant": Robot("Ant-v5", "ant.xml", 105, 8, _LAND, {"torso": ("torso",), "leg": ("aux", "leg"), "ankle": ("ankle",)}),
    "walker2d": Robot("Walker2d-v5", "walker2d_v5.xml", 17, 6, _LAND, _LEGS),
    "hopper": Robot("Hopper-v5", "hopper.xml", 11, 3, _LAND, _LEGS),
    "swimmer": Robot("Swimmer-v5", "swimmer.xml", 8, 2, ("viscosity",), {}),
    "reacher": Robot("Reacher-v5", "reacher.xml", 10, 2, ("damping",), {}, has_direction=False),
}


class MujocoSuite(EnvironmentSuite):
    """Robots that run, hop, swim and reach, as Gymnasium has them (v5)."""

    name = "mujoco"
    slow_steps: ClassVar[bool] = True
    default_tasks: ClassVar[tuple[str, ...]] = ("half_cheetah", "half_cheetah?direction=backward")
    known_tasks: ClassVar[tuple[str, ...]] = tuple(
        f"{name}{ending}"
        for name, robot in ROBOTS.items()
        for ending in (("", "?direction=backward") if robot.has_direction else ("",))
    )
    settings: ClassVar[type | None] = ActionRepeat

    def __init__(self, tasks: Sequence[str], config: RunConfig) -> None:
        if importlib.util.find_spec("mujoco") is None:
            raise MissingExtraError("suite mujoco", "mujoco", "install it with: pip install 'clearl[mujoco]'")
        super().__init__(tasks, config)

    @staticmethod
    def spec_for(config: RunConfig) -> TaskSpec:
        """Return the spec of robots as Gymnasium's defaults make them; known without the package, for forecasts."""
        tasks = (*(config.tasks or MujocoSuite.default_tasks), *filter(None, [config.probe_task]))
        robots = [_robot(split_task(task)[0]) for task in tasks]
        part = PartSpec((1 + max(robot.observed for robot in robots),), "float32")
        action = ActionSpec(bounded=(True,) * max(robot.joints for robot in robots))
        return TaskSpec(ObservationSpec({"": part}, config.frame_stack or 1), action, config.action_repeat or 1)

    def make_env(self, task: str, *, render_mode: str | None = None) -> Any:
        return make_robot(task, render_mode=render_mode)


def make_robot(task: str, *, render_mode: str | None = None) -> Any:
    """Return the environment of a task."""
    name, given = split_task(task)
    robot = _robot(name)
    keywords = [keyword for keyword in env_keywords(robot.env_id) if keyword not in UNFIT_KEYWORDS]
    known = (*(["direction"] if robot.has_direction else []), *robot.factors, *keywords)
    for parameter in given:
        if parameter not in known:
            raise UnknownNameError(f"parameter of {name}", parameter, known)
    factors = {key: _factor(task, key, value) for key, value in given.items() if key in robot.factors}
    passed: dict[str, Any] = {key: value for key, value in given.items() if key in keywords}
    passed["render_mode"] = render_mode
    direction = _direction(task, given.get("direction", "forward")) if robot.has_direction else 0.0
    if direction < 0:
        passed["forward_reward_weight"] = -passed.get("forward_reward_weight", 1.0)
    env = _build(robot, {key: factor for key, factor in factors.items() if key not in robot.world}, passed)
    for key in robot.world:
        WORLD[key](env.unwrapped.model, factors.get(key, 1.0))
    return _with_direction(env, direction)


def _robot(name: str) -> Robot:
    if name not in ROBOTS:
        raise UnknownNameError("robot of suite mujoco", name, ROBOTS)
    return ROBOTS[name]


def _direction(task: str, value: Value) -> float:
    if value not in DIRECTIONS:
        raise ConfigError(f"task {task!r}: direction is {' or '.join(DIRECTIONS)}, got {value!r}")
    return DIRECTIONS[value]


def _factor(task: str, name: str, value: Value) -> float:
    if isinstance(value, bool | str) or not 0 < value <= LARGEST_FACTOR:
        raise ConfigError(
            f"task {task!r}: {name} is a factor of the standard one, above 0 and at most {LARGEST_FACTOR:g}, "
            f"got {value!r}"
        )
    return float(value)


def _build(robot: Robot, sizes: Mapping[str, float], keywords: Mapping[str, Any]) -> Any:
    """Make Gymnasium's robot, with some of its parts thicker or thinner."""
    if not sizes:
        return make_env(robot.env_id, **keywords)
    with tempfile.TemporaryDirectory(prefix="clearl-mujoco-") as folder:
        file = Path(folder) / "robot.xml"
        file.write_bytes(_resized(robot, sizes))
        return make_env(robot.env_id, xml_file=str(file), **keywords)


def _resized(robot: Robot, sizes: Mapping[str, float]) -> bytes:
    """Return the robot's description with other radii, out of which MuJoCo computes masses and inertias anew."""
    from gymnasium.envs import mujoco

    root = ElementTree.parse(Path(mujoco.__file__).parent / "assets" / robot.xml_file).getroot()
    for geom in [geom for body in root.iter("body") for geom in body.iterfind("./geom[@size]")]:
        name = geom.get("name", "")
        radius, *rest = geom.attrib["size"].split()
        for key, factor in sizes.items():
            if name not in NO_LIMBS and any(word in name for word in robot.parts.get(key, ("",))):
                radius = str(float(radius) * factor)
        geom.set("size", " ".join([radius, *rest]))
    return ElementTree.tostring(root)


def _with_direction(env: Any, direction: float) -> Any:
    import gymnasium
    from gymnasium.spaces import Box

    class Directed(gymnasium.ObservationWrapper):
        """Shows the direction before everything else."""

        def __init__(self, env: Any) -> None:
            super().__init__(env)
            self.observation_space = Box(-np.inf, np.inf, (1 + env.observation_space.shape[0],), np.float64)

        def observation(self, observation: np.ndarray) -> np.ndarray:
            return np.concatenate([shown, observation])

    shown = np.array([direction])
    return Directed(env)
