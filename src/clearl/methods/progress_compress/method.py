"""Progress & Compress (Schwarz 2018), around any base method.

Each visit begins with progress: the base method trains the active column, which the frozen knowledge base helps
through adaptors. It ends with compression: the active column, now frozen, is distilled into the knowledge base, which
online EWC holds to what it knew. Compression comes on top of the visit's frames, as in its authors' runs, so that the
active column trains for as long as a method without it. Acting uses the active column throughout; what is distilled is
what it does while compressing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Unpack

from torch import Tensor

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.methods.anchors import OnlineAnchor, select
from clearl.methods.consolidation import Consolidation, FisherOptions, fisher_options
from clearl.methods.ewc import check_gamma, check_wrapped
from clearl.methods.method import Method, OptimizerState, Wrapper
from clearl.methods.progress_compress.two_columns import ACTIVE, KNOWLEDGE_BASE, TwoColumns
from clearl.methods.settings import ProgressCompressSettings
from clearl.nets.growth import NetworkGrowth
from clearl.nets.network import ActorCritic, PolicyNetwork, StepInput
from clearl.types import Batch, Visit

COMPRESS_SHARE = 0.25
"""Share of a visit's frames, where compression lies within the visit and `compress_frames` is not given."""


class ProgressCompress(Wrapper):
    """The base method on the active column, then KL[active || knowledge base] under online EWC."""

    label = "Progress & Compress"
    settings = ProgressCompressSettings
    needs_boundaries = True
    terms = ("distillation", "ewc")

    def __init__(
        self,
        base: Method,
        *,
        lam: float = 75.0,
        gamma: float = 0.99,
        compress_frames: int | None = None,
        extra_frames_share: float = 0.0,
        temperature: float = 1.0,
        reset_active: bool = True,
        **fisher: Unpack[FisherOptions],
    ) -> None:
        """Compression takes `extra_frames_share` of a visit's frames on top of them; 1.0 is what its authors did.

        Where that is 0 it takes the visit's last `compress_frames`; None means a quarter of the visit.
        """
        super().__init__(base)
        check_wrapped(base, lam)
        check_gamma(gamma)
        if compress_frames is not None and compress_frames < 1:
            raise ConfigError(f"compress_frames must be at least 1, got {compress_frames}")
        if not 0 < temperature < float("inf"):
            raise ConfigError(f"compress_temperature must be above 0, got {temperature}")
        if isinstance(base, Wrapper):
            raise ConfigError("Progress & Compress joins plain networks: it must be the innermost wrapper of a method")
        self.lam = lam
        self.compress_frames, self.temperature, self.reset_active = compress_frames, temperature, reset_active
        self.consolidation = Consolidation(OnlineAnchor(gamma), **fisher)
        self.extra_frames_share = extra_frames_share
        self.compressing = False
        self._restart: int | None = None  # the visit whose active column is still to be made

    @classmethod
    def around(cls, base: Method, config: RunConfig) -> ProgressCompress:
        visit, compress = config.frames_per_visit, config.compress_frames
        on_top = config.compress_on_top and visit is not None
        return cls(
            base,
            lam=config.online_ewc_lambda,
            gamma=config.ewc_gamma,
            compress_frames=None if on_top else compress,
            extra_frames_share=(compress or visit) / visit if on_top and visit else 0.0,
            temperature=config.compress_temperature,
            reset_active=config.reset_active,
            **fisher_options(config),
        )

    def build_network(self, build: Callable[[], PolicyNetwork]) -> PolicyNetwork:
        active, knowledge_base = self.base.build_network(build), self.base.build_network(build)
        if not isinstance(active, ActorCritic) or not isinstance(knowledge_base, ActorCritic):
            raise ConfigError("Progress & Compress joins plain networks: its base must be 'baseline' or 'clear'")
        return TwoColumns(active, knowledge_base, seed=self.consolidation.seed)

    def weights(self) -> Mapping[str, float]:
        if not self.compressing:
            return self.base.weights()
        return {"distillation": 1.0, "ewc": self.lam}

    def losses(self, network: PolicyNetwork, batch: Batch) -> dict[str, Tensor]:
        columns = _two(network)
        self.consolidation.observe(replace(batch, core_state=columns.knowledge_state(batch.core_state)))
        return self._distillation(columns, batch) if self.compressing else self.base.losses(network, batch)

    def visit(self, network: PolicyNetwork, visit: Visit) -> None:
        columns = _two(network)
        super().visit(network, visit)
        if self.consolidation.switches(visit):
            self.consolidation.consolidate(columns.knowledge_base)
            columns.connect()
            self._restart = visit.index if self.reset_active else None
        self.consolidation.enter(visit)
        self._set_phase(columns, visit.frames >= self._compress_from(visit))

    def before_step(self, gradients: Mapping[str, Tensor]) -> None:
        self.consolidation.compare(gradients, self.lam, prefix="knowledge_base.")
        super().before_step(gradients)

    def after_step(self, network: PolicyNetwork, optimizer: OptimizerState) -> None:
        """Restart the active column and the optimiser's moments of it together, after the first update of a visit."""
        super().after_step(network, optimizer)
        if self._restart is None:
            return
        columns = _two(network)
        columns.restart_active(self._restart)
        for name, parameter in columns.named_parameters():
            if not name.startswith(f"{KNOWLEDGE_BASE}."):
                optimizer.reset(parameter)
        self._restart = None

    def diagnostics(self) -> dict[str, float]:
        return super().diagnostics() | self.consolidation.diagnostics()

    def own_tensors(self) -> dict[str, Tensor]:
        return {f"ewc/{name}": tensor for name, tensor in self.consolidation.tensors().items()}

    def own_state(self) -> dict[str, Any]:
        return {"ewc": self.consolidation.state(), "compressing": self.compressing, "restart": self._restart}

    def grown_own(self, tensors: Mapping[str, Tensor], growth: NetworkGrowth) -> dict[str, Tensor]:
        grown = self.consolidation.grown(select(tensors, "ewc/"), growth, f"{KNOWLEDGE_BASE}.")
        return {f"ewc/{name}": tensor for name, tensor in grown.items()}

    def restore_own(self, network: PolicyNetwork, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        self.consolidation.restore(select(tensors, "ewc/"), state["ewc"])
        self._set_phase(_two(network), bool(state["compressing"]))
        self._restart = state.get("restart")

    def _distillation(self, columns: TwoColumns, batch: Batch) -> dict[str, Tensor]:
        """Distil on the whole batch: where the base replays, the active column has learnt from replay, too."""
        inputs = StepInput(batch.observation, batch.last_action, batch.last_reward, batch.first)
        active, knowledge = columns.unroll_both(inputs, batch.core_state)
        teacher, pupil = (
            columns.head.distribution(output.policy[:-1], batch.mask).softened(self.temperature)
            for output in (active, knowledge)
        )
        # Soft targets have gradients smaller by the temperature squared (Hinton 2015).
        divergence = self.temperature**2 * teacher.kl(pupil)
        return {
            "distillation": (divergence * batch.valid).sum(),
            "ewc": self.consolidation.penalty(columns.knowledge_base),
        }

    def _set_phase(self, columns: TwoColumns, compressing: bool) -> None:
        self.compressing = compressing
        columns.train_column(KNOWLEDGE_BASE if compressing else ACTIVE)

    def _compress_from(self, visit: Visit) -> int:
        if visit.end_frames is None:
            raise ConfigError("Progress & Compress must know where a visit ends: give frames_per_visit, not episodes")
        if visit.extra_frames:
            return visit.end_frames - visit.extra_frames
        length = visit.end_frames - visit.start_frames
        frames = round(COMPRESS_SHARE * length) if self.compress_frames is None else self.compress_frames
        if frames >= length:
            raise ConfigError(f"compress_frames ({frames}) must leave frames of a visit ({length}) to progress in")
        return visit.end_frames - frames


def _two(network: PolicyNetwork) -> TwoColumns:
    assert isinstance(network, TwoColumns), "Progress & Compress trains the network that it built"
    return network
