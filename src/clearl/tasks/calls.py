"""Call an environment's own code outside of the step loop: whatever it does, an error names the environment."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from clearl.errors import ClearlError, EnvironmentFaultError
from clearl.tasks.exits import exits_raise


class Closes(Protocol):
    """An environment, or a vector of them."""

    def close(self) -> object: ...


@contextmanager
def env_call(task: str, what: str) -> Iterator[None]:
    """Raise `EnvironmentFaultError` for whatever the block raises, exits of the process included."""
    with kept_torch_defaults(), exits_raise():
        try:
            yield
        except ClearlError:
            raise
        except (Exception, SystemExit) as error:
            problem = f"{what} raised {type(error).__name__}: {error}\n{traceback.format_exc().rstrip()}"
            raise EnvironmentFaultError(task, 0, 0, problem) from error


def close_env(task: str, env: Closes) -> None:
    """Close an environment. If its code fails, report that on stderr and continue: its work is done."""
    try:
        with env_call(task, "close"):
            env.close()
    except ClearlError as fault:
        with contextlib.suppress(OSError, ValueError, AttributeError):  # stderr may be full or closed
            sys.stderr.write(f"clearl: {str(fault).splitlines()[0]}; nothing else is affected\n")


@contextmanager
def kept_torch_defaults() -> Iterator[None]:
    """Undo changes of torch's global defaults by an environment: the learner may share the process."""
    torch = sys.modules.get("torch")
    before = torch and (torch.is_grad_enabled(), torch.get_default_dtype())
    try:
        yield
    finally:
        if torch and before:
            torch.set_grad_enabled(before[0])
            torch.set_default_dtype(before[1])
