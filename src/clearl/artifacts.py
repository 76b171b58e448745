"""Load the agent that a run trained, and export it as files that need no run directory."""

from __future__ import annotations

import copy
import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from safetensors.torch import save

from clearl.acting.agent import Agent, Origin
from clearl.acting.agent_tasks import agent_tasks, tasks_from_json, tasks_to_json
from clearl.config import RunConfig, from_yaml, parse_yaml, to_yaml
from clearl.errors import CorruptFileError, RunDirectoryError, UnknownNameError
from clearl.experiment import agent_of_run
from clearl.growth import Growth
from clearl.methods import make_method
from clearl.nets.growth import NetworkGrowth
from clearl.nets.network import as_module
from clearl.plugins import import_asked, import_plugins, named_modules
from clearl.records.run_dir import CONFIG_FILE, RunDir, claimed_directory
from clearl.records.schema import seal, unseal
from clearl.sharing.card import CARD_FILE, VIDEO_FILES, write_card
from clearl.sharing.formats import ABOUT_FILE, GRAPH_FILES, check_formats, write_graph
from clearl.sharing.hub import PREFIX, download
from clearl.spaces import TaskSpec, spec_from_json, spec_to_json
from clearl.storage.checkpoints import fitting
from clearl.storage.files import read_plain, write_atomically
from clearl.storage.switch_weights import SwitchWeights, finite_tensors
from clearl.suites import make_suite
from clearl.tasks.suite import Suite
from clearl.wiring import make_network, stored_network

EXPORT_FILE = "agent.json"
WEIGHTS_FILE = "agent.safetensors"
EXPORTED = (EXPORT_FILE, WEIGHTS_FILE, CONFIG_FILE, CARD_FILE, ABOUT_FILE, *GRAPH_FILES.values(), *VIDEO_FILES)
"""All that `export_agent` may write, as patterns of names."""
VERSION = 1
_CAPS_NBYTES = {EXPORT_FILE: 1 << 26, WEIGHTS_FILE: 1 << 36}
_HUB_CAPS_NBYTES = {EXPORT_FILE: 1 << 26, WEIGHTS_FILE: 1 << 31}
"""The most bytes of a stranger's agent; a network of the paper has 10 MB."""


@dataclass(frozen=True)
class Trained:
    """A run that can play: its settings, its tasks and its agent."""

    config: RunConfig
    suite: Suite
    agent: Agent

    tasks: tuple[str, ...]
    """The tasks that the agent was trained for, or those of them that were asked for."""

    @classmethod
    def open(
        cls, path: Path, tasks: Sequence[str] = (), *, imports: Iterable[str] = (), trust: bool = False
    ) -> Trained:
        """Open the run in `path` with its newest good checkpoint.

        Of the modules that its settings name only those in `imports` are imported, or all with `trust`.
        """
        path = Path(path).absolute()  # environments may change the directory
        run_dir = RunDir.open(path)
        named = parse_yaml(run_dir.config_text, "config.yaml")
        import_asked(named, source=str(path), imports=imports, trust=trust)
        config = from_yaml(run_dir.config_text, "config.yaml")
        suite = make_suite(config.suite, config.tasks, config)
        for task in tasks:
            if task not in suite.tasks:
                raise UnknownNameError("task of this run", task, suite.tasks)
        evaluated = tuple(task for task in _evaluated_tasks(run_dir) if task in suite.tasks)
        return cls(config, suite, agent_of_run(path), tuple(tasks) or evaluated or suite.tasks)


def at_segment_end(trained: Trained, path: Path, segment: int) -> Trained:
    """Return the same run with the weights that a segment of it ended with, grown as the agent has grown since."""
    network, agent = copy.deepcopy(trained.agent.network), trained.agent
    kept = SwitchWeights(path)
    weights, spec = kept.load(segment), _spec_at(RunDir.open(path), segment) or agent.spec
    with fitting(kept.path):
        if spec != agent.spec:
            method = make_method(trained.config)
            then, now = (make_network(trained.config, each, method) for each in (spec, agent.spec))
            weights = NetworkGrowth(then, now, Growth(spec, agent.spec)).state(weights)
        as_module(network).load_state_dict(weights)
    then = Agent(network, agent.spec, reward_clip=agent.reward_clip, seed=trained.config.seed, tasks=agent.tasks)
    return replace(trained, agent=then)


def _spec_at(run_dir: RunDir, segment: int) -> TaskSpec | None:
    """Return the spaces that the agent had in a segment, where the run was extended after it; None for the present."""
    extensions, earlier = run_dir.meta.get("extensions", []), run_dir.meta.get("replay", {}).get("earlier", [])
    for extension, before in zip(extensions, earlier, strict=False):
        if segment < extension["segments"] and before.get("spec") is not None:
            return spec_from_json(before["spec"], str(run_dir.path))
    return None


def parts_of(path: Path, tasks: Sequence[str] = ()) -> dict[Path, tuple[str, ...]]:
    """Return the run directories in `path`, each with its own of the `tasks`: one, or with `separate` one per task."""
    run_dir = RunDir.open(path)
    parts = run_dir.meta.get("parts")
    if not parts:
        return {path: tuple(tasks)}
    trained = {part: _evaluated_tasks(RunDir.open(part)) for part in (path / str(part) for part in parts)}
    known = [task for names in trained.values() for task in names]
    for task in tasks:
        if task not in known:
            raise UnknownNameError("task of this run", task, known)
    chosen = {part: tuple(task for task in names if task in tasks or not tasks) for part, names in trained.items()}
    return {part: names for part, names in chosen.items() if names}


def _evaluated_tasks(run_dir: RunDir) -> tuple[str, ...]:
    plan = run_dir.meta.get("plan")
    names = plan.get("evaluate") if isinstance(plan, dict) else None
    return tuple(str(name) for name in names) if isinstance(names, list) else ()


def export_agent(
    path: Path, out: Path, *, formats: Sequence[str] = ("clearl",), card_for: str | None = None,
    imports: Iterable[str] = (), trust: bool = False,
) -> Origin | None:  # fmt: skip
    """Write the agent of a run into a new directory: for `clearl.load_agent`, or as a graph that needs no clearl.

    With `card_for`, a model card is written too; it says that this name loads the agent.
    """
    check_formats(formats)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunDirectoryError(f"{out} is no empty directory; give another --out")
    trained = Trained.open(path, imports=imports, trust=trust)
    with _complete_or_as_before(out) as making:
        if "clearl" in formats:
            _write_agent(trained, making)
        if graphs := [name for name in formats if name != "clearl"]:
            write_graph(trained.agent, graphs, making)
        if card_for is not None:
            write_card(path, making, load_as=card_for if "clearl" in formats else None)
            write_atomically(making / CONFIG_FILE, to_yaml(trained.config).encode())
    return trained.agent.origin


@contextmanager
def _complete_or_as_before(out: Path) -> Iterator[Path]:
    """Provide a directory whose files move to `out` at the end; after an error `out` is unchanged, absent or empty."""
    with claimed_directory(out), TemporaryDirectory(prefix=".making-", dir=out) as making:
        yield Path(making)
        for file in Path(making).iterdir():
            file.rename(out / file.name)


def _write_agent(trained: Trained, out: Path) -> None:
    """Write the two files that `clearl.load_agent` reads: weights, and a description of them."""
    tensors = {name: tensor.contiguous() for name, tensor in as_module(trained.agent.network).state_dict().items()}
    weights = save(tensors)
    about = {
        "v": VERSION,
        "config": to_yaml(trained.config),
        "spec": spec_to_json(trained.agent.spec),
        "tasks": tasks_to_json(agent_tasks(trained.suite)),
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }
    write_atomically(out / WEIGHTS_FILE, weights)
    write_atomically(out / EXPORT_FILE, seal(json.dumps(about, indent=2)) + b"\n")


def load_agent(path: str | Path, *, task: str | None = None, imports: Iterable[str] = (), trust: bool = False) -> Agent:
    """Load the agent of a run directory, from its newest good checkpoint, or of a directory that `clearl export` wrote.

    "hf:ORG/NAME" or "hf:ORG/NAME@REVISION" is what `clearl push` put on the Hugging Face hub.

    `imports` names modules of yours that register its torso or method; `trust` imports whatever the directory names.
    Environments are not needed, and nothing is imported unasked. `task` picks the agent of a run on separate tasks.
    """
    import_plugins(imports)
    if str(path).startswith(PREFIX):
        path = download(str(path), _HUB_CAPS_NBYTES)
    path = Path(path)
    if (path / EXPORT_FILE).is_file():
        agent = _load_exported(path, trust)
    else:
        if task is not None:
            (path,) = parts_of(path, [task])
        agent = agent_of_run(path, trust=trust)
        for note in agent.origin.notes if agent.origin else ():
            warnings.warn(f"{path}: {note}", stacklevel=2)
    if task is not None and agent.tasks:  # agents of old runs know no tasks
        UnknownNameError.check("task of this agent", [task], agent.tasks)
    return agent


def _load_exported(path: Path, trust: bool) -> Agent:
    try:
        about = unseal(read_plain(path / EXPORT_FILE, cap_nbytes=_CAPS_NBYTES[EXPORT_FILE]))
    except CorruptFileError as error:
        raise CorruptFileError(f"{path / EXPORT_FILE}: {error}; export the agent again") from None
    if about.get("v") != VERSION:
        raise CorruptFileError(f"{path / EXPORT_FILE} is of version {about.get('v')!r}; this clearl reads {VERSION}")
    weights = read_plain(path / WEIGHTS_FILE, cap_nbytes=_CAPS_NBYTES[WEIGHTS_FILE])
    if hashlib.sha256(weights).hexdigest() != about.get("weights_sha256"):
        raise CorruptFileError(f"{path / WEIGHTS_FILE} is damaged; export the agent again")
    text = str(about.get("config"))
    if trust:
        import_plugins(named_modules(parse_yaml(text, EXPORT_FILE)))
    config = from_yaml(text, EXPORT_FILE)
    spec = spec_from_json(about.get("spec"), str(path / EXPORT_FILE))
    network = stored_network(config, spec, source=str(path), trust=trust)
    with fitting(path):
        as_module(network).load_state_dict(finite_tensors(weights, path / WEIGHTS_FILE))
    tasks = tasks_from_json(about.get("tasks"), spec, str(path / EXPORT_FILE))
    return Agent(network, spec, reward_clip=config.reward_clip, seed=config.seed, tasks=tasks)
