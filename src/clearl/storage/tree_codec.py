"""A tree of JSON types and arrays as two byte strings: the arrays as safetensors, the rest as JSON. Never a pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as safetensors_load
from safetensors.torch import save as safetensors_save

from clearl.errors import CorruptFileError

_KINDS = ("numpy", "torch")


def encode_tree(tree: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Return (JSON, safetensors) of nested dicts and lists; tuples come back as lists."""
    arrays: dict[str, torch.Tensor] = {}
    places: list[dict[str, Any]] = []
    body = {"tree": _strip(tree, [], arrays, places), "arrays": places}
    return json.dumps(body, separators=(",", ":")).encode(), safetensors_save(arrays)


def decode_json(data: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the tree with None in place of every array, and the places of the arrays."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"not JSON: {error}") from None
    if not isinstance(body, dict) or body.keys() != {"tree", "arrays"}:
        raise CorruptFileError('not an object of just "tree" and "arrays"')
    if not isinstance(body["tree"], dict) or not isinstance(body["arrays"], list):
        raise CorruptFileError('"tree" must be an object and "arrays" a list')
    return body["tree"], body["arrays"]


def decode_arrays(tree: dict[str, Any], places: list[dict[str, Any]], data: bytes) -> dict[str, Any]:
    """Put the arrays back into the tree, in place."""
    try:
        tensors = safetensors_load(data)
    except (SafetensorError, ValueError, KeyError, RuntimeError, OverflowError) as error:
        raise CorruptFileError(f"not safetensors: {error}") from None
    for place in places:
        if not isinstance(place, dict) or place.keys() != {"name", "path", "kind"} or place["kind"] not in _KINDS:
            raise CorruptFileError(f"not the place of an array: {place!r:.200}")
        parent, key = _parent(tree, place["path"])
        if not isinstance(place["name"], str) or place["name"] not in tensors or parent[key] is not None:
            raise CorruptFileError(f"no array, or no room for it, at {place['path']!r:.200}")
        tensor = tensors.pop(place["name"])
        parent[key] = tensor if place["kind"] == "torch" else tensor.numpy()
    if tensors:
        raise CorruptFileError(f"arrays without a place: {', '.join(tensors)[:200]}")
    return tree


def _strip(value: Any, path: list[str | int], arrays: dict[str, torch.Tensor], places: list[dict[str, Any]]) -> Any:
    """Return `value` with None in place of every array, which is moved to `arrays`."""
    if value is None or type(value) in (str, bool, int, float):
        return value
    if isinstance(value, Mapping):
        if not all(type(key) is str for key in value):
            raise TypeError(f"a key at {path} is no text: {list(value)!r:.200}")
        return {key: _strip(item, [*path, key], arrays, places) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strip(item, [*path, index], arrays, places) for index, item in enumerate(value)]
    if isinstance(value, (np.ndarray, torch.Tensor)):
        # The number makes names unique: keys may hold slashes.
        name = f"{len(places)}:{'/'.join(map(str, path))}"
        arrays[name] = _as_tensor(value)
        places.append({"name": name, "path": path, "kind": "torch" if isinstance(value, torch.Tensor) else "numpy"})
        return None
    raise TypeError(f"{type(value).__name__} at {path} has no place in a checkpoint: JSON types and arrays only")


def _as_tensor(value: np.ndarray | torch.Tensor) -> torch.Tensor:
    """Return a tensor with its own memory: safetensors refuses tensors that share some."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
    return torch.from_numpy(np.array(value, dtype=value.dtype.newbyteorder("="), order="C", copy=True))


def _parent(tree: dict[str, Any], path: Any) -> tuple[Any, Any]:
    """Return the container that `path` ends in, and the last key."""
    node: Any = tree
    try:
        if not isinstance(path, list) or any(type(step) not in (str, int) for step in path):
            raise TypeError("a path is a list of texts and numbers")
        for step in path[:-1]:
            node = node[step]
        _ = node[path[-1]]
    except (TypeError, KeyError, IndexError) as error:
        raise CorruptFileError(f"no place {path!r:.200} in the tree: {error}") from None
    if not isinstance(node, (dict, list)):
        raise CorruptFileError(f"no place {path!r:.200} in the tree")
    return node, path[-1]
