"""`clearl list`: every name that a flag takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated

from clearl.cli.arguments import POSITIONAL, parse
from clearl.cli.output import fitted
from clearl.errors import UnknownNameError

ABOUT = "Show the names that flags take: methods, corrections, suites, tasks, protocols, presets, runtimes, torsos, ..."


@dataclass(frozen=True)
class ListArgs:
    """Flags of `clearl list`."""

    what: Annotated[tuple[str, ...], POSITIONAL, "the kinds of names to list; default: all"] = ()


def main(argv: list[str]) -> int:
    """Run the verb; return the exit code."""
    args = parse(ListArgs, argv, verb="list", about=ABOUT)
    for name in args.what:
        if name not in LISTS:
            raise UnknownNameError("list", name, LISTS)
    for name in args.what or LISTS:
        listed = f"{name}: {', '.join(LISTS[name]())}" if name != "tasks" else "\n".join(["tasks:", *LISTS[name]()])
        print(fitted(listed))
    return 0


def _methods() -> Iterable[str]:
    from clearl.methods import method_spellings

    return method_spellings()


def _corrections() -> Iterable[str]:
    from clearl.methods import CORRECTIONS

    return CORRECTIONS


def _suites() -> Iterable[str]:
    from clearl.suites import SUITES

    return SUITES


def _tasks() -> Iterable[str]:
    from clearl.suites import SUITES

    for suite in SUITES:
        known = SUITES.get(suite).known_tasks
        yield f"  {suite}: {', '.join(known) if known else 'any id, as in gym:CartPole-v1,Acrobot-v1'}"


def _protocols() -> Iterable[str]:
    from clearl.protocols import PROTOCOLS

    return PROTOCOLS


def _presets() -> Iterable[str]:
    from clearl.config import preset_names

    return preset_names()


def _runtimes() -> Iterable[str]:
    from clearl.runtimes import RUNTIMES

    return RUNTIMES


def _torsos() -> Iterable[str]:
    from clearl.nets.torsos import TORSOS

    return TORSOS


def _mirrors() -> Iterable[str]:
    from clearl.records.mirrors import MIRRORS

    return MIRRORS


def _experiments() -> Iterable[str]:
    from clearl.reproduce.catalog import EXPERIMENTS

    return EXPERIMENTS


LISTS: dict[str, Callable[[], Iterable[str]]] = {
    "methods": _methods,
    "corrections": _corrections,
    "suites": _suites,
    "tasks": _tasks,
    "protocols": _protocols,
    "presets": _presets,
    "runtimes": _runtimes,
    "torsos": _torsos,
    "mirrors": _mirrors,
    "experiments": _experiments,
}
