"""Find out what is installed, what is missing and how to get it, and what this machine has to offer."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from clearl import __version__
from clearl.runtimes.host import ALLOCATOR_ENVIRONMENT, cores

Verdict = Literal["ok", "missing", "hint"]

DMLAB_REMEDY = (
    "it is in no package index: install Bazel and what docs/users/build.md of github.com/google-deepmind/lab asks for, "
    "then in a clone of it: bazel build -c opt --python_version=PY3 //python/pip_package:build_pip_package && "
    "./bazel-bin/python/pip_package/build_pip_package wheels && pip install wheels/deepmind_lab-*.whl"
)
LEAST_SHM_BYTES = 512 * 2**20
LEAST_DISK_BYTES = 2 * 2**30


@dataclass(frozen=True)
class Diagnosis:
    """One finding."""

    verdict: Verdict
    what: str
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class Package:
    """A package that a part of clearl needs."""

    module: str
    distribution: str
    serves: str
    extra: str | None
    remedy: str = ""


PACKAGES = (
    Package("torch", "torch", "training", None),
    Package("gymnasium", "gymnasium", "suite gym", None),
    Package("minatar", "MinAtar", "suite minatar, clearl demo", None, "pip install MinAtar"),
    Package("ale_py", "ale-py", "suite atari", "atari"),
    Package("envpool", "envpool", "suite minigrid", "minigrid"),
    Package("vizdoom", "vizdoom", "suite vizdoom", "vizdoom"),
    Package("mujoco", "mujoco", "suite mujoco", "mujoco"),
    Package("metaworld", "metaworld", "suite metaworld", "metaworld"),
    Package("deepmind_lab", "deepmind_lab", "suite dmlab", None, DMLAB_REMEDY),
    Package("ray", "ray", "runtime ray", "ray"),
    Package("tensorboard", "tensorboard", "--tensorboard", "tensorboard"),
    Package("wandb", "wandb", "--wandb", "wandb"),
    Package("trackio", "trackio", "--trackio", "trackio"),
    Package("imageio_ffmpeg", "imageio-ffmpeg", "clearl video to .mp4", "video"),
    Package("onnxscript", "onnxscript", "clearl export --format onnx", "onnx"),
    Package("huggingface_hub", "huggingface_hub", "clearl push, load_agent('hf:ORG/NAME')", "hub"),
)


def examine(directory: Path) -> Iterator[Diagnosis]:
    """Look at the packages, the machine and the place where runs will be written."""
    yield Diagnosis("ok", "clearl", f"{__version__} on Python {platform.python_version()}, {platform.system()}")
    yield from map(_package, PACKAGES)
    yield from _machine()
    yield _space("free disk here", directory, LEAST_DISK_BYTES, "replay and checkpoints are written here; make room")
    shm = Path("/dev/shm")
    if shm.is_dir() and find_spec("ray") is not None:
        remedy = "runtime ray shares unrolls there; in Docker give --shm-size=2g"
        yield _space("free shared memory", shm, LEAST_SHM_BYTES, remedy)


def _package(package: Package) -> Diagnosis:
    if find_spec(package.module) is None:
        remedy = package.remedy or f"pip install 'clearl[{package.extra}]'"
        return Diagnosis("missing", package.distribution, f"not installed; for {package.serves}", remedy)
    try:
        version = metadata.version(package.distribution)
    except metadata.PackageNotFoundError:
        version = "installed"
    return Diagnosis("ok", package.distribution, f"{version}; for {package.serves}")


def _machine() -> Iterator[Diagnosis]:
    import torch

    devices = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    devices += ["mps"] if torch.backends.mps.is_available() else []
    yield Diagnosis("ok", "processor", f"{cores()} cores, torch takes {torch.get_num_threads()}")
    yield Diagnosis("ok", "accelerators", ", ".join(devices) or "none; everything runs on the processor")
    unset = {name: value for name, value in ALLOCATOR_ENVIRONMENT.items() if os.environ.get(name) != value}
    if unset and platform.libc_ver()[0] == "glibc":
        settings = " ".join(f"{name}={value}" for name, value in unset.items())
        found = "glibc's defaults give freed memory back at once, which costs page faults"
        yield Diagnosis("hint", "allocator", found, f"faster: env {settings} clearl run ...")


def _space(what: str, path: Path, least_bytes: int, remedy: str) -> Diagnosis:
    free = shutil.disk_usage(path).free
    found = f"{free / 1e9:.1f} GB"
    return Diagnosis("ok", what, found) if free >= least_bytes else Diagnosis("hint", what, found, remedy)
