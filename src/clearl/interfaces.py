"""The interfaces that a plug-in may rely on, each with a sketch of its use. Re-exports only.

While clearl's first version number is 0, names here change only with the second one, later only with the first, and
with a note in the changelog; everything else may change in any version.
`docs/extending.md` has a worked example of each kind of plug-in, `clearl.testing` the checks that plug-ins must pass.
Name a module that registers plug-ins with `--imports`, or give an installed package an entry point of the group
`clearl.methods`, `clearl.corrections`, `clearl.suites`, `clearl.protocols`, `clearl.torsos`, `clearl.mirrors` or
`clearl.runtimes`.

**Settings.** A method, correction, suite, protocol or runtime declares its settings as a frozen dataclass in its
attribute `settings`. They become flags, keys of config files and attributes of the run's config, checked like all
others. A static method `conflicts(config)` may yield messages about settings that do not go together:

    @dataclass(frozen=True)
    class MySettings:
        "My method"                                        # the heading in --help
        my_weight: Annotated[Weight, "weight of my term"] = 0.1

**Method.** `METHODS.register("mine", MyMethod)`; a `Wrapper` adds to another method (`--method mine+clear`):

    class MyMethod(Wrapper):
        label, settings, terms = "Mine", MySettings, ("my_term",)

        @classmethod
        def around(cls, base, config): ...                 # config.my_weight
        def weights(self): return {**super().weights(), "my_term": self.weight}
        def losses(self, network, batch): return {**super().losses(network, batch), "my_term": ...}
        def before_step(self, gradients): ...              # change gradients in place
        def after_step(self, network, optimizer): ...      # change parameters; optimizer.reset(parameter, index)

**Correction.** `CORRECTIONS.register("mine", Mine)`; a class with `from_config`, whose instances map a `Trace` to
(targets, advantages). `weighted_targets(trace, rhos, cs)` is V-trace's sum with weights of your own.

**Torso.** `TORSOS.register("mine", build)` with `build(observation_shape)` an `nn.Module` that has `out_size`.

**Suite.** `SUITES.register("mine", MySuite)`; a class `(tasks, config)` with `default_tasks`, `known_tasks`, `settings`
whose instances are a `Suite`: `spec`, `mask(task)`, `make(task, num_envs=, seed=, training=)` gives `Envs`. With
`make_scene(task, seed=)` (`DrawsStates`) videos show the environment's own pictures.

**Protocol.** `PROTOCOLS.register("mine", plan)`; a pure function `(tasks, config) -> [Plan(name, segments, evaluate)]`.
With settings that derive from `RangeSettings` it takes ranges of parameters and `drift_applied`.

**Mirror.** `MIRRORS.register("mine", MyMirror)`; a class `(run_dir)` with `write(row)` and `close()`, which receives
the rows of a run (`--mirrors mine`).
"""

from clearl.config import Between, Count, Lambda, Positive, RunConfig, Share, Tag, Weight
from clearl.errors import ClearlError, ConfigError, NoPictureError
from clearl.methods import CORRECTIONS, METHODS
from clearl.methods.corrections import Correction, Trace, weighted_targets
from clearl.methods.method import Method, OptimizerState, Wrapper, layers
from clearl.nets.heads import Distribution, Head
from clearl.nets.network import PolicyNetwork, StepInput, StepOutput, as_module
from clearl.nets.torsos import TORSOS
from clearl.protocols import PROTOCOLS
from clearl.protocols.settings import RangeSettings
from clearl.protocols.visits import cyclic_visits, visits_frames, visits_length
from clearl.records.mirrors import MIRRORS, Mirror
from clearl.registry import Registry
from clearl.seeding import derive, generator
from clearl.spaces import ActionSpec, ObservationSpec, PartSpec, TaskSpec, discrete_spec
from clearl.suites import SUITES, SuiteMaker
from clearl.tasks.plan import Plan, Segment, single
from clearl.tasks.suite import DrawsStates, Envs, Scene, Suite
from clearl.types import Batch, EnvStep, Visit

__all__ = [
    "CORRECTIONS", "METHODS", "MIRRORS", "PROTOCOLS", "SUITES", "TORSOS", "ActionSpec", "Batch", "Between",
    "ClearlError", "ConfigError", "Correction", "Count", "Distribution", "DrawsStates", "EnvStep", "Envs", "Head",
    "Lambda", "Method", "Mirror", "NoPictureError", "ObservationSpec", "OptimizerState", "PartSpec", "Plan",
    "PolicyNetwork", "Positive", "RangeSettings", "Registry", "RunConfig", "Scene", "Segment", "Share", "StepInput",
    "StepOutput", "Suite", "SuiteMaker", "Tag", "TaskSpec", "Trace", "Visit", "Weight", "Wrapper", "as_module",
    "cyclic_visits", "derive", "discrete_spec", "generator", "layers", "single", "visits_frames", "visits_length",
    "weighted_targets",
]  # fmt: skip
