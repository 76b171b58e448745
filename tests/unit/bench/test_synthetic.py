"""Light workers behind the loop of every runtime, and a real learner."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearl.bench.workloads import workload

ROOT = Path(__file__).resolve().parents[3]


def test_light_workers_feed_a_real_learner_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.synthetic import serve

    config = workload("minatar", tasks=("breakout",), slots=6, batch_unrolls=4, unroll_steps=5, learner_threads=1)
    # The second worker is the slowest by far, and no turn of it is passed over for long.
    done = serve(config, workers=3, seconds=0.3, unroll_s=lambda index: 0.002 if index == 1 else 0.0)
    assert done.updates >= 1 and done.pairs == 4 * done.updates and done.frames == 5 * done.pairs
    assert done.frames_per_s == pytest.approx(20 * done.updates_per_s)
    assert len(done.pairs_by_worker) == 3 and max(done.pairs_by_worker) <= 2 * min(done.pairs_by_worker)
    assert sum(done.pairs_by_worker) >= done.pairs
