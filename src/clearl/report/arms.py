"""Group runs into arms, name the arms, and check that they may stand in one report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from clearl.config import Tag, names_tagged, settings
from clearl.errors import ReportError
from clearl.records.names import clean_name
from clearl.report.run import Arm, Run

LABELS = {
    "separate": "Separate",
    "simultaneous": "Simultaneous",
    "sequential": "Baseline (sequential)",
    "clear": "CLEAR",
    "clear-both": "CLEAR, both of each pair",
    "clear-no-cloning": "CLEAR without cloning",
    "clear-75-25": "CLEAR 75-25",
    "clear-100-replay": "CLEAR 100 % replay",
    "clear-buffer-1/18": "CLEAR, buffer 1/18",
    "clear-buffer-1/180": "CLEAR, buffer 1/180",
    "ewc": "EWC",
    "online-ewc": "Online EWC",
    "progress-compress": "Progress & Compress",
    "progress-compress+clear": "P&C + CLEAR",
    "l2-init": "L2 init",
    "l2-init+clear": "L2 init + CLEAR",
    "continual-backprop": "Continual backprop",
    "clear-forget": "CLEAR after forgetting",
    "trust": "Trust",
    "trust+clear": "Trust + CLEAR",
}
"""The arms of the paper in the order of its tables, as the report writes them, then other methods of ours."""

_OURS = {"baseline", *LABELS}
_PROBE = " (probe at "
_BOTH = re.compile(r"clear-both-([\d.]+)")  # new unrolls : replayed ones
_COLOUR = re.compile("#[0-9a-fA-F]{6}")


class ArmName(str):
    """An arm's name with the label and the colour that its method declares; empty where the report's own apply."""

    __slots__ = ("colour", "label")
    label: str
    colour: str

    def __new__(cls, name: str, *, label: str = "", colour: str = "") -> ArmName:
        made = super().__new__(cls, name)
        made.label, made.colour = label, colour
        return made


def label(name: str) -> str:
    """Return an arm's name as the report writes it."""
    base, probe, position = name.partition(_PROBE)
    if isinstance(name, ArmName) and name.label:
        written = name.label
    elif ratio := _BOTH.fullmatch(base):
        written = f"{LABELS['clear-both']}, 1:{ratio[1]}"
    else:
        written = LABELS.get(base) or " + ".join(LABELS.get(part, part) for part in base.split("+"))
    return written + (f", probe at {position[:-1]}" if probe else "")


def base_name(name: str) -> str:
    """Return the arm's name without the position of its probe."""
    base = name.partition(_PROBE)[0]
    return ArmName(base, label=name.label, colour=name.colour) if isinstance(name, ArmName) else base


def group_arms(runs: Sequence[Run]) -> list[Arm]:
    """Return the runs as arms, in the paper's order; seeds rise within each."""
    named: dict[str, list[Run]] = {}
    for run, name in zip(runs, _names(runs), strict=True):
        named.setdefault(name, []).append(run)
    arms = [
        Arm(_with_declared(name, group), tuple(sorted(group, key=lambda run: run.seed)))
        for name, group in named.items()
    ]
    for arm in arms:
        _check_seeds(arm)
    _check_suites(arms)
    return sorted(arms, key=_order)


def _with_declared(name: str, runs: Sequence[Run]) -> ArmName:
    """Add what a method that is not ours declares; an arm that the user named keeps that name."""
    method, meta = str(runs[0].meta.get("method")), runs[0].meta
    base = name.partition(_PROBE)[0]
    if meta.get("arm") not in (None, method) or all(part in _OURS for part in method.split("+")):
        return ArmName(name)
    if base != method and not base.startswith(f"{method} ["):
        return ArmName(name)
    declared, colour = meta.get("label"), meta.get("colour")
    return ArmName(
        name,
        label=clean_name(declared) + base.removeprefix(method) if isinstance(declared, str) and declared else "",
        colour=colour if isinstance(colour, str) and _COLOUR.fullmatch(colour) else "",
    )


def _names(runs: Sequence[Run]) -> list[str]:
    names = [clean_name(run.meta.get("arm") or derived_name(run)) for run in runs]
    for name in set(names):
        group = [run for run, other in zip(runs, names, strict=True) if other == name and not run.meta.get("arm")]
        varying = _varying_keys([run.config for run in group])
        for index, run in enumerate(runs):
            if names[index] == name and not run.meta.get("arm") and varying:
                names[index] = clean_name(f"{name} [{', '.join(f'{key}={run.config.get(key)}' for key in varying)}]")
    return [
        name if run.probe_position is None else f"{name}{_PROBE}{run.probe_position})"
        for name, run in zip(names, runs, strict=True)
    ]


def derived_name(run: Run) -> str:
    """Return the paper's name for what the run's protocol, method and settings amount to."""
    if run.protocol in ("separate", "simultaneous"):
        return run.protocol
    method = str(run.meta.get("method") or run.config.get("method") or run.path.name)
    if method == "baseline" or (method == "clear" and run.config.get("replay_fraction") == 0):
        return "sequential"
    if method != "clear":
        return method
    cloning = [_setting(run, key, 1.0) for key in ("policy_cloning_weight", "value_cloning_weight")]
    fraction, share = _setting(run, "replay_fraction", 0.5), _setting(run, "buffer_share", 0.5)
    name = "clear" + {0.5: "", 0.25: "-75-25", 1.0: "-100-replay"}.get(fraction, f"-replay-{fraction:g}")
    if run.config.get("pairs") == "both":
        ratio = _setting(run, "replay_ratio", 1.0)
        name = "clear-both" + ("" if ratio == 1 else f"-{ratio:g}")
    if not any(cloning):
        name += "-no-cloning"
    if share != 0.5 and run.config.get("buffer_frames") is None:
        name += f"-buffer-1/{1 / share:.3g}" if share > 0 else "-buffer-0"
    return name


def _setting(run: Run, key: str, default: float) -> float:
    """Return a number out of the config; the default where somebody wrote anything else."""
    value = run.config.get(key)
    return float(value) if isinstance(value, (int, float)) else default


def _varying_keys(configs: Sequence[dict[str, Any]]) -> list[str]:
    """Return the settings whose values make separate arms; how and where a run is computed does not."""
    defaults = {name: setting.default for name, setting in settings().items()}
    keys = sorted(set().union(*configs) - names_tagged(Tag.MACHINE, Tag.PLACEMENT)) if configs else []
    # A run of an older version lacks newer settings; it did what their defaults do.
    values = {key: {repr(config.get(key, defaults.get(key))) for config in configs} for key in keys}
    return [key for key in keys if len(values[key]) > 1]


def _order(arm: Arm) -> tuple[int, str, int]:
    known = list(LABELS)
    base = base_name(arm.name)
    rank = known.index(base) if base in known else len(known)
    return rank, base, -1 if arm.probe_position is None else arm.probe_position


def _check_seeds(arm: Arm) -> None:
    first: dict[int, Run] = {}
    for run in arm.runs:
        if run.seed in first:
            raise ReportError(
                f"arm {arm.name!r} has two runs with seed {run.seed}: {first[run.seed].path} and {run.path}; give one"
            )
        first[run.seed] = run


def _check_suites(arms: Sequence[Arm]) -> None:
    suites: dict[str, list[str]] = {}
    for arm in arms:
        for run in arm.runs:
            if suite := run.meta.get("suite"):
                suites.setdefault(str(suite), []).append(arm.name)
    if len(suites) > 1:
        listed = "; ".join(f"{suite}: {_some(list(dict.fromkeys(names)))}" for suite, names in sorted(suites.items()))
        raise ReportError(f"runs on different suites cannot stand in one report ({listed}); report them one by one")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
