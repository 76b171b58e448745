"""The recurrent core: an LSTM whose state is reset inside an unroll wherever an episode begins."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class LstmCore(nn.Module):
    """An LSTM over features, the last action as its head embeds it, and the last reward; its state is one flat row."""

    def __init__(self, feature_size: int, action_size: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.state_size = 2 * size
        # Gates stand in the order input, forget, output, candidate: the three sigmoids are one slice.
        self.weight_input = nn.Parameter(torch.empty(4 * size, feature_size + action_size + 1))
        self.weight_hidden = nn.Parameter(torch.empty(4 * size, size))
        self.bias = nn.Parameter(torch.empty(4 * size))

    def initialise(self, generator: torch.Generator) -> None:
        """Initialise uniformly with variance 1/fan-in; the forget gates begin open."""
        for weight in (self.weight_input, self.weight_hidden):
            bound = (3 / weight.shape[1]) ** 0.5
            nn.init.uniform_(weight, -bound, bound, generator=generator)
        with torch.no_grad():
            self.bias.zero_()
            self.bias[self.size : 2 * self.size] = 1.0

    def forward(
        self, features: Tensor, last_action: Tensor, last_reward: Tensor, first: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """features [T, B, F], last_action [T, B, action_size], state [B, 2H] -> (outputs [T, B, H], state)."""
        inputs = torch.cat([features, last_action.to(features.dtype), last_reward.to(features.dtype).unsqueeze(-1)], -1)
        gates = functional.linear(inputs, self.weight_input, self.bias).float()
        keep = (~first).to(gates.dtype).unsqueeze(-1)
        hidden, cell = state.to(gates.dtype).chunk(2, -1)
        with torch.autocast(gates.device.type, enabled=False):  # rounding would add up over the steps
            recur = _Recurrence.apply if torch.is_grad_enabled() else _recur
            outputs, hidden, cell, *_ = recur(gates, self.weight_hidden, hidden, cell, keep)  # type: ignore[misc]  # torch types `apply` as Any | None
        return outputs, torch.cat([hidden, cell], -1)


def _step(gates: Tensor, weight_t: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, ...]:
    """Compute one step of an LSTM: the new hidden state and cell, then what its backward pass needs."""
    size = hidden.shape[1]
    total = torch.addmm(gates, hidden, weight_t)
    sigmoid, candidate = total[:, : 3 * size].sigmoid(), total[:, 3 * size :].tanh()
    enter, forget, leave = sigmoid.chunk(3, 1)
    cell = torch.addcmul(forget * cell, enter, candidate)
    squash = cell.tanh()
    return leave * squash, cell, sigmoid, candidate, squash


def _recur(gates: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor, keep: Tensor) -> tuple[Tensor, ...]:
    """Run `_Recurrence` for acting, without keeping anything for a backward pass: (outputs, hidden, cell)."""
    outputs = []
    for gates_t, keep_t in zip(gates.unbind(), keep.unbind(), strict=True):
        hidden, cell, *_ = _step(gates_t, weight.t(), hidden * keep_t, cell * keep_t)
        outputs.append(hidden)
    return torch.stack(outputs), hidden, cell


class _Recurrence(torch.autograd.Function):
    """The part of an LSTM that must go step by step, with its backward pass by hand.

    Autograd through the same loop took 31 ms where this takes 21 (T=20, B=32, H=256, one thread); nn.LSTM takes 16, but
    cannot reset inside an unroll, and cut into runs of 5 steps it takes 22.
    """

    @staticmethod
    def forward(gates: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor, keep: Tensor) -> tuple[Tensor, ...]:
        outputs, sigmoids, candidates, squashed, hiddens, cells = [], [], [], [], [], []
        for gates_t, keep_t in zip(gates.unbind(), keep.unbind(), strict=True):
            hidden, cell = hidden * keep_t, cell * keep_t
            hiddens.append(hidden)
            cells.append(cell)
            hidden, cell, sigmoid, candidate, squash = _step(gates_t, weight.t(), hidden, cell)
            outputs.append(hidden)
            sigmoids.append(sigmoid)
            candidates.append(candidate)
            squashed.append(squash)
        kept = (torch.stack(part) for part in (sigmoids, candidates, squashed, hiddens, cells))
        return torch.stack(outputs), hidden, cell, *kept

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        _, weight, _, _, keep = inputs
        ctx.save_for_backward(weight, keep, *output[3:])
        ctx.mark_non_differentiable(*output[3:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_outputs, grad_hidden, grad_cell = grads[:3]
        weight, keep, sigmoid, candidate, squash, hidden, cell = ctx.saved_tensors
        enter, forget, leave = sigmoid.chunk(3, -1)
        # The factors of the incoming gradient are computed for all steps at once.
        slope_enter, slope_forget, slope_leave = (sigmoid * (1 - sigmoid)).chunk(3, -1)
        slopes = (
            candidate * slope_enter,
            cell * slope_forget,
            squash * slope_leave,
            enter * (1 - candidate * candidate),
            leave * (1 - squash * squash),
            forget * keep,
        )
        grad_gates = []
        steps = zip(*(part.unbind()[::-1] for part in (grad_outputs, keep, *slopes)), strict=True)
        for grad_output, keep_t, to_enter, to_forget, to_leave, to_candidate, to_cell, back in steps:
            grad_hidden = grad_hidden + grad_output
            grad_cell = torch.addcmul(grad_cell, grad_hidden, to_cell)
            parts = grad_cell * to_enter, grad_cell * to_forget, grad_hidden * to_leave, grad_cell * to_candidate
            grad_total = torch.cat(parts, 1)
            grad_gates.append(grad_total)
            grad_hidden, grad_cell = (grad_total @ weight) * keep_t, grad_cell * back
        grad_all = torch.stack(grad_gates[::-1])
        grad_weight = grad_all.flatten(0, 1).t() @ hidden.flatten(0, 1)
        return grad_all, grad_weight, grad_hidden, grad_cell, None
