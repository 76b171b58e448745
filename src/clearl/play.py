"""Play with a trained agent: its scores, and a video of its play."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np
import torch

from clearl.acting.evaluator import Evaluation, Evaluator
from clearl.acting.stepper import Stepper
from clearl.artifacts import Trained, at_segment_end, parts_of
from clearl.errors import ConfigError, MissingExtraError, NoPictureError
from clearl.records.schema import Row
from clearl.records.table import MetricsTable
from clearl.runtimes.host import cores
from clearl.seeding import derive, generator
from clearl.storage.switch_weights import SwitchWeights
from clearl.tasks.drawing import side_by_side, with_caption
from clearl.tasks.exits import exits_raise
from clearl.tasks.suite import DrawsStates, Scene, Suite
from clearl.tasks.vectors import allow_env_threads

FRAMES_PER_SECOND = 15
Tell = Callable[[str], None]
"""Shows a line to the user."""


def open_parts(
    path: Path, tasks: Sequence[str] = (), *, imports: Iterable[str] = (), trust: bool = False
) -> Iterator[Trained]:
    """Open the run in `path`, or each of its runs if it holds one per task."""
    for part, chosen in parts_of(path, tasks).items():
        yield Trained.open(part, chosen, imports=imports, trust=trust)


def evaluate(trained: Trained, *, episodes: int, tell: Tell = lambda line: None) -> Iterator[Evaluation]:
    """Play whole, unclipped episodes of each task; `tell` gets a line for each environment that had to be rebuilt."""
    allow_env_threads(cores())  # no other process acts at the same time
    config = trained.config
    evaluator = Evaluator(
        suite=trained.suite, network=trained.agent.network, seed=derive(config.seed, "clearl eval"), episodes=episodes,
        max_steps=config.eval_max_steps, reward_clip=config.reward_clip,
    )  # fmt: skip
    try:
        for task in trained.tasks:
            with exits_raise():
                evaluations = evaluator.evaluate((task,), 0)
            for fault in evaluator.take_faults():
                tell(f"{str(fault).splitlines()[0]}; it was built anew and its episode repeated")
            yield from evaluations
    finally:
        evaluator.close()


@dataclass(frozen=True)
class Film:
    """Captioned pictures of whole episodes, and the score of each episode filmed so far."""

    pictures: Iterator[np.ndarray]
    scores: list[float]

    @property
    def mean_score(self) -> float:
        return float(np.mean(self.scores))


def record_video(
    trained: Trained, file: Path, *, episodes: int, max_steps: int, tell: Tell = lambda line: None
) -> float:
    """Play the first of the tasks and write the pictures as .gif or .mp4; return the mean score of the episodes.

    `tell` gets a line if the environment cannot draw itself and its observations are drawn instead.
    """
    film = _film(trained, (), episodes, max_steps, tell)
    _write(file, film.pictures)
    return film.mean_score


def record_switch(
    path: Path, trained: Trained, switch: int, file: Path, *, episodes: int, max_steps: int,
    tell: Tell = lambda line: None,
) -> tuple[float, float]:  # fmt: skip
    """Film a task side by side with the weights at a switch and those at the end of the next segment.

    Switch 1 is the first. Both play the first of the tasks from the same seed. Returns the mean scores.
    """
    segments, kept = _segments(path), SwitchWeights(path).segments()
    if switch - 1 not in kept or switch not in segments:
        known = ", ".join(str(segment + 1) for segment in kept if segment + 1 in segments)
        remedy = f"it holds those of: {known}" if known else "a run keeps them with --keep-switch-weights"
        raise ConfigError(f"{path} holds no weights of switch {switch}; {remedy}")
    next_tasks = " and ".join(segments[switch]["tasks"])
    after = at_segment_end(trained, path, switch) if switch in kept else trained
    films = [
        _film(at_segment_end(trained, path, switch - 1), (f"before {next_tasks}",), episodes, max_steps, tell),
        _film(after, (f"after {next_tasks}",), episodes, max_steps, lambda line: None),  # it would repeat the same line
    ]
    _write(file, _side_by_side(*films))
    return films[0].mean_score, films[1].mean_score


def _side_by_side(left: Film, right: Film) -> Iterator[np.ndarray]:
    """Yield both films side by side; the shorter one repeats its last picture."""
    shown: list[np.ndarray] = []
    for pair in zip_longest(left.pictures, right.pictures):
        shown = [old if new is None else new for new, old in zip(pair, shown or pair, strict=True)]
        yield side_by_side(*shown)


def switch_task(path: Path, switch: int) -> str | None:
    """Return the first task of the segment before a switch; None if the run has no such segment."""
    ended = _segments(path).get(switch - 1)
    return None if ended is None else str(ended["tasks"][0])


def _segments(path: Path) -> dict[int, Row]:
    return {row["index"]: row for row in MetricsTable.read(path).where(kind="segment")}


def _film(trained: Trained, titles: Sequence[str], episodes: int, max_steps: int, tell: Tell) -> Film:
    """Film the first of the tasks, with its name and the score so far above every picture."""
    task, scores = trained.tasks[0], []
    pictures = (
        with_caption(picture, (task, *titles, f"score {score:.4g}"))
        for picture, score in _play(trained, task, episodes, max_steps, scores, tell)
    )
    return Film(pictures, scores)


def _play(
    trained: Trained, task: str, episodes: int, max_steps: int, scores: list[float], tell: Tell
) -> Iterator[tuple[np.ndarray, float]]:
    """Yield pictures with the score of the episode so far; scores of whole episodes are added to `scores`."""
    suite, network, seed = trained.suite, trained.agent.network, derive(trained.config.seed, "clearl video", task)
    stepper = Stepper(network, suite.spec, 1, reward_clip=trained.config.reward_clip, column="evaluate")
    scene, rng = open_scene(suite, task, seed, tell), generator(seed, "actions")
    try:
        for _ in range(episodes):
            frames, score = scene.envs.reset(), 0.0
            stepper.begin(slice(None), frames)
            yield scene.picture(frames[0]), score
            for _ in range(max_steps):
                with torch.inference_mode():
                    action = stepper.decide(network.head.noise(rng, suite.mask(task)[None], 1)[0]).action
                step = scene.envs.step(action)
                stepper.see(step.frames, step.first, action, step.reward)
                score += float(step.reward[0])
                yield scene.picture(step.frames[0]), score
                if step.terminated[0] or step.truncated[0]:
                    break
            scores.append(score)
    finally:
        scene.envs.close()


def open_scene(suite: Suite, task: str, seed: int, tell: Tell) -> Scene:
    """Return an environment that draws itself if the suite has one, else one whose observations are drawn."""
    if isinstance(suite, DrawsStates):
        try:
            return suite.make_scene(task, seed=seed)
        except NoPictureError as error:
            tell(f"{error}; the video shows what the agent observes")
    return Scene(suite.make(task, num_envs=1, seed=seed, training=False), partial(suite.render, task))


def _write(file: Path, pictures: Iterator[np.ndarray]) -> None:
    """Write a whole film or nothing: one that ends early must not look like a short episode."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    try:
        with exits_raise():  # environments are played while their pictures are written
            (_write_mp4 if file.suffix == ".mp4" else _write_gif)(unfinished, pictures)
        os.replace(unfinished, file)
    finally:
        unfinished.unlink(missing_ok=True)


def _write_gif(file: Path, pictures: Iterator[np.ndarray]) -> None:
    from PIL import Image

    others = (Image.fromarray(picture) for picture in pictures)
    first, duration_ms = next(others), 1000 // FRAMES_PER_SECOND
    with open(file, "wb") as stream:  # Pillow would leave it open at Ctrl-C
        first.save(stream, "GIF", save_all=True, append_images=others, duration=duration_ms, loop=0)


def _write_mp4(file: Path, pictures: Iterator[np.ndarray]) -> None:
    try:
        from imageio_ffmpeg import write_frames
    except ImportError as error:
        remedy = "install it with: pip install 'clearl[video]', or name a .gif instead"
        raise MissingExtraError("a video in .mp4", "imageio-ffmpeg", remedy) from error
    first = next(pictures)
    height, width = first.shape[:2]
    # The format is explicit, as the temporary file's name does not show it.
    kind = {"fps": FRAMES_PER_SECOND, "macro_block_size": 1, "codec": "libx264", "output_params": ["-f", "mp4"]}
    with contextlib.closing(write_frames(file, (width, height), **kind)) as writer:
        writer.send(None)
        for picture in chain([first], pictures):
            writer.send(np.ascontiguousarray(picture))
