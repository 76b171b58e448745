"""The settings of a run: one field each; every name carries its unit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from clearl.config.engine import (
    Between,
    Count,
    Positive,
    Setting,
    Share,
    Size,
    Tag,
    Word,
    settings_of,
)
from clearl.config.owners import check_owned, owned_settings
from clearl.errors import ConfigError, UnknownNameError
from clearl.plugins import name_problem, named_modules

FOREVER = -1
"""The value of `cycles` for a run without an end."""


@dataclass(frozen=True, init=False)
class RunConfig:
    """One training run. The names are the flags of `clearl run` and the keys of a config file.

    A string beside a type is the help text of the flag; a `Between` is checked when the config is made. Settings that
    a plug-in declares, such as a method or a protocol, are attributes like the fields below: `config.ewc_lambda`.
    """

    # The method, the tasks and their order.
    method: Annotated[str, "the algorithm; `clearl list methods` shows them"] = "clear"
    suite: Annotated[str, "the source of the tasks, e.g. minatar, atari, gym:CartPole-v1"] = "minatar"
    tasks: Annotated[tuple[str, ...], "comma-separated, in the order of training; default: those of the suite"] = ()
    protocol: Annotated[str, "the order and length of tasks; `clearl list protocols` shows them"] = "sequential"
    cycles: Annotated[int, Between(1, 10_000), Word("forever", FOREVER), "repetitions of the sequence of tasks"] = 1
    frames_per_visit: Annotated[Count | None, "environment frames of one visit to a task"] = 500_000
    episodes_per_visit: Annotated[Count | None, "end a visit by episodes instead of frames"] = None
    environments: Annotated[tuple[str, ...], "suite gym: tasks that functions of yours make, name=module:function"] = ()
    seed: Annotated[int, Between(0, 2**63 - 1), Tag.MACHINE, "every random number of the run follows from it"] = 0
    preset: Annotated[
        str | None, Tag.MACHINE, Tag.CHANGEABLE, "named settings to start from; `clearl list presets` shows them"
    ] = None
    imports: Annotated[
        tuple[str, ...],
        Tag.MACHINE,
        Tag.CHANGEABLE,
        "modules to import first, e.g. one that registers your environments",
    ] = ()

    # Processes.
    runtime: Annotated[str, Tag.MACHINE, "inline: one process; local: worker processes; ray: a cluster"] = "local"
    workers: Annotated[
        int | None, Between(1, 1024), Tag.PLACEMENT, "processes that step environments; default: by the cores"
    ] = None
    slots: Annotated[int, Between(1, 4096), "environments, each with its own share of the replay buffer"] = 64
    device: Annotated[str, Tag.MACHINE, Tag.CHANGEABLE, "the learner's device: cpu, cuda, cuda:N or mps"] = "cpu"
    autocast: Annotated[bool, "bfloat16 in the learner's forward pass"] = False
    learner_threads: Annotated[
        int | None, Between(1, 1024), Tag.PLACEMENT, "the learner's torch threads; default: by the cores"
    ] = None
    address: Annotated[str | None, Tag.PLACEMENT, "runtime ray: the cluster to join, e.g. auto"] = None
    worker_timeout_s: Annotated[
        float, Between(1, 86_400), Tag.PLACEMENT, "seconds without a heartbeat before a worker is restarted"
    ] = 60.0
    fault_budget: Annotated[
        int, Between(1, 1_000_000), Tag.PLACEMENT, "faults of one worker within fault_window_s that a run survives"
    ] = 5
    fault_window_s: Annotated[float, Between(1, 864_000), Tag.PLACEMENT, "seconds in which faults are counted"] = 600.0
    restart_backoff_s: Annotated[
        float, Between(0, 60), Tag.PLACEMENT, "seconds before a second restart; doubles each time, 10 at most"
    ] = 0.25

    # The unroll and the batch.
    unroll_steps: Annotated[int, Between(1, 1000), "steps of one unroll (T)"] = 20
    batch_unrolls: Annotated[int, Between(1, 4096), "unrolls in one update (B)"] = 32

    # The network.
    torso: Annotated[str, "mlp, minatar, nature, impala_shallow, impala_deep, or auto: by the observations"] = "auto"
    lstm: Annotated[bool, "a recurrent core, fed with the last action and reward"] = False
    lstm_size: Annotated[int, Between(1, 4096), "units of the recurrent core"] = 256
    layer_norm: Annotated[bool, "LayerNorm in the dense layers of the torso"] = False
    normalise_observations: Annotated[bool, "scale vectors by their running mean and deviation; images stay"] = False
    action_std: Annotated[
        Literal["network", "free"], "continuous actions: standard deviation by state, or the same in all of them"
    ] = "network"
    action_std_initial: Annotated[Positive, "continuous actions: standard deviation at the start, before squashing"] = (
        0.5
    )
    action_std_floor: Annotated[Positive, "continuous actions: least standard deviation"] = 0.05
    action_std_ceiling: Annotated[Positive, "continuous actions: greatest standard deviation"] = 2.0

    # Rewards and replay.
    discount: Annotated[Share, "the discount factor gamma"] = 0.99
    pairs: Annotated[
        Literal["either", "both"], "learn from the new or the replayed unroll of a pair (the paper), or from both"
    ] = "either"
    replay_fraction: Annotated[Share, "pairs either: the share of each batch that is replay; 0 is the baseline"] = 0.5
    replay_ratio: Annotated[
        float | None, Between(0.25, 4), "pairs both: replayed unrolls on top of each new one; default: 1"
    ] = None
    reward_clip: Annotated[
        Literal["unit", "soft_asymmetric", "none"], "clip rewards to [-1, 1], as DMLab-30, or not at all"
    ] = "none"
    scale_returns: Annotated[bool, "learn values in units of the running deviation of discounted returns"] = False

    buffer_frames: Annotated[Count | None, "size of the replay buffer; default: by buffer_share"] = None
    buffer_share: Annotated[float, Between(1e-6, 1), "size of the replay buffer as a share of all frames"] = 0.5
    replay_budget: Annotated[
        int | None, Between(1, 10**18), Size(), "size of the replay buffer in bytes, e.g. 20GB or 512MiB"
    ] = None
    replay_state: Annotated[
        Literal["stored", "zero", "burn-in"], "LSTM: the state that replayed unrolls start from"
    ] = "stored"
    burn_in_steps: Annotated[
        int | None, Between(1, 999), "replay_state burn-in: steps that only warm the state up; default: T/4"
    ] = None
    replay_store: Annotated[
        Literal["auto", "ram", "disk"], Tag.MACHINE, "where replay is kept; auto forecasts its bytes"
    ] = "auto"
    replay_waste_share: Annotated[
        float, Between(0.05, 0.95), Tag.MACHINE, "disk: waste at which segments are rewritten"
    ] = 0.5
    keep_replay: Annotated[
        bool, Tag.MACHINE, Tag.CHANGEABLE, "leave the replay files in the run directory at the end"
    ] = True

    # The optimiser.
    optimizer: Annotated[Literal["adam", "rmsprop"], "rmsprop is TensorFlow's: epsilon inside the root"] = "adam"
    learning_rate: Annotated[float, Between(0, 10), "the learning rate at the start"] = 3e-3
    anneal: Annotated[bool, "take the learning rate linearly to 0 over the whole run"] = False
    adam_eps: Annotated[Positive, "Adam's epsilon"] = 1e-5
    rmsprop_eps: Annotated[Positive, "RMSProp's epsilon"] = 0.01
    rmsprop_decay: Annotated[Share, "RMSProp's decay of the mean square"] = 0.99
    rmsprop_momentum: Annotated[Share, "RMSProp's momentum"] = 0.0
    grad_norm_clip: Annotated[Positive | None, "maximum norm of the gradient; none disables clipping"] = 40.0

    # Evaluation, records and checkpoints.
    eval_every_frames: Annotated[Count, Tag.CHANGEABLE, "frames of training between two evaluations of all tasks"] = (
        100_000
    )
    eval_episodes: Annotated[
        int, Between(1, 10_000), Tag.CHANGEABLE, "sampled episodes of one evaluation of a task"
    ] = 16
    switch_episodes: Annotated[
        int | None,
        Between(1, 10_000),
        Tag.CHANGEABLE,
        "episodes of the evaluation at every switch and at the end; default: eval_episodes",
    ] = None
    eval_wait: Annotated[
        bool, Tag.PLACEMENT, "training waits for an evaluator that lags, so that no evaluation is skipped"
    ] = False
    eval_max_steps: Annotated[
        int, Between(1, 10**7), Tag.CHANGEABLE, "steps after which an evaluated episode is cut"
    ] = 10_000
    record_every_updates: Annotated[
        int, Between(1, 10**6), Tag.MACHINE, Tag.CHANGEABLE, "updates between two rows of training metrics"
    ] = 20
    diagnose_every_updates: Annotated[
        int | None,
        Between(1, 10**6),
        Tag.MACHINE,
        Tag.CHANGEABLE,
        "updates between two diagnoses of ratios, values and gradients; none disables them",
    ] = 250
    checkpoint_every_frames: Annotated[
        Count | None, Tag.MACHINE, Tag.CHANGEABLE, "frames between two checkpoints; none for the last only"
    ] = 500_000
    keep_switch_weights: Annotated[
        int,
        Between(0, 10_000),
        Tag.MACHINE,
        Tag.CHANGEABLE,
        "switches of which the weights are kept, the last ones, for clearl video --switch; 0 for none",
    ] = 8
    tensorboard: Annotated[bool, Tag.MACHINE, Tag.CHANGEABLE, "mirror the metrics to TensorBoard"] = False
    wandb: Annotated[bool, Tag.MACHINE, Tag.CHANGEABLE, "mirror the metrics to Weights & Biases"] = False
    trackio: Annotated[bool, Tag.MACHINE, Tag.CHANGEABLE, "mirror the metrics to Trackio, on this machine"] = False
    mirrors: Annotated[
        tuple[str, ...], Tag.MACHINE, Tag.CHANGEABLE, "mirrors of your own, registered by a module of --imports"
    ] = ()

    frame_stack: Annotated[int | None, Between(1, 16), "frames in one observation"] = None
    owned: tuple[tuple[str, Any], ...] = ()
    """Settings of plug-ins that are not at their default."""

    def __init__(self, **values: Any) -> None:
        values = {**dict(values.pop("owned", ())), **values}
        known = settings()
        check_keys(values)
        for name in core_settings():
            object.__setattr__(self, name, known[name].checked(values.pop(name, known[name].default)))
        checked = {name: known[name].checked(value) for name, value in values.items()}
        changed = {name: value for name, value in checked.items() if value != known[name].default}
        object.__setattr__(self, "owned", tuple(sorted(changed.items())))
        for conflict in (*_conflicts(self), *check_owned(self)):
            raise ConfigError(conflict)

    def __getattr__(self, name: str) -> Any:
        """Return a setting that a plug-in declares; called only for names that are no field."""
        owned = dict(self.__dict__.get("owned", ()))
        if name not in owned and (name.startswith("_") or name not in owned_settings()):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return owned[name] if name in owned else owned_settings()[name].default

    @property
    def mirror_names(self) -> tuple[str, ...]:
        """Mirrors that rows are sent to beside the metrics file."""
        return (*(name for name in ("tensorboard", "wandb", "trackio") if getattr(self, name)), *self.mirrors)

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules that the run imports first: those of `imports`, and those that its ids name."""
        return named_modules({**vars(self), **dict(self.owned)})

    def buffer_size_frames(self, total_frames: int | None) -> int:
        """Return the frames that the replay buffer holds, of `total_frames` of training (None: unknown, by episodes).

        Not for a buffer in bytes, whose frames depend on the tasks: see `clearl.wiring.buffer_size_frames`.
        """
        if self.buffer_frames is not None:
            return self.buffer_frames
        if total_frames is None:
            raise ConfigError(
                "buffer_share needs a length in frames; with episodes_per_visit or cycles forever give buffer_frames "
                "or replay_budget"
            )
        return max(1, int(self.buffer_share * total_frames))


def core_settings() -> dict[str, Setting]:
    """Return the fields of `RunConfig` as settings."""
    return {name: setting for name, setting in settings_of(RunConfig).items() if name != "owned"}


def settings() -> dict[str, Setting]:
    """Return every setting of a run.

    The fields of `RunConfig`, and those that registered plug-ins declare.
    """
    owned, core = dict(owned_settings()), core_settings()
    for name in owned.keys() & core.keys():
        raise ConfigError(f"setting {name!r} of {owned[name].group!r} is one of every run; give yours another name")
    return core | owned


def names_tagged(*tags: Tag) -> frozenset[str]:
    """Return the settings that carry one of the tags."""
    return frozenset(name for name, setting in settings().items() if setting.tags & {*tags})


def may_change() -> frozenset[str]:
    """Return the settings that do not touch learning: a resumed run may come with others."""
    return names_tagged(Tag.PLACEMENT, Tag.CHANGEABLE)


def _conflicts(c: RunConfig) -> Iterator[str]:
    """Yield a message for every combination of settings that does not go together."""
    if (c.frames_per_visit is None) == (c.episodes_per_visit is None):
        yield "give either frames_per_visit or episodes_per_visit, and none for the other"
    if c.batch_unrolls > c.slots:
        yield f"batch_unrolls must be between 1 and slots ({c.slots}), got {c.batch_unrolls}: no slot is in it twice"
    if c.workers is not None and c.workers > c.slots:
        yield f"workers must be between 1 and slots ({c.slots}), got {c.workers}: each needs a slot"
    if c.pairs == "either" and c.replay_ratio is not None:
        yield "replay_ratio is for pairs both; with pairs either give replay_fraction"
    if c.replay_state != "stored" and not c.lstm:
        yield f"replay_state {c.replay_state} is for recurrent networks: set lstm to true, or replay_state to stored"
    if c.burn_in_steps is not None and c.replay_state != "burn-in":
        yield f"burn_in_steps is for replay_state burn-in, but replay_state is {c.replay_state}"
    if c.replay_state == "burn-in" and (c.burn_in_steps or 1) >= c.unroll_steps:
        yield f"burn_in_steps must be less than unroll_steps ({c.unroll_steps}), got {c.burn_in_steps or 1}"
    if c.pairs == "both" and c.replay_fraction != RunConfig.replay_fraction:
        yield "replay_fraction is for pairs either; with pairs both give replay_ratio"
    if len(set(c.tasks)) < len(c.tasks):
        yield f"tasks must differ from each other, got {','.join(c.tasks)}"
    if c.cycles == FOREVER and c.anneal:
        yield "anneal needs an end; with cycles forever set anneal to false"
    if c.address is not None and c.runtime != "ray":
        yield f"address is for runtime ray, but runtime is {c.runtime!r}"
    if c.anneal and c.episodes_per_visit is not None:
        yield "anneal needs a length in frames; with episodes_per_visit set anneal to false"
    smallest = c.slots * c.unroll_steps * (c.action_repeat or 1)
    if c.buffer_frames is not None and c.buffer_frames < smallest:
        yield f"buffer_frames must be at least {smallest} (slots x unroll_steps x action_repeat), got {c.buffer_frames}"
    if c.replay_budget is not None and (c.buffer_frames is not None or c.buffer_share != RunConfig.buffer_share):
        yield "replay_budget is the size of the replay buffer in bytes: give it, buffer_frames or buffer_share, not two"
    if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", c.device):
        yield f"device must be cpu, cuda, cuda:N or mps, got {c.device!r}"
    for name in ("normalise_observations", "scale_returns"):
        if c.device == "mps" and getattr(c, name):
            yield f"{name} needs float64, which device mps has not: set {name} to false, or device to cpu"
    if c.runtime == "inline" and c.device != "cpu":
        yield f"runtime inline acts with the learner's own network: device must be cpu, got {c.device!r}; or use local"
    for module in c.imports:
        if problem := name_problem(module):
            yield problem


def check_keys(layer: Mapping[str, Any]) -> None:
    """Refuse a key that is no setting, with the nearest ones that are."""
    known = settings()
    for key in layer:
        if key not in known:
            error = UnknownNameError("setting", str(key), known)
            modules = ",".join(named_modules(layer))
            raise ConfigError(f"{error}; or import what declares it: --imports {modules}") if modules else error
