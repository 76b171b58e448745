"""Make the checkpoint that an extended run starts from out of its last one, with a larger network if needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from clearl.config import RunConfig
from clearl.growth import Growth
from clearl.learning.growth import grown_tensors
from clearl.learning.learner import Learner
from clearl.methods import make_method
from clearl.nets.growth import NetworkGrowth
from clearl.nets.network import PolicyNetwork, as_module
from clearl.nets.weights import FlatWeights
from clearl.spaces import spec_to_json
from clearl.storage.checkpoints import Saved
from clearl.tasks.plan import Plan
from clearl.unroll import Unroll, UnrollLayout, as_plain, from_named, from_plain
from clearl.wiring import RunFactory, make_network

_MIXING = ("pairs", "replay_ratio", "replay_fraction", "method")


def next_tree(
    saved: Saved, before: RunConfig, factory: RunFactory, plan: Plan, kept: int, sequences: Sequence[int],
    growth: Growth | None,
) -> dict[str, Any]:  # fmt: skip
    """Return the checkpoint from which the segments after the first `kept` begin."""
    config, tree = factory.config, dict(saved.tree)
    learner = factory.learner(plan)
    if growth is not None:
        tree |= _grown_parts(tree, growth, before, factory, learner)
    learner.take_over(tree["learner"]["tensors"], tree["learner"]["state"], **_kept_parts(before, config))
    tree["learner"] = {"tensors": learner.tensors(), "state": learner.state()}
    if any(getattr(before, name) != getattr(config, name) for name in (*_MIXING, "batch_unrolls")):
        tree["mixer"] = factory.mixer().state()
        rows, slots = factory.intake().state()
        tree["intake"] = {"rows": rows, "slots": slots}
    cursor = dict(tree["cursor"])
    planned = [segment.frames for segment in plan.segments[:kept]]
    boundary = sum(frames or 0 for frames in planned) if None not in planned else cursor["granted_frames"]
    cursor |= {"segment": kept, "segment_start": boundary, "segment_episodes": 0}
    return tree | {
        "cursor": cursor, "actor": None, "finished": False, "planned_segments": kept,
        "shards": list(sequences) if factory.method.replay_fraction > 0 else [],
        "segment": min(int(tree.get("segment", kept)), kept), "spec": spec_to_json(factory.suite.spec),
    }  # fmt: skip


def _kept_parts(before: RunConfig, config: RunConfig) -> dict[str, bool]:
    """Return which parts of a learner are kept in addition to its network."""
    return {"optimizer": config.optimizer == before.optimizer, "method": config.method == before.method}


def _grown_parts(
    tree: Mapping[str, Any], growth: Growth, before: RunConfig, factory: RunFactory, learner: Learner
) -> dict[str, Any]:
    """Fit the parts of a checkpoint that depend on spaces to the new ones."""
    old = make_network(before, growth.old, make_method(before))
    networks = NetworkGrowth(old, learner.network, growth)
    names = [name for name, _ in as_module(old).named_parameters()]
    kept = _kept_parts(before, factory.config)
    tensors = grown_tensors(tree["learner"]["tensors"], names, learner, networks, **kept)
    assert factory.codec  # raises if new and old unrolls could not be distinguished
    return {
        "learner": {**tree["learner"], "tensors": tensors},
        "intake": {**tree["intake"], "rows": _grown_rows(tree["intake"]["rows"], growth, factory.layout)},
        "snapshots": [
            {**snapshot, "weights": _grown_weights(snapshot["weights"], old, networks)}
            for snapshot in tree.get("snapshots", ())
        ],
    }


def _grown_rows(rows: Mapping[str, np.ndarray], growth: Growth, layout: UnrollLayout) -> dict[str, np.ndarray]:
    """Pad the unrolls that wait for a full batch."""
    fields = replace(layout, spec=growth.old).fields
    waiting = {
        name: from_plain(array, np.dtype(fields[name].dtype)) for name, array in from_named(rows).named().items()
    }
    grown = growth.unroll(Unroll(**waiting)).named()
    return {**rows, **{name: as_plain(array) for name, array in grown.items()}}


def _grown_weights(flat: np.ndarray, old: PolicyNetwork, networks: NetworkGrowth) -> np.ndarray:
    """Grow the weights that wait for their evaluation."""
    FlatWeights(old).read_from(flat)
    state = networks.state(as_module(old).state_dict())
    return np.concatenate([tensor.detach().reshape(-1).float().numpy() for tensor in state.values()])


def sequences_of(tree: Mapping[str, Any], meta: Mapping[str, Any], config: RunConfig) -> list[int]:
    """Return how many unrolls each slot has offered to replay; after a method without replay, the meta data has it."""
    return [int(n) for n in tree["shards"] or meta.get("replay", {}).get("sequences") or [0] * config.slots]
