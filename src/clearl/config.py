"""All settings of a run, in one frozen dataclass. Default < preset < file < flag; every name carries its unit."""

from __future__ import annotations

import dataclasses
import math
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from clearl.errors import ConfigError, UnknownNameError

PRESETS_DIR = Path(__file__).parent / "presets"
_MAX_FILE_BYTES = 1_000_000

PLACEMENT = frozenset({"workers", "address", "learner_threads", "worker_timeout_s", "eval_wait"})
"""Settings that say where a run happens, not what it is: a resumed run may come with others."""


@dataclass(frozen=True)
class Between:
    """The range of a number, both ends included."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"between {_number(self.low)} and {_number(self.high)}"


def _number(value: float) -> str:
    return f"{value:_}" if isinstance(value, int) else f"{value:g}"


Count = Annotated[int, Between(1, 10**13)]
Share = Annotated[float, Between(0, 1)]
Weight = Annotated[float, Between(0, 10**6)]
Lambda = Annotated[float, Between(0, 10**12)]  # Fishers differ by orders of magnitude: the range must not end a search
Positive = Annotated[float, Between(1e-12, 10**6)]


@dataclass(frozen=True)
class RunConfig:
    """One training run. The names are the flags of `clearl run` and the keys of a config file.

    A string beside a type is the help text of the flag; a `Between` is checked when the config is made.
    """

    # What is trained, on what, in which order.
    method: Annotated[str, "the algorithm; `clearl list methods` shows them"] = "clear"
    suite: Annotated[str, "where the tasks come from, e.g. minatar, atari, gym:CartPole-v1"] = "minatar"
    tasks: Annotated[tuple[str, ...], "comma-separated, in the order of training; default: those of the suite"] = ()
    protocol: Annotated[str, "sequential, simultaneous, separate or probe"] = "sequential"
    cycles: Annotated[int, Between(1, 10_000), "how often the sequence of tasks is repeated"] = 1
    frames_per_visit: Annotated[Count | None, "environment frames of one visit to a task"] = 500_000
    episodes_per_visit: Annotated[Count | None, "end a visit by episodes instead of frames"] = None
    probe_task: Annotated[str | None, "protocol probe: the task that is visited once"] = None
    probe_position: Annotated[int, Between(0, 10**6), "protocol probe: the number of visits before it"] = 0
    seed: Annotated[int, Between(0, 2**63 - 1), "every random number of the run follows from it"] = 0
    preset: Annotated[str | None, "named settings to start from; `clearl list presets` shows them"] = None
    imports: Annotated[tuple[str, ...], "modules to import first, e.g. one that registers your environments"] = ()

    # Who runs it.
    runtime: Annotated[Literal["inline", "local", "ray"], "one process, worker processes, or a Ray cluster"] = "local"
    workers: Annotated[int | None, Between(1, 1024), "processes that step environments; default: by the cores"] = None
    slots: Annotated[int, Between(1, 4096), "environments, each with its own share of the replay buffer"] = 64
    device: Annotated[str, "where the learner runs: cpu, cuda, cuda:N or mps"] = "cpu"
    autocast: Annotated[bool, "bfloat16 in the learner's forward pass"] = False
    learner_threads: Annotated[int | None, Between(1, 1024), "the learner's torch threads; default: by the cores"] = (
        None
    )
    address: Annotated[str | None, "runtime ray: the cluster to join, e.g. auto"] = None
    worker_timeout_s: Annotated[float, Between(1, 86_400), "a worker that says nothing for so long is replaced"] = 60.0

    # The unroll and the batch.
    unroll_steps: Annotated[int, Between(1, 1000), "steps of one unroll (T)"] = 20
    batch_unrolls: Annotated[int, Between(1, 4096), "unrolls in one update (B)"] = 32

    # The network.
    torso: Annotated[str, "mlp, minatar, nature, impala_shallow or impala_deep"] = "minatar"
    lstm: Annotated[bool, "a recurrent core, fed with the last action and reward"] = False
    lstm_size: Annotated[int, Between(1, 4096), "units of the recurrent core"] = 256

    # CLEAR, in the paper's words.
    discount: Annotated[Share, "gamma"] = 0.99
    rho_bar: Annotated[float, Between(1e-6, 1000), "V-trace: where the weight of the temporal difference is cut"] = 1.0
    c_bar: Annotated[float, Between(1e-6, 1000), "V-trace: where the trace is cut"] = 1.0
    policy_gradient_weight: Annotated[Weight, "weight of the policy gradient"] = 1.0
    value_weight: Annotated[Weight, "weight of (V - v)^2; 0.25 gives what IMPALA's code does"] = 0.5
    entropy_weight: Annotated[Weight, "weight of the entropy bonus"] = 0.01
    policy_cloning_weight: Annotated[Weight, "weight of KL[mu||pi] on replay"] = 0.01
    value_cloning_weight: Annotated[Weight, "weight of (V - V_replay)^2 on replay"] = 0.005
    pairs: Annotated[
        Literal["either", "both"], "learn from the new or the replayed unroll of a pair (the paper), or from both"
    ] = "either"
    replay_fraction: Annotated[Share, "pairs either: the share of each batch that is replay; 0 is the baseline"] = 0.5
    replay_ratio: Annotated[
        float | None, Between(0.25, 4), "pairs both: replayed unrolls on top of each new one; default: 1"
    ] = None
    reward_clip: Annotated[Literal["unit", "soft_asymmetric", "none"], "[-1, 1], DMLab-30's, or none"] = "none"

    # Replay.
    buffer_frames: Annotated[Count | None, "size of the replay buffer; default: by buffer_share"] = None
    buffer_share: Annotated[float, Between(1e-6, 1), "size of the replay buffer as a share of all frames"] = 0.5
    replay_store: Annotated[Literal["auto", "ram", "disk"], "where it is kept; auto forecasts the bytes"] = "auto"
    replay_waste_share: Annotated[float, Between(0.05, 0.95), "disk: waste at which segments are rewritten"] = 0.5
    keep_replay: Annotated[bool, "leave the replay files in the run directory at the end"] = True

    # EWC, online EWC, Progress & Compress.
    ewc_lambda: Annotated[Lambda, "EWC: weight of the penalty"] = 500.0
    ewc_omit_current: Annotated[bool, "EWC: leave out the anchor of the task that is visited"] = False
    online_ewc_lambda: Annotated[Lambda, "online EWC, and P&C's compress phase: weight of the penalty"] = 75.0
    ewc_gamma: Annotated[Share, "online EWC: how much of the old Fisher is kept"] = 0.99
    fisher_batches: Annotated[int, Between(1, 100_000), "minibatches for one estimate of the Fisher"] = 100
    compress_frames: Annotated[Count | None, "P&C: length of a compress phase; default: a share of the visit"] = None
    compress_on_top: Annotated[bool, "P&C: compress after the visit's frames instead of within them"] = False
    compress_temperature: Annotated[float, Between(0.01, 100), "P&C: temperature of the distillation"] = 1.0
    reset_active: Annotated[bool, "P&C: a new active column for each visit"] = True

    # The optimiser.
    optimizer: Annotated[Literal["adam", "rmsprop"], "rmsprop is TensorFlow's: epsilon inside the root"] = "adam"
    learning_rate: Annotated[float, Between(0, 10), "at the start"] = 3e-3
    anneal: Annotated[bool, "take the learning rate linearly to 0 over the whole run"] = False
    adam_eps: Annotated[Positive, "Adam's epsilon"] = 1e-5
    rmsprop_eps: Annotated[Positive, "RMSProp's epsilon"] = 0.01
    rmsprop_decay: Annotated[Share, "RMSProp's decay of the mean square"] = 0.99
    rmsprop_momentum: Annotated[Share, "RMSProp's momentum"] = 0.0
    grad_norm_clip: Annotated[Positive | None, "the norm that a gradient is cut to; none for no limit"] = 40.0

    # Evaluation, records and checkpoints.
    eval_every_frames: Annotated[Count, "frames of training between two evaluations of all tasks"] = 100_000
    eval_episodes: Annotated[int, Between(1, 10_000), "sampled episodes of one evaluation of a task"] = 16
    switch_episodes: Annotated[
        int | None, Between(1, 10_000), "episodes of the evaluation at every switch and at the end; default: the same"
    ] = None
    eval_wait: Annotated[bool, "training waits for an evaluator that lags, so that no evaluation is skipped"] = False
    eval_max_steps: Annotated[int, Between(1, 10**7), "steps after which an evaluated episode is cut"] = 10_000
    record_every_updates: Annotated[int, Between(1, 10**6), "updates between two rows of training metrics"] = 20
    checkpoint_every_frames: Annotated[Count | None, "frames between two checkpoints; none for the last only"] = 500_000
    tensorboard: Annotated[bool, "mirror the metrics to TensorBoard"] = False
    wandb: Annotated[bool, "mirror the metrics to Weights & Biases"] = False
    mirrors: Annotated[tuple[str, ...], "mirrors of your own, registered by a module of --imports"] = ()

    # Environments of the suites that know these settings.
    frame_stack: Annotated[int | None, Between(1, 16), "frames in one observation"] = None
    grayscale: Annotated[bool | None, "grey frames instead of colour"] = None
    action_repeat: Annotated[int | None, Between(1, 64), "frames for which an action is held"] = None
    sticky_action_probability: Annotated[
        float | None, Between(0, 0.99), "probability that the last action is repeated instead; default: the suite's own"
    ] = None
    life_loss_terminates: Annotated[bool, "Atari: a lost life ends the episode in training"] = False
    noop_max: Annotated[int, Between(0, 1000), "Atari: most no-ops at the start of an episode"] = 30
    level_cache: Annotated[str | None, "DMLab: directory of compiled levels"] = None

    def __post_init__(self) -> None:
        for name, setting in settings().items():
            object.__setattr__(self, name, setting.checked(getattr(self, name)))
        for conflict in _conflicts(self):
            raise ConfigError(conflict)

    @property
    def mirror_names(self) -> tuple[str, ...]:
        """Where rows go beside the metrics file."""
        return (*(name for name in ("tensorboard", "wandb") if getattr(self, name)), *self.mirrors)

    def buffer_size_frames(self, total_frames: int | None) -> int:
        """Frames that the replay buffer holds, out of `total_frames` of training (None: unknown, by episodes)."""
        if self.buffer_frames is not None:
            return self.buffer_frames
        if total_frames is None:
            raise ConfigError(
                "buffer_share needs a length in frames; with episodes_per_visit give buffer_frames instead"
            )
        return max(1, int(self.buffer_share * total_frames))


_IN_WORDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    tuple: "a list of texts without empty ones",
}


@dataclass(frozen=True)
class Setting:
    """One field: its type, range and help, read from the annotation."""

    name: str
    kind: Any
    """str, int, float, bool, tuple (of str) or a Literal."""
    optional: bool
    limits: Between | None
    help: str

    def checked(self, value: Any) -> Any:
        """The value in the field's own type, or an error that names the field and what it takes."""
        if value is None and self.optional:
            return None
        converted = _converted(value, self.kind)
        if converted is None or (self.limits and not self.limits.low <= converted <= self.limits.high):
            raise ConfigError(f"{self.name} must be {self.expected}, got {value!r}")
        return converted

    @property
    def expected(self) -> str:
        """What the field takes, in words."""
        if get_origin(self.kind) is Literal:
            text = "one of " + ", ".join(get_args(self.kind))
        else:
            text = _IN_WORDS[self.kind] + (f" {self.limits}" if self.limits else "")
        return text + (" or none" if self.optional else "")


@cache
def settings_of(kind: type) -> dict[str, Setting]:
    """Every field of a dataclass that is annotated like `RunConfig`, by name, in order."""
    return {name: _setting(name, hint) for name, hint in get_type_hints(kind, include_extras=True).items()}


def settings() -> dict[str, Setting]:
    """Every field of `RunConfig`."""
    return settings_of(RunConfig)


def _setting(name: str, hint: Any) -> Setting:
    limits, text, optional = None, "", False
    while True:
        if get_origin(hint) is Annotated:
            for extra in hint.__metadata__:
                limits = extra if isinstance(extra, Between) else limits
                text = extra if isinstance(extra, str) else text
            hint = hint.__origin__
        elif get_origin(hint) in (Union, types.UnionType):
            optional = True
            (hint,) = (part for part in get_args(hint) if part is not type(None))
        else:
            kind = tuple if get_origin(hint) is tuple else hint
            return Setting(name, kind, optional, limits, text)


def _converted(value: Any, kind: Any) -> Any:
    """`value` as `kind`, or None. Numbers may come as text: YAML takes 6e-4 for one."""
    if get_origin(kind) is Literal:
        return value if value in get_args(kind) else None
    if kind is bool:
        return value if isinstance(value, bool) else None
    if kind is str:
        return value if isinstance(value, str) and value else None
    if kind is tuple:
        parts = value.split(",") if isinstance(value, str) else value
        whole = isinstance(parts, (list, tuple)) and all(isinstance(part, str) and part.strip() for part in parts)
        return tuple(part.strip() for part in parts) if whole else None
    try:
        number = kind(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if isinstance(value, bool) or not math.isfinite(number) or (not isinstance(value, str) and number != value):
        return None
    return number


def _conflicts(c: RunConfig) -> Iterator[str]:
    """What no single field can say: a message for everything that does not go together."""
    if (c.frames_per_visit is None) == (c.episodes_per_visit is None):
        yield "give either frames_per_visit or episodes_per_visit, and none for the other"
    if c.batch_unrolls > c.slots:
        yield f"batch_unrolls must be between 1 and slots ({c.slots}), got {c.batch_unrolls}: no slot is in it twice"
    if c.workers is not None and c.workers > c.slots:
        yield f"workers must be between 1 and slots ({c.slots}), got {c.workers}: each needs a slot"
    if c.c_bar > c.rho_bar:
        yield f"c_bar must be between 0 and rho_bar ({c.rho_bar:g}), got {c.c_bar:g}"
    if c.pairs == "either" and c.replay_ratio is not None:
        yield "replay_ratio is for pairs both; with pairs either give replay_fraction"
    if c.pairs == "both" and c.replay_fraction != RunConfig.replay_fraction:
        yield "replay_fraction is for pairs either; with pairs both give replay_ratio"
    if len(set(c.tasks)) < len(c.tasks):
        yield f"tasks must differ from each other, got {','.join(c.tasks)}"
    if c.protocol == "probe" and c.probe_task is None:
        yield "protocol probe needs probe_task"
    if c.protocol != "probe" and c.probe_task is not None:
        yield f"probe_task is for protocol probe, but protocol is {c.protocol!r}"
    if c.address is not None and c.runtime != "ray":
        yield f"address is for runtime ray, but runtime is {c.runtime!r}"
    if c.anneal and c.episodes_per_visit is not None:
        yield "anneal needs a length in frames; with episodes_per_visit set anneal to false"
    smallest = c.slots * c.unroll_steps * (c.action_repeat or 1)
    if c.buffer_frames is not None and c.buffer_frames < smallest:
        yield f"buffer_frames must be at least {smallest} (slots x unroll_steps x action_repeat), got {c.buffer_frames}"
    visit_frames = c.frames_per_visit or math.inf
    if c.compress_frames is not None and not c.compress_on_top and c.compress_frames >= visit_frames:
        yield f"compress_frames must be less than frames_per_visit ({c.frames_per_visit}), got {c.compress_frames}"
    if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", c.device):
        yield f"device must be cpu, cuda, cuda:N or mps, got {c.device!r}"
    if c.runtime == "inline" and c.device != "cpu":
        yield f"runtime inline acts with the learner's own network: device must be cpu, got {c.device!r}; or use local"
    for module in c.imports:
        if not all(part.isidentifier() for part in module.split(".")):
            yield f"imports must be names of modules, got {module!r}"


# Of each group a layer that gives one value takes back what lower layers gave for the others.
_EXCLUSIVE = (
    ("frames_per_visit", "episodes_per_visit"),
    ("buffer_frames", "buffer_share"),
    ("replay_fraction", "replay_ratio"),
)


def resolve(
    preset: str | None = None, file: str | Path | None = None, flags: Mapping[str, Any] | None = None
) -> RunConfig:
    """The settings of a run: default < preset < file < flag. The preset may be named by any of the three."""
    flags = dict(flags or {})
    in_file = load_settings(Path(file)) if file is not None else {}
    name = flags.get("preset") or preset or in_file.get("preset")
    layers = [load_preset(name) if name is not None else {}, in_file, flags]
    merged: dict[str, Any] = {}
    for layer in layers:
        _check_keys(layer)
        for group in _EXCLUSIVE:
            if any(layer.get(key) is not None for key in group):
                merged |= {key: _unset(key) for key in group if key not in layer}
        merged |= layer
    merged["preset"] = name
    return RunConfig(**merged)


def _unset(key: str) -> Any:
    """What a field says when another of its group is given."""
    return None if settings()[key].optional else RunConfig.__dataclass_fields__[key].default


def _check_keys(layer: Mapping[str, Any]) -> None:
    for key in layer:
        if key not in settings():
            raise UnknownNameError("setting", str(key), settings())


def preset_names() -> list[str]:
    """The presets that come with the package."""
    return sorted(path.stem for path in PRESETS_DIR.glob("*.yaml"))


def load_preset(name: str) -> dict[str, Any]:
    """The settings of a preset, by name. A preset may start from another one, which it names."""
    if name not in preset_names():
        raise UnknownNameError("preset", str(name), preset_names())
    own = load_settings(PRESETS_DIR / f"{name}.yaml")
    start = own.pop("preset", None)
    return own if start is None else load_preset(start) | own


def load_settings(path: Path) -> dict[str, Any]:
    """The settings that a YAML file gives; the keys are checked, the values when a config is made of them."""
    loaded = load_yaml(path)
    _check_keys(loaded)
    return loaded


def load_yaml(path: Path) -> dict[str, Any]:
    """The mapping that a YAML file of ours holds."""
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise ConfigError(f"config file {path} is larger than {_MAX_FILE_BYTES} bytes: that is no config")
        return parse_yaml(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ConfigError(f"config file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"config file {path} is not text in UTF-8") from error


def parse_settings(text: str, source: str = "config") -> dict[str, Any]:
    """The settings in a YAML text, which is a flat mapping of field names to values."""
    loaded = parse_yaml(text, source)
    _check_keys(loaded)
    return loaded


def parse_yaml(text: str, source: str) -> dict[str, Any]:
    """The mapping in a YAML text."""
    try:
        loaded = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # ValueError: a number of thousands of digits
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        raise ConfigError(f"{source} is not valid YAML{line}") from error
    if not isinstance(loaded, dict | None):
        raise ConfigError(f"{source} must be a mapping of settings to values, got {type(loaded).__name__}")
    return loaded or {}


def to_yaml(config: RunConfig) -> str:
    """The resolved config, every field, as `config.yaml` of a run directory."""
    plain = {name: list(v) if isinstance(v, tuple) else v for name, v in vars(config).items()}
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)


def from_yaml(text: str, source: str = "config") -> RunConfig:
    """The config that `to_yaml` wrote; fields that are missing take their defaults."""
    return RunConfig(**parse_settings(text, source))


def diff(old: RunConfig, new: RunConfig) -> dict[str, tuple[Any, Any]]:
    """The fields in which two configs differ: name -> (old, new)."""
    pairs = ((f.name, getattr(old, f.name), getattr(new, f.name)) for f in dataclasses.fields(RunConfig))
    return {name: (a, b) for name, a, b in pairs if a != b}
