"""`clearl check`: find out whether an environment is fit for training, and if not, what to change."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import _exit  # the one that exits, also while an environment is made
from typing import TYPE_CHECKING, Annotated

from clearl.cli.arguments import POSITIONAL, parse
from clearl.cli.output import fitted
from clearl.config import Between
from clearl.errors import ClearlError, ConfigError
from clearl.plugins import import_plugins
from clearl.suites import SUITES

if TYPE_CHECKING:
    from clearl.tasks.checker import EnvFinding

ABOUT = "Play random actions and report what would hurt training, with the remedy. Exit code 1 if training cannot work."


@dataclass(frozen=True)
class CheckArgs:
    """Flags of `clearl check`."""

    environments: Annotated[tuple[str, ...], POSITIONAL, "Gymnasium ids, as gym:CartPole-v1 or gym:A-v0,B-v0"]
    steps: Annotated[int, Between(1, 10_000_000), "random steps to play"] = 2_000
    timeout_s: Annotated[float, Between(0.1, 86_400), "seconds that one step or reset may take"] = 30.0
    imports: Annotated[tuple[str, ...], "modules to import first, e.g. one that registers your environments"] = ()


def main(argv: list[str]) -> int:
    """Run the verb; return the exit code."""
    args = parse(CheckArgs, argv, verb="check", about=ABOUT)
    for group in args.environments:
        suite, given, _ = group.partition(":")
        if given and suite != "gym" and suite in SUITES:
            raise ConfigError(
                f"check takes Gymnasium environments; suite {suite} comes with clearl, whose tests check it"
            )
    ids = [name for group in args.environments for name in group.removeprefix("gym:").split(",") if name]
    if not ids:
        raise ConfigError("check needs an environment, as in: clearl check gym:CartPole-v1")

    from clearl.runtimes.local.guard import guarded

    with guarded():
        return max(_check(args, ids))


def _check(args: CheckArgs, ids: Sequence[str]) -> list[int]:
    """Check each environment and print what was found; return an exit code for each."""
    from clearl.tasks.checker import check_env
    from clearl.tasks.parameters import split_task
    from clearl.tasks.readings import describe_env
    from clearl.tasks.single import list_parameters

    import_plugins(args.imports)
    watchdog = _Watchdog(args.timeout_s)
    codes = []
    for name in ids:
        with watchdog.watching(name):
            findings = check_env(name, steps=args.steps, beat=watchdog.beat)
        codes.append(_show(name, findings))
        with suppress(ClearlError):  # the findings said why it cannot be made
            parameters = f"parameters ({split_task(name)[0]}?name=value): {list_parameters(name)}"
            print("\n".join(fitted(f"    {line}") for line in (*describe_env(name), parameters)))
    return codes


class _Watchdog:
    """Ends the process if an environment does not return: nothing else stops code that hangs outside of Python."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._last = (time.monotonic(), "")

    def beat(self, what: str) -> None:
        """Note that the environment is asked for `what`."""
        self._last = (time.monotonic(), what)

    @contextmanager
    def watching(self, name: str) -> Iterator[None]:
        """Watch over the block, which checks the environment called `name`."""
        self.beat("making it")
        done = threading.Event()
        thread = threading.Thread(target=self._watch, args=(name, done), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _watch(self, name: str, done: threading.Event) -> None:
        while not done.wait(min(0.2, self._timeout_s)):
            since, what = self._last
            if time.monotonic() - since > self._timeout_s:
                print(f"{name}: error: {what} did not return within {self._timeout_s:g} s")
                print("    remedy: mend what it waits for; --timeout-s gives a slow environment more time", flush=True)
                _exit(1)


def _show(name: str, findings: list[EnvFinding]) -> int:
    if not findings:
        print(f"{name}: fit for training")
    for finding in findings:
        print(fitted(f"{name}: {finding.severity}: {finding.problem}\n    remedy: {finding.remedy}"))
    return 1 if any(finding.severity == "error" for finding in findings) else 0
