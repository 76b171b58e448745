"""Write the graph of an agent as ONNX or as a program of torch.export, with a description of its tensors."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from clearl.acting.agent import Agent
from clearl.acting.agent_tasks import tasks_to_json
from clearl.errors import ConfigError, MissingExtraError, UnknownNameError
from clearl.sharing.graph import PolicyGraph, Port, export_program
from clearl.storage.files import write_atomically

ABOUT_FILE = "policy.json"
GRAPH_FILES = {"onnx": "policy.onnx", "torch": "policy.pt2"}
VERSION = 1
_ONNX_OPSET = 20
"""ONNX's operators of 2023: old enough for the runtimes in use, new enough for every operation here."""


def check_formats(formats: Sequence[str]) -> None:
    """Raise, before anything is loaded, where a format is unknown or lacks its packages."""
    for name in formats:
        if name not in FORMATS:
            raise UnknownNameError("format", name, FORMATS)
    missing = [package for package in ("onnx", "onnxscript") if find_spec(package) is None]
    if "onnx" in formats and missing:
        raise MissingExtraError("--format onnx", missing[0], "install it with: pip install 'clearl[onnx]'")


def write_graph(agent: Agent, formats: Sequence[str], out: Path) -> list[Path]:
    """Write `policy.onnx` or `policy.pt2`, or both, and `policy.json`, into the directory `out`."""
    graph = PolicyGraph(agent)
    with _quiet_exporter():
        try:
            program = export_program(graph)
            written = [out / GRAPH_FILES[name] for name in formats]
            for name, path in zip(formats, written, strict=True):
                _WRITERS[name](program, graph, path)
        except OSError:
            raise
        except Exception as error:  # torch raises many kinds, and the network may be the user's own code
            line = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise ConfigError(
                f"this network cannot be written as a graph ({line}); the format 'clearl' takes any network"
            ) from error
    about = {
        "v": VERSION,
        "inputs": [_described(port) for port in graph.inputs],
        "outputs": [_described(port) for port in graph.outputs],
        "tasks": tasks_to_json(agent.tasks),
    }
    write_atomically(out / ABOUT_FILE, json.dumps(about, indent=2).encode() + b"\n")
    return [*written, out / ABOUT_FILE]


def _described(port: Port) -> dict[str, Any]:
    return {"name": port.name, "dtype": port.dtype, "shape": ["batch", *port.shape], "about": port.about}


def _write_onnx(program: torch.export.ExportedProgram, graph: PolicyGraph, path: Path) -> None:
    made = torch.onnx.export(
        program, input_names=[port.name for port in graph.inputs], output_names=[port.name for port in graph.outputs],
        opset_version=_ONNX_OPSET, dynamo=True, verbose=False,
    )  # fmt: skip
    assert made is not None
    for tensor in (*made.model.graph.inputs, *made.model.graph.outputs):
        assert tensor.shape is not None
        tensor.shape[0] = "batch"  # torch calls it s7 or the like
    made.save(path, external_data=False)


def _write_torch(program: torch.export.ExportedProgram, graph: PolicyGraph, path: Path) -> None:
    torch.export.save(program, path)


_WRITERS: dict[str, Callable[[torch.export.ExportedProgram, PolicyGraph, Path], None]] = {
    "onnx": _write_onnx,
    "torch": _write_torch,
}
GRAPH_FORMATS = tuple(GRAPH_FILES)
FORMATS = ("clearl", *GRAPH_FORMATS)


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Silence the exporter's talk of its own deprecations and of torchvision."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        logger.setLevel(before)
