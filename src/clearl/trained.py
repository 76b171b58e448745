"""What a trained agent does: its scores, a video of its play, and itself as files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from safetensors.torch import load, save

from clearl.acting.agent import Agent
from clearl.acting.evaluator import Evaluation, Evaluator
from clearl.config import RunConfig, from_yaml, to_yaml
from clearl.errors import CorruptFileError, MissingExtraError, RunDirectoryError, UnknownNameError
from clearl.experiment import load_agent as load_from_run
from clearl.experiment import make_network
from clearl.nets.network import as_module
from clearl.records.run_dir import RunDir
from clearl.records.schema import seal, unseal
from clearl.runtimes.progress import fitting
from clearl.seeding import derive
from clearl.suites import make_suite
from clearl.tasks.suite import Suite
from clearl.types import spec_from_json

EXPORT_FILE = "agent.json"
WEIGHTS_FILE = "agent.safetensors"
FRAMES_PER_SECOND = 15


@dataclass(frozen=True)
class Trained:
    """A run that can play: its settings, its tasks and its agent."""

    config: RunConfig
    suite: Suite
    agent: Agent

    @classmethod
    def open(cls, path: Path, tasks: Sequence[str] = ()) -> Trained:
        """What the run in `path` trained, from its newest good checkpoint."""
        run_dir = RunDir.open(path)
        if parts := run_dir.meta.get("parts"):
            raise RunDirectoryError(f"{path} holds one run for each task; give one of them: {', '.join(parts)}")
        config = from_yaml(run_dir.config_text, "config.yaml")
        suite = make_suite(config.suite, config.tasks, config)
        for task in tasks:
            if task not in suite.tasks:
                raise UnknownNameError("task of this run", task, suite.tasks)
        return cls(config, suite, load_from_run(path))


def evaluate_run(path: Path, *, episodes: int, tasks: Sequence[str] = ()) -> Iterator[Evaluation]:
    """Whole, unclipped episodes of each task with the newest good checkpoint of a run."""
    trained = Trained.open(path, tasks)
    config = trained.config
    evaluator = Evaluator(
        suite=trained.suite, network=trained.agent.network, seed=derive(config.seed, "clearl eval"), episodes=episodes,
        max_steps=config.eval_max_steps, reward_clip=config.reward_clip,
    )  # fmt: skip
    try:
        for task in tasks or trained.suite.tasks:
            yield from evaluator.evaluate((task,), 0)
    finally:
        evaluator.close()


def record_video(path: Path, file: Path, *, task: str | None, episodes: int, max_steps: int) -> float:
    """Play a task and write the pictures as .gif or .mp4; the mean score of the episodes."""
    trained = Trained.open(path, [task] if task else [])
    scores: list[float] = []
    pictures = list(_play(trained, task or trained.suite.tasks[0], episodes, max_steps, scores))
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".mp4":
        _write_mp4(file, pictures)
    else:
        _write_gif(file, pictures)
    return float(np.mean(scores))


def _play(trained: Trained, task: str, episodes: int, max_steps: int, scores: list[float]) -> Iterator[np.ndarray]:
    suite, agent = trained.suite, trained.agent
    envs = suite.make(task, num_envs=1, seed=derive(trained.config.seed, "clearl video", task), training=False)
    try:
        for _ in range(episodes):
            frame, reward, score = envs.reset()[0], 0.0, 0.0
            agent.reset()
            for _ in range(max_steps):
                yield suite.render(task, frame)
                step = envs.step(np.array([agent.act(frame, reward=reward, mask=suite.mask(task))]))
                frame, reward = step.frames[0], float(step.reward[0])
                score += reward
                if step.terminated[0] or step.truncated[0]:
                    break
            scores.append(score)
    finally:
        envs.close()


def _write_gif(file: Path, pictures: Sequence[np.ndarray]) -> None:
    from PIL import Image

    first, *others = (Image.fromarray(picture) for picture in pictures)
    first.save(file, "GIF", save_all=True, append_images=others, duration=1000 // FRAMES_PER_SECOND, loop=0)


def _write_mp4(file: Path, pictures: Sequence[np.ndarray]) -> None:
    try:
        import imageio.v2 as imageio
        import imageio_ffmpeg  # noqa: F401 - imageio finds it by itself, but says so badly when it is not there
    except ImportError as error:
        remedy = "install it with: pip install 'clearl[video]', or name a .gif instead"
        raise MissingExtraError("a video in .mp4", "imageio-ffmpeg", remedy) from error
    imageio.mimwrite(file, list(pictures), fps=FRAMES_PER_SECOND, macro_block_size=1)


def export_agent(path: Path, out: Path) -> None:
    """Write the agent of a run as two files that `clearl.load_agent` reads: weights, and what they belong to."""
    trained = Trained.open(path)
    if out.exists() and any(out.iterdir()):
        raise RunDirectoryError(f"{out} is not empty; give another --out")
    out.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.contiguous() for name, tensor in as_module(trained.agent.network).state_dict().items()}
    weights = save(tensors)
    about = {
        "v": 1,
        "config": to_yaml(trained.config),
        "spec": asdict(trained.agent.spec),
        "tasks": {task: trained.suite.mask(task).tolist() for task in trained.suite.tasks},
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }
    (out / WEIGHTS_FILE).write_bytes(weights)
    (out / EXPORT_FILE).write_bytes(seal(json.dumps(about, indent=2)) + b"\n")


def load_agent(path: str | Path) -> Agent:
    """The agent in a run directory, from its newest good checkpoint, or in a directory that `clearl export` wrote."""
    path = Path(path)
    return _load_exported(path) if (path / EXPORT_FILE).is_file() else load_from_run(path)


def _load_exported(path: Path) -> Agent:
    about = unseal((path / EXPORT_FILE).read_bytes())
    weights = (path / WEIGHTS_FILE).read_bytes()
    if hashlib.sha256(weights).hexdigest() != about.get("weights_sha256"):
        raise CorruptFileError(f"{path / WEIGHTS_FILE} is damaged; export the agent again")
    config = from_yaml(str(about.get("config")), EXPORT_FILE)
    spec = spec_from_json(about.get("spec"), str(path / EXPORT_FILE))
    network = make_network(config, spec)
    with fitting(path):
        as_module(network).load_state_dict(load(weights))
    return Agent(network, spec, reward_clip=config.reward_clip, seed=config.seed)
