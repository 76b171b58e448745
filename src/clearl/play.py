"""Play with a trained agent: its scores, and a video of its play."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from clearl.acting.evaluator import Evaluation, Evaluator
from clearl.acting.stepper import Stepper
from clearl.artifacts import Trained, parts_of
from clearl.errors import MissingExtraError
from clearl.runtimes.host import cores
from clearl.seeding import derive, generator
from clearl.tasks.vectors import allow_env_threads

FRAMES_PER_SECOND = 15


def open_parts(
    path: Path, tasks: Sequence[str] = (), *, imports: Iterable[str] = (), trust: bool = False
) -> Iterator[Trained]:
    """Open the run in `path`, or each of the runs where it holds one a task."""
    for part, chosen in parts_of(path, tasks).items():
        yield Trained.open(part, chosen, imports=imports, trust=trust)


def evaluate(
    trained: Trained, *, episodes: int, tell: Callable[[str], None] = lambda line: None
) -> Iterator[Evaluation]:
    """Play whole, unclipped episodes of each task; `tell` gets a line for each environment that had to be rebuilt."""
    allow_env_threads(cores())  # no other process acts meanwhile
    config = trained.config
    evaluator = Evaluator(
        suite=trained.suite, network=trained.agent.network, seed=derive(config.seed, "clearl eval"), episodes=episodes,
        max_steps=config.eval_max_steps, reward_clip=config.reward_clip,
    )  # fmt: skip
    try:
        for task in trained.tasks:
            evaluations = evaluator.evaluate((task,), 0)
            for fault in evaluator.take_faults():
                tell(f"{str(fault).splitlines()[0]}; it was built anew and its episode repeated")
            yield from evaluations
    finally:
        evaluator.close()


def record_video(trained: Trained, file: Path, *, episodes: int, max_steps: int) -> float:
    """Play the first of the tasks and write the pictures as .gif or .mp4; return the mean score of the episodes."""
    scores: list[float] = []
    pictures = list(_play(trained, trained.tasks[0], episodes, max_steps, scores))
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".mp4":
        _write_mp4(file, pictures)
    else:
        _write_gif(file, pictures)
    return float(np.mean(scores))


def _play(trained: Trained, task: str, episodes: int, max_steps: int, scores: list[float]) -> Iterator[np.ndarray]:
    suite, network, seed = trained.suite, trained.agent.network, derive(trained.config.seed, "clearl video", task)
    stepper = Stepper(network, suite.spec, 1, reward_clip=trained.config.reward_clip, column="evaluate")
    envs, rng = suite.make(task, num_envs=1, seed=seed, training=False), generator(seed, "actions")
    try:
        for _ in range(episodes):
            frames, score = envs.reset(), 0.0
            stepper.begin(slice(None), frames)
            for _ in range(max_steps):
                yield suite.render(task, frames[0])
                with torch.inference_mode():
                    action = stepper.decide(network.head.noise(rng, suite.mask(task)[None], 1)[0]).action
                step = envs.step(action)
                frames = step.frames
                stepper.see(frames, step.first, action, step.reward)
                score += float(step.reward[0])
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
