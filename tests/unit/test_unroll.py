"""Unrolls: one type, laid out the same in new arrays, in a buffer and in a checkpoint of an older version."""

from __future__ import annotations

import numpy as np

from clearl.spaces import ActionSpec, ObservationSpec, PartSpec, TaskSpec, discrete_spec
from clearl.unroll import FIELD_NAMES, UnrollLayout, from_named

MIXED = TaskSpec(
    ObservationSpec({"a": PartSpec((2, 3, 3), "uint8"), "b": PartSpec((4,), "float32")}, stack=2),
    ActionSpec((3,), (True,)),
)


def test_the_layout_has_exactly_the_fields_of_an_unroll() -> None:
    assert tuple(UnrollLayout(MIXED, 5).fields) == FIELD_NAMES


def test_views_into_a_buffer_have_the_layout_of_new_arrays() -> None:
    for spec in (discrete_spec((2, 3, 3), "bool", 4, stack=2), MIXED):
        layout = UnrollLayout(spec, 5, core_size=3)
        buffer = bytearray(layout.buffer_nbytes(3))
        views, fresh = layout.views(buffer, 3), layout.empty(3)
        for name, array in views.named().items():
            assert array.shape == fresh.named()[name].shape and array.dtype == fresh.named()[name].dtype
        views.reward[1, 2] = 7
        assert views[1].reward.tolist() == [0, 0, 7, 0, 0] and any(buffer)


def test_the_logits_of_version_0_1_are_policies() -> None:
    unroll = UnrollLayout(discrete_spec((2,), "float32", 3), 4).empty(2)
    unroll.policy[:] = 3
    old = {("logits" if name == "policy" else name): array for name, array in unroll.named().items()}
    assert np.array_equal(from_named({**old, "is_replay": np.zeros(2, bool)}).policy, unroll.policy)
