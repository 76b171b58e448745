"""Layers of settings: default < preset < file < flag, and the config of a run as YAML."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearl.config.engine import dump_yaml, load_yaml, parse_yaml
from clearl.config.owners import recorded_settings
from clearl.config.run import RunConfig, check_keys, core_settings, settings
from clearl.errors import UnknownNameError

PRESETS_DIR = Path(__file__).parents[1] / "presets"

# In each group, a layer that gives one value unsets those that lower layers gave for the others.
_EXCLUSIVE = (
    ("frames_per_visit", "episodes_per_visit"),
    ("buffer_frames", "buffer_share", "replay_budget"),
    ("replay_fraction", "replay_ratio"),
)
# Each belongs to one rule of pairs: a layer that gives one implies that rule, unless it names a rule itself.
_RULE_OF_PAIRS = {"replay_fraction": "either", "replay_ratio": "both"}


def resolve(
    preset: str | None = None, file: str | Path | None = None, flags: Mapping[str, Any] | None = None
) -> RunConfig:
    """Return the settings of a run: default < preset < file < flag. The preset may be named by any of the three."""
    flags = dict(flags or {})
    in_file = load_settings(Path(file)) if file is not None else {}
    name = flags.get("preset") or preset or in_file.get("preset")
    layers = [load_preset(name) if name is not None else {}, in_file, flags]
    merged: dict[str, Any] = {}
    for layer in layers:
        check_keys(layer)
        merged |= with_alternatives_unset(layer)
    merged["preset"] = name
    return RunConfig(**merged)


def with_alternatives_unset(layer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a layer gives, and none or the default for those that they replace."""
    groups = (group for group in _EXCLUSIVE if any(layer.get(key) is not None for key in group))
    rules = [("pairs", rule) for key, rule in _RULE_OF_PAIRS.items() if layer.get(key) is not None]
    return {key: _unset(key) for group in groups for key in group} | dict(rules) | dict(layer)


def _unset(key: str) -> Any:
    """Return the value of a field when another of its group is given."""
    return None if settings()[key].optional else settings()[key].default


def preset_names() -> list[str]:
    """Return the presets that come with the package."""
    return sorted(path.stem for path in PRESETS_DIR.glob("*.yaml"))


def load_preset(name: str) -> dict[str, Any]:
    """Return the settings of a preset, by name. A preset may start from another one, which it names."""
    if name not in preset_names():
        raise UnknownNameError("preset", str(name), preset_names())
    own = load_settings(PRESETS_DIR / f"{name}.yaml")
    start = own.pop("preset", None)
    return own if start is None else load_preset(start) | own


def load_settings(path: Path) -> dict[str, Any]:
    """Return the settings that a YAML file gives; the keys are checked, the values when a config is made of them."""
    loaded = load_yaml(path)
    check_keys(loaded)
    return loaded


def parse_settings(text: str, source: str = "config") -> dict[str, Any]:
    """Return the settings in a YAML text, which is a flat mapping of field names to values."""
    loaded = parse_yaml(text, source)
    check_keys(loaded)
    return loaded


def to_yaml(config: RunConfig) -> str:
    """Return the resolved config as `config.yaml` of a run directory.

    Every field, and the settings of methods and suites.
    """
    names = [*core_settings(), *recorded_settings(config)]
    return dump_yaml({name: getattr(config, name) for name in names} | dict(config.owned))


def from_yaml(text: str, source: str = "config") -> RunConfig:
    """Return the config that `to_yaml` wrote; fields that are missing take their defaults."""
    return RunConfig(**parse_settings(text, source))


def diff(old: RunConfig, new: RunConfig) -> dict[str, tuple[Any, Any]]:
    """Return the settings in which two configs differ: name -> (old, new)."""
    pairs = ((name, getattr(old, name), getattr(new, name)) for name in settings())
    return {name: (a, b) for name, a, b in pairs if a != b}
