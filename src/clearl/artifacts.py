"""Load the agent that a run trained, and export it as files that need no run directory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import load, save

from clearl.acting.agent import Agent
from clearl.config import RunConfig, from_yaml, parse_yaml, to_yaml
from clearl.errors import CorruptFileError, RunDirectoryError, UnknownNameError
from clearl.experiment import load_agent as load_from_run
from clearl.experiment import stored_network
from clearl.nets.network import as_module
from clearl.plugins import import_asked, import_plugins, named_modules
from clearl.records.run_dir import RunDir
from clearl.records.schema import seal, unseal
from clearl.runtimes.state import fitting
from clearl.spaces import spec_from_json, spec_to_json
from clearl.suites import make_suite
from clearl.tasks.suite import Suite

EXPORT_FILE = "agent.json"
WEIGHTS_FILE = "agent.safetensors"


@dataclass(frozen=True)
class Trained:
    """A run that can play: its settings, its tasks and its agent."""

    config: RunConfig
    suite: Suite
    agent: Agent

    @classmethod
    def open(
        cls, path: Path, tasks: Sequence[str] = (), *, imports: Iterable[str] = (), trust: bool = False
    ) -> Trained:
        """Open the run in `path` with its newest good checkpoint.

        Of the modules that its settings name only those in `imports` are imported, or all with `trust`.
        """
        run_dir = RunDir.open(path)
        if parts := run_dir.meta.get("parts"):
            raise RunDirectoryError(f"{path} holds one run for each task; give one of them: {', '.join(parts)}")
        named = parse_yaml(run_dir.config_text, "config.yaml")
        import_asked(named, source=str(path), imports=imports, trust=trust)
        config = from_yaml(run_dir.config_text, "config.yaml")
        suite = make_suite(config.suite, config.tasks, config)
        for task in tasks:
            if task not in suite.tasks:
                raise UnknownNameError("task of this run", task, suite.tasks)
        return cls(config, suite, load_from_run(path))


def export_agent(path: Path, out: Path, *, imports: Iterable[str] = (), trust: bool = False) -> None:
    """Write the agent of a run as two files that `clearl.load_agent` reads: weights, and a description of them."""
    trained = Trained.open(path, imports=imports, trust=trust)
    if out.exists() and any(out.iterdir()):
        raise RunDirectoryError(f"{out} is not empty; give another --out")
    out.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.contiguous() for name, tensor in as_module(trained.agent.network).state_dict().items()}
    weights = save(tensors)
    about = {
        "v": 1,
        "config": to_yaml(trained.config),
        "spec": spec_to_json(trained.agent.spec),
        "tasks": {task: trained.suite.mask(task).tolist() for task in trained.suite.tasks},
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }
    (out / WEIGHTS_FILE).write_bytes(weights)
    (out / EXPORT_FILE).write_bytes(seal(json.dumps(about, indent=2)) + b"\n")


def load_agent(path: str | Path, *, imports: Iterable[str] = (), trust: bool = False) -> Agent:
    """Load the agent of a run directory, from its newest good checkpoint, or of a directory that `clearl export` wrote.

    `imports` names modules of yours that register its torso or method; `trust` imports whatever the directory names.
    Environments are not needed, and nothing is imported unasked.
    """
    path = Path(path)
    import_plugins(imports)
    return _load_exported(path, trust) if (path / EXPORT_FILE).is_file() else load_from_run(path, trust=trust)


def _load_exported(path: Path, trust: bool) -> Agent:
    about = unseal((path / EXPORT_FILE).read_bytes())
    weights = (path / WEIGHTS_FILE).read_bytes()
    if hashlib.sha256(weights).hexdigest() != about.get("weights_sha256"):
        raise CorruptFileError(f"{path / WEIGHTS_FILE} is damaged; export the agent again")
    text = str(about.get("config"))
    if trust:
        import_plugins(named_modules(parse_yaml(text, EXPORT_FILE)))
    config = from_yaml(text, EXPORT_FILE)
    spec = spec_from_json(about.get("spec"), str(path / EXPORT_FILE))
    network = stored_network(config, spec, source=str(path), trust=trust)
    with fitting(path):
        as_module(network).load_state_dict(load(weights))
    return Agent(network, spec, reward_clip=config.reward_clip, seed=config.seed)
