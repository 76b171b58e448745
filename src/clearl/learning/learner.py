"""The learner: one optimiser step per batch, and nothing else."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from clearl.config import RunConfig
from clearl.errors import ConfigError, DivergedError
from clearl.learning.diagnostics import Diagnostics, diagnose, recorded_unrolls
from clearl.learning.optimizer import annealed_rate, make_optimizer
from clearl.learning.replay_state import with_replay_state
from clearl.learning.return_scale import scaled_by_returns
from clearl.methods.method import Method
from clearl.nets.network import KeepsStatistics, PolicyNetwork, ScalesReturns, StepOutput, as_module
from clearl.types import Batch, Visit

BAD_UPDATES_IN_A_ROW = 10
_COUNTERS = ("frames", "updates", "bad_updates", "_bad_in_a_row")


@dataclass(frozen=True)
class UpdateStats:
    """The results of one update."""

    loss: dict[str, float]
    """Each term, unweighted, per step of the batch."""
    grad_norm: float
    learning_rate: float
    applied: bool
    diagnostics: Diagnostics | None = None
    """Every `diagnose_every_updates` updates only."""


class Learner:
    """Owns the network, the optimiser and the counters of training."""

    def __init__(
        self, *, network: PolicyNetwork, method: Method, config: RunConfig, batch_frames: int, total_frames: int | None
    ) -> None:
        self.network, self.method, self.config = network, method, config
        check_statistics(config, network, method.replay_fraction)
        self.device = find_device(config.device)
        as_module(network).to(self.device)
        self.batch_frames, self.total_frames = batch_frames, total_frames
        self._named = list(as_module(network).named_parameters())
        self.parameters = [parameter for _, parameter in self._named]
        self.optimizer = make_optimizer(config, self.parameters)
        self.frames = self.updates = self.bad_updates = self._bad_in_a_row = 0

    def state_nbytes(self) -> dict[str, int]:
        """Count the bytes of the network (both columns of one that has two) and of what the method keeps beside it."""
        kept = {"network": as_module(self.network).state_dict(), "method": self.method.tensors()}
        return {name: sum(tensor.nbytes for tensor in tensors.values()) for name, tensors in kept.items()}

    def update(self, batch: Batch, visit: Visit | None) -> UpdateStats:
        """Make one optimiser step. `visit` is given only where the method needs boundaries."""
        phases = self.phases(batch, visit)
        while True:
            try:
                next(phases)
            except StopIteration as end:
                return end.value

    def phases(self, batch: Batch, visit: Visit | None) -> Generator[str, None, UpdateStats]:
        """Make one optimiser step in phases, each named before it begins: the caller may do other things between."""
        if visit is not None:
            self.method.visit(self.network, visit)
        rate = annealed_rate(self.config, self.frames, self.total_frames)
        yield "forward"
        with self._recording() as outputs:
            moved = self._prepared(batch)
            self._observe(moved)
            moved = self._scaled(moved)
            losses = self._losses(moved)
            weights = self.method.weights()
            total = torch.stack([weights[name] * loss for name, loss in losses.items()]).sum()
        diagnostics = None
        if outputs is not None:
            yield "diagnostics"
            diagnostics = self._diagnose(moved, outputs, losses)
        yield "backward"
        self.optimizer.zero_grad()
        total.backward()
        self.method.before_step({name: p.grad for name, p in self._named if p.grad is not None})
        yield "optimiser"
        grads = [p.grad for p in self.parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(grads)
        applied = bool(torch.isfinite(norm) & torch.isfinite(total))
        if applied:
            self._apply(norm, rate)
        self._count(applied)
        steps = batch.reward.numel()
        values = torch.stack([loss.detach() for loss in losses.values()]).tolist()
        terms = {name: value / steps for name, value in zip(losses, values, strict=True)}
        return UpdateStats(terms, float(norm), rate, applied, diagnostics)

    def _observe(self, batch: Batch) -> None:
        """Update the network's statistics with new unrolls; replayed ones were counted when they were new."""
        if self.config.normalise_observations:
            assert isinstance(self.network, KeepsStatistics)
            self.network.observe(batch.observation[:-1, ~batch.is_replay].flatten(0, 1))

    def _scaled(self, batch: Batch) -> Batch:
        """Return the batch with rewards and stored values in the unit of the network's own values."""
        return scaled_by_returns(self.network, batch) if self.config.scale_returns else batch

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return network, optimiser and method as named tensors."""
        named = {f"network/{name}": tensor for name, tensor in as_module(self.network).state_dict().items()}
        named |= {f"optimizer/{name}": tensor for name, tensor in self.optimizer.tensors().items()}
        named |= {f"method/{name}": tensor for name, tensor in self.method.tensors().items()}
        return {name: tensor.cpu() for name, tensor in named.items()}

    def state(self) -> dict[str, Any]:
        """Return the counters and the method's own state, as JSON types."""
        counters = {name: getattr(self, name) for name in _COUNTERS}
        return {"counters": counters, "method": self.method.state()}

    def restore(self, tensors: Mapping[str, torch.Tensor], state: Mapping[str, Any]) -> None:
        """Continue exactly where `tensors` and `state` were taken."""
        parts: dict[str, dict[str, torch.Tensor]] = {"network": {}, "optimizer": {}, "method": {}}
        for name, tensor in tensors.items():
            part, _, rest = name.partition("/")
            parts[part][rest] = tensor.to(self.device)
        as_module(self.network).load_state_dict(parts["network"])
        self.optimizer.restore(parts["optimizer"])
        self.method.restore(self.network, parts["method"], state["method"])
        for name in _COUNTERS:
            setattr(self, name, int(state["counters"][name]))

    def take_over(
        self, tensors: Mapping[str, torch.Tensor], state: Mapping[str, Any], *, optimizer: bool, method: bool
    ) -> None:
        """Continue from another learner's `tensors` and `state`: the same network, and the other parts asked for."""
        kept = {"network": True, "optimizer": optimizer, "method": method}
        own = self.tensors()
        network = {name for name in own if name.startswith("network/")}
        if network != {name for name in tensors if name.startswith("network/")}:
            raise ConfigError(f"method {self.config.method} trains another network than the one that was saved")
        chosen = {name: tensor for name, tensor in tensors.items() if kept[name.partition("/")[0]]}
        others = {name: tensor for name, tensor in own.items() if not kept[name.partition("/")[0]]}
        method_state = state["method"] if method else self.method.state()
        self.restore({**others, **chosen}, {**state, "method": method_state})

    def _prepared(self, batch: Batch) -> Batch:
        with self._autocast():
            return with_replay_state(self.network, _moved(batch, self.device), self.config)

    def _autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.autocast)

    def _losses(self, batch: Batch) -> dict[str, torch.Tensor]:
        with self._autocast():
            losses = self.method.losses(self.network, batch)
        if losses.keys() != self.method.weights().keys():
            unmatched = sorted(losses.keys() ^ self.method.weights().keys())
            raise ConfigError(f"every term of the loss needs a weight, and every weight a term; unmatched: {unmatched}")
        return losses

    def _recording(self) -> AbstractContextManager[list[StepOutput] | None]:
        """Record outputs of the network if a diagnosis of this update is due; gives None otherwise."""
        every = self.config.diagnose_every_updates
        due = every is not None and (self.updates + 1) % every == 0
        return recorded_unrolls(self.network) if due else nullcontext()

    def _diagnose(self, batch: Batch, outputs: Sequence[StepOutput], losses: Mapping[str, torch.Tensor]) -> Diagnostics:
        weights, own = self.method.weights(), self.method.diagnostics()
        found = diagnose(self.network, batch, outputs, losses, weights, self.parameters, rho_bar=self.config.rho_bar)
        return found | ({"method": own} if own else {})

    def _apply(self, norm: torch.Tensor, rate: float) -> None:
        if self.config.grad_norm_clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, self.config.grad_norm_clip, norm)
        self.optimizer.lr = rate
        self.optimizer.step()
        self.method.after_step(self.network, self.optimizer)

    def _count(self, applied: bool) -> None:
        self.frames += self.batch_frames
        self.updates += 1
        self._bad_in_a_row = 0 if applied else self._bad_in_a_row + 1
        self.bad_updates += not applied
        if self._bad_in_a_row >= BAD_UPDATES_IN_A_ROW:
            raise DivergedError(
                f"losses or gradients were not finite {BAD_UPDATES_IN_A_ROW} times in a row, until update "
                f"{self.updates}; the parameters are as before. Lower learning_rate, or set grad_norm_clip"
            )


def check_statistics(config: RunConfig, network: PolicyNetwork, replay_fraction: float) -> None:
    """Refuse settings whose statistics would stay at their start for ever."""
    seams: dict[str, tuple[type, str]] = {
        "normalise_observations": (KeepsStatistics, "observe"),
        "scale_returns": (ScalesReturns, "observe_returns and return_scale"),
    }
    for setting, (seam, hooks) in seams.items():
        if not getattr(config, setting):
            continue
        if not isinstance(network, seam):
            raise ConfigError(
                f"{setting} needs a network with {hooks}, which {type(network).__name__} has not; set {setting} to "
                "false"
            )
        if replay_fraction == 1:
            raise ConfigError(
                f"{setting} learns from new experience, of which replay_fraction 1 leaves none; set {setting} to false"
            )


def find_device(name: str) -> torch.device:
    """Return the device of that name, or an error that says what there is instead."""
    device = torch.device(name)
    there = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if (device.index or 0) >= there[device.type]:
        usable = ", ".join(kind for kind, count in there.items() if count)
        raise ConfigError(f"device {name!r} is not there; torch sees: {usable} (clearl doctor says more)")
    return device


def _moved(batch: Batch, device: torch.device) -> Batch:
    """Return the batch on `device`. CUDA copies from pinned memory while the CPU continues."""
    if device.type == "cpu":
        return batch

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)

    return replace(batch, **{name: moved(tensor) for name, tensor in vars(batch).items()})
