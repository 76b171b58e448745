"""The paper's double sum of V-trace, written out literally in float64, as a reference for every correction."""

from __future__ import annotations

import numpy as np


def double_sum(
    rho: np.ndarray, c: np.ndarray, gamma: np.ndarray, r: np.ndarray, v: np.ndarray, v_last: float
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """v_s = V_s + sum_{t=s}^{T-1} (prod_{i=s}^{t-1} gamma_i c_i) rho_t delta_t, for one column; and its advantages."""
    steps = len(r)
    v_next = np.append(v[1:], v_last)
    targets = np.empty(steps)
    for s in range(steps):
        total = v[s]
        for t in range(s, steps):
            product = 1.0
            for i in range(s, t):
                product *= gamma[i] * c[i]
            total += product * rho[t] * (r[t] + gamma[t] * v_next[t] - v[t])
        targets[s] = total
    targets_next = np.append(targets[1:], v_last)
    return targets, rho * (r + gamma * targets_next - v)
