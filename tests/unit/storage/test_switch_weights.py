"""Weights of the last switches: kept, bounded, never damaged without being noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from clearl.errors import CorruptFileError
from clearl.storage.switch_weights import SwitchWeights


def test_the_last_ones_are_kept_and_the_others_go(tmp_path: Path) -> None:
    kept = SwitchWeights(tmp_path, most=3)
    for segment in range(6):
        kept.save(segment, {"w": torch.full((2,), float(segment))})
    assert kept.segments() == [3, 4, 5]
    assert kept.load(4)["w"].tolist() == [4.0, 4.0]
    kept.save(4, {"w": torch.zeros(2)})  # a resumed run goes through its switches again
    assert kept.segments() == [3, 4, 5] and kept.load(4)["w"].tolist() == [0.0, 0.0]


def test_none_are_kept_where_none_are_wanted(tmp_path: Path) -> None:
    SwitchWeights(tmp_path, most=0).save(0, {"w": torch.zeros(2)})
    assert list(tmp_path.iterdir()) == [] and SwitchWeights(tmp_path).segments() == []


@pytest.mark.parametrize("data", [b"", b"\xff" * 64])
def test_a_damaged_file_is_told(tmp_path: Path, data: bytes) -> None:
    kept = SwitchWeights(tmp_path, most=2)
    kept.save(0, {"w": torch.zeros(2)})
    (tmp_path / "switches" / "segment-00000.safetensors").write_bytes(data)
    with pytest.raises(CorruptFileError, match="segment-00000.safetensors holds no weights"):
        kept.load(0)
    kept.save(0, {"w": torch.tensor([float("nan")])})
    with pytest.raises(CorruptFileError, match="NaN or infinity"):
        kept.load(0)
    with pytest.raises(CorruptFileError, match="cannot be read"):
        kept.load(1)
