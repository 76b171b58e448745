"""The settings that methods declare, apart from the methods themselves so that `--help` imports no torch.

The first line of a docstring is the heading of the settings in `--help`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from clearl.config.engine import Between, Count, Lambda, Positive, Share, Weight, settings_class

if TYPE_CHECKING:
    from clearl.config import RunConfig


@settings_class
class LossWeights:
    """CLEAR and the baseline"""

    policy_gradient_weight: Annotated[Weight, "weight of the policy gradient"] = 1.0
    value_weight: Annotated[Weight, "weight of (V - v)^2; 0.25 gives what IMPALA's code does"] = 0.5
    entropy_weight: Annotated[Weight, "weight of the entropy bonus; the paper's DMLab runs: 0.005"] = 0.01
    policy_cloning_weight: Annotated[Weight, "weight of KL[mu||pi] on replay"] = 0.01
    value_cloning_weight: Annotated[Weight, "weight of (V - V_replay)^2 on replay"] = 0.005


@settings_class
class ClearSettings(LossWeights):
    """Correction"""

    correction: Annotated[str, "for experience of older policies; `clearl list corrections` shows them"] = "vtrace"


@settings_class
class VtraceSettings:
    """V-trace and other corrections"""

    rho_bar: Annotated[float, Between(1e-6, 1000), "V-trace: clip of the temporal difference's weight"] = 1.0
    c_bar: Annotated[float, Between(1e-6, 1000), "V-trace: clip of the trace's weight"] = 1.0

    @staticmethod
    def conflicts(config: RunConfig) -> Iterator[str]:
        if config.c_bar > config.rho_bar:
            yield f"c_bar must be between 0 and rho_bar ({config.rho_bar:g}), got {config.c_bar:g}"


@settings_class
class LeakyVtraceSettings(VtraceSettings):
    """Correction leaky-vtrace"""

    vtrace_leak: Annotated[Share, "share of the unclipped ratio in V-trace's weights"] = 0.1


@settings_class
class TrustRegionSettings(VtraceSettings):
    """Correction trust-region"""

    trust_region: Annotated[Positive, "b: states with KL[pi||implied policy] from here on are not learnt from"] = 0.3


@settings_class
class FisherSettings:
    """Fisher information"""

    fisher_batches: Annotated[int, Between(1, 100_000), "minibatches for one estimate of the Fisher"] = 100


@settings_class
class EwcSettings(FisherSettings):
    """EWC"""

    ewc_lambda: Annotated[Lambda, "EWC: weight of the penalty"] = 500.0
    ewc_omit_current: Annotated[bool, "EWC: leave out the anchor of the task that is visited"] = False


@settings_class
class OnlineEwcSettings(FisherSettings):
    """Online EWC and compress phase"""

    online_ewc_lambda: Annotated[Lambda, "online EWC, and P&C's compress phase: weight of the penalty"] = 75.0
    ewc_gamma: Annotated[Share, "online EWC: decay of the old Fisher at each switch"] = 0.99


@settings_class
class ProgressCompressSettings(OnlineEwcSettings):
    """Progress & Compress"""

    compress_frames: Annotated[Count | None, "P&C: length of a compress phase; default: as long as the visit"] = None
    compress_on_top: Annotated[
        bool, "P&C: compress after the visit's frames; false: within them, a quarter by default"
    ] = True
    compress_temperature: Annotated[float, Between(0.01, 100), "P&C: temperature of the distillation"] = 1.0
    reset_active: Annotated[bool, "P&C: a new active column for each visit"] = True

    @staticmethod
    def conflicts(config: RunConfig) -> Iterator[str]:
        frames, visit = config.compress_frames, config.frames_per_visit
        if frames is not None and not config.compress_on_top and frames >= (visit or math.inf):
            yield f"compress_frames must be less than frames_per_visit ({visit}), got {frames}"


@settings_class
class L2InitSettings:
    """L2 init"""

    l2_init_weight: Annotated[Weight, "weight of the squared distance from the initial parameters"] = 0.1


@settings_class
class ContinualBackpropSettings:
    """Continual backprop"""

    cbp_replacement_rate: Annotated[Share, "share of the mature units that is replaced at each update"] = 1e-4
    cbp_maturity_updates: Annotated[int, Between(0, 10**9), "updates before a new unit may be replaced"] = 100
    cbp_decay: Annotated[float, Between(0, 0.999999), "of the running mean of a unit's utility"] = 0.99


@settings_class
class TrustSettings:
    """Trust in replay"""

    trust_slope: Annotated[Weight, "k: how fast trust in a replayed unroll falls with the evidence; 0 trusts all"] = 5.0
    trust_rate: Annotated[float, Between(0, 10), "learning rate of the classifiers that trust rests on"] = 3e-3
    trust_scope: Annotated[
        Literal["cloning", "replay"], "what a distrusted unroll is left out of: cloning, or all losses"
    ] = "replay"
