"""`clearl doctor`: list what is installed, what is missing, and how to get it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from clearl.cli.arguments import parse
from clearl.cli.output import fitted

ABOUT = "Show what is installed, what is missing and how to install it, and what this machine offers."
SIGNS = {"ok": "+", "missing": "-", "hint": "!"}


@dataclass(frozen=True)
class DoctorArgs:
    """`clearl doctor` takes no flags."""


def main(argv: list[str]) -> int:
    """Run the verb; return the exit code. What is missing is no error: few need everything."""
    parse(DoctorArgs, argv, verb="doctor", about=ABOUT)

    from clearl.doctor import examine

    for diagnosis in examine(Path.cwd()):
        print(fitted(f"{SIGNS[diagnosis.verdict]} {diagnosis.what:<20} {diagnosis.found}", indent=23))
        if diagnosis.remedy:  # left in one piece: it may be a command to copy
            print(f"  {'':<20} {diagnosis.remedy}")
    return 0
