"""Errors of the operating system become one line with the path, its message and a remedy that fits."""

from __future__ import annotations

import errno
import os
import pickle

import pytest

from clearl.errors import EnvironmentFaultError, UnknownNameError, os_problem

REMEDIES = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room",
    errno.EROFS: "may write to",
    errno.EACCES: "may write to",
    errno.EMFILE: "ulimit -n",
    errno.ENFILE: "ulimit -n",
    errno.ENOTDIR: "in the way",
    errno.ENOENT: "missing",
    errno.ENAMETOOLONG: "shorter path",
    errno.EIO: "the disk reports an error",
}


@pytest.mark.parametrize("number", REMEDIES)
def test_every_common_refusal_has_its_own_remedy(number: int) -> None:
    said = os_problem(OSError(number, os.strerror(number), "runs/a"))
    assert said.startswith(f"runs/a: {os.strerror(number)}; ") and REMEDIES[number] in said and "\n" not in said
    others = {remedy for remedy in REMEDIES.values() if remedy != REMEDIES[number]}
    assert not any(remedy in said for remedy in others), "too many open files are no full disk"


def test_what_has_no_path_or_no_words_is_told_all_the_same() -> None:
    assert os_problem(OSError(errno.ENOSPC, "No space left on device")).startswith("the output: No space left")
    assert os_problem(OSError("strange"), "runs/a") == "runs/a: strange"


@pytest.mark.parametrize("error", [UnknownNameError("verb", "rnu", ["run"]), EnvironmentFaultError("a", 1, 2, "NaN")])
def test_errors_are_the_same_in_another_process(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - as processes of Ray hand them over
    assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)
