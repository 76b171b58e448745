"""Notice a policy that has collapsed, from the rows of a run, and say what helps."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from clearl.records.schema import Row

LEAST_ENTROPY = 1e-3
"""Entropy in nats per step below which a policy over choices no longer explores; uniform over two has 0.69."""
LARGEST_GRAD_NORM = 1e6
"""Gradient norm, before clipping, above which training counts as collapsed; healthy runs stay below a few thousand."""
ROWS = 5
"""Consecutive rows that must show a sign of collapse: a single one may be an outlier."""


class CollapseWatch:
    """Reads the rows of a run and warns once if its policy has collapsed.

    `least_entropy` is None for actions with real numbers: their differential entropy may be zero or negative.
    """

    def __init__(
        self, batch_steps: int, say: Callable[[str], object] | None = None, *,
        least_entropy: float | None = LEAST_ENTROPY,
    ) -> None:  # fmt: skip
        self._batch_steps, self._say, self._least_entropy = batch_steps, say or _on_stderr, least_entropy
        self._rows = 0
        self.said = False

    def update(self, row: Row) -> None:
        """Take in one metrics row."""
        if row["kind"] != "train" or self.said:
            return
        signs = list(self._signs(row))
        self._rows = self._rows + 1 if signs else 0
        if self._rows == ROWS:
            self.said = True
            self._say(
                f"clearl: at frame {int(row['frames']):,} {' and '.join(signs)}: the policy may have collapsed. Try a "
                "lower --learning-rate or --grad-norm-clip, a higher --entropy-weight, or --reward-clip unit"
            )

    def _signs(self, row: Row) -> Iterator[str]:
        entropy, norm = _entropy(row, self._batch_steps), row.get("grad_norm")
        if self._least_entropy is not None and entropy is not None and entropy < self._least_entropy:
            yield f"the policy is deterministic (entropy {entropy:.1g})"
        if norm is not None and norm > LARGEST_GRAD_NORM:
            yield f"gradients reach {norm:.1g}"


def _on_stderr(line: str) -> None:
    if sys.stderr is not None:  # closed with 2>&-
        sys.stderr.write(f"{line}\n")


def _entropy(row: Row, batch_steps: int) -> float | None:
    """Return the entropy in nats per step: as diagnosed, or from the loss, which is a sum over the batch."""
    diagnosed = row.get("diagnostics", {}).get("new", {}).get("entropy")
    if diagnosed is not None:
        return diagnosed
    summed = row["loss"].get("entropy")
    return None if summed is None else abs(summed) / batch_steps
