"""The next task: train on one task, continue with another, and compare what is left of the first."""
# python examples/next_task.py
# clearl report runs/next-baseline runs/next-clear

import clearl


def score(run, task):
    """Return the score of a task with the last weights of a run."""
    return list(run.metrics.where(kind="eval", switch=True, task=task))[-1]["return"]


def main(out="runs", **settings):
    """Train the baseline and CLEAR on one control scheme of Breakout, then on another."""
    budget = {"cycles": 1, "frames_per_visit": 120_000, **settings}
    for method in ("baseline", "clear"):
        first = clearl.run(
            preset="minatar-schemes", method=method, tasks=["breakout"], out=f"{out}/first-{method}", **budget
        )
        # The copy carries on with the agent, its optimiser and its replay buffer; the first run stays as it is.
        # `first.extend(tasks=["breakout@1"])` does the same in place.
        then = clearl.run(resume_from=first.path, tasks=["breakout@1"], out=f"{out}/next-{method}")
        before, after, new = score(first, "breakout"), score(then, "breakout"), score(then, "breakout@1")
        print(
            f"{method:8}  first task: {before:5.2f} at first, {after:5.2f} after the next task; next task: {new:5.2f}"
        )


if __name__ == "__main__":
    main()
