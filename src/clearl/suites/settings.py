"""The settings that suites declare, apart from the suites themselves so that `--help` imports no games.

The first line of a docstring is the heading of the settings in `--help`.
"""

from __future__ import annotations

from typing import Annotated

from clearl.config.engine import Between, Tag, settings_class


@settings_class
class ActionRepeat:
    """Action repeat"""

    action_repeat: Annotated[int | None, Between(1, 64), "frames for which an action is held"] = None


@settings_class
class StickyActions:
    """Sticky actions"""

    sticky_action_probability: Annotated[
        float | None, Between(0, 0.99), "probability that the last action is repeated instead; default: the suite's own"
    ] = None


@settings_class
class GymnasiumSettings(StickyActions, ActionRepeat):
    """Gymnasium"""

    vector_entry_point: Annotated[
        bool, "step ids that register a vector entry point as one vector; those that register nothing else always are"
    ] = False
    wrappers: Annotated[
        tuple[str, ...],
        "around each environment, the innermost first: names of gymnasium.wrappers, or module:Class; arguments as in "
        "'TimeLimit?max_episode_steps=200'",
    ] = ()


@settings_class
class AtariSettings(StickyActions, ActionRepeat):
    """Atari"""

    grayscale: Annotated[bool | None, "grey frames instead of colour"] = None
    life_loss_terminates: Annotated[bool, "Atari: a lost life ends the episode in training"] = False
    noop_max: Annotated[int, Between(0, 1000), "Atari: most no-ops at the start of an episode"] = 30


@settings_class
class DmLabSettings(ActionRepeat):
    """DeepMind Lab"""

    level_cache: Annotated[str | None, Tag.MACHINE, "DMLab: directory of compiled levels"] = None
