"""`clearl check`: is an environment fit for training, and if not, what to change."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from clearl.cli.arguments import POSITIONAL, parse
from clearl.config import Between
from clearl.errors import ClearlError, ConfigError
from clearl.plugins import import_plugins

if TYPE_CHECKING:
    from clearl.tasks.checker import Finding

ABOUT = "Play environments at random and say what would hurt training, with the remedy. Exit code 1 if one cannot work."


@dataclass(frozen=True)
class CheckArgs:
    """What `clearl check` takes."""

    environments: Annotated[tuple[str, ...], POSITIONAL, "Gymnasium ids, as gym:CartPole-v1 or gym:A-v0,B-v0"]
    steps: Annotated[int, Between(1, 10_000_000), "random steps to play"] = 2_000
    imports: Annotated[tuple[str, ...], "modules to import first, e.g. one that registers your environments"] = ()


def main(argv: list[str]) -> int:
    """Run the verb; the exit code."""
    args = parse(CheckArgs, argv, verb="check", about=ABOUT)
    ids = [name for group in args.environments for name in group.removeprefix("gym:").split(",") if name]
    if not ids:
        raise ConfigError("check needs an environment, as in: clearl check gym:CartPole-v1")

    from clearl.tasks.checker import check_env
    from clearl.tasks.single import list_parameters

    import_plugins(args.imports)
    worst = 0
    for name in ids:
        worst = max(worst, _show(name, check_env(name, steps=args.steps)))
        with suppress(ClearlError):  # the findings said why it cannot be made
            print(f"    parameters ({name}?name=value): {list_parameters(name)}")
    return worst


def _show(name: str, findings: list[Finding]) -> int:
    if not findings:
        print(f"{name}: fit for training")
    for finding in findings:
        print(f"{name}: {finding.severity}: {finding.problem}\n    remedy: {finding.remedy}")
    return 1 if any(finding.severity == "error" for finding in findings) else 0
