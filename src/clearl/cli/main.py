"""`clearl VERB ...`: finds the verb and turns errors into one line. Imports nothing heavy before it is needed."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NoReturn

from clearl import __version__
from clearl.cli.output import accept_any_terminal, silence
from clearl.errors import ClearlError, UnknownNameError, os_problem
from clearl.runtimes.host import open_standard_descriptors

VERBS = {
    "demo": "forgetting and its cure, on this machine, in minutes, with a report",
    "run": "train an agent on a stream of tasks; the same command resumes",
    "resume": "go on with a run where it stopped, with its own settings",
    "reproduce": "one experiment of the paper: its arms, seeds, figures and tables",
    "sweep": "arms, settings and seeds out of a file, several runs at a time, one report",
    "memory": "what a run remembers: its replay buffer, task by task",
    "forget": "drop a task from the memory of a run",
    "watch": "a live page of runs in the browser",
    "report": "page, figures and tables out of run directories",
    "leaderboard": "methods x suites out of run directories",
    "eval": "how well the trained agent does, task by task",
    "video": "watch the trained agent play",
    "export": "the trained agent as files that need no run directory",
    "push": "the trained agent, with a model card, to the Hugging Face hub",
    "check": "is this environment fit for training, and if not, what to change",
    "bench": "how fast training is here, next to what this machine could do at best",
    "list": "methods, suites, tasks, protocols, presets, runtimes, torsos",
    "doctor": "what is installed, what is missing, and how to get it",
}
INTERRUPTED = 130


def usage() -> str:
    """Return the text of `clearl --help`."""
    width = max(map(len, VERBS)) + 2
    lines = [f"  {verb:<{width}}{text}" for verb, text in VERBS.items()]
    head = (
        f"clearl {__version__}: one agent, a stream of tasks, nothing forgotten (CLEAR)\n\nusage: clearl VERB [flags]\n"
    )
    return "\n".join([head, *lines, "\nclearl VERB --help says more about a verb."])


def run_command() -> NoReturn:
    """Run the command of this process and end it, whatever threads environments have left behind."""
    if sys.stderr is not None:
        faulthandler.enable()  # a crash in an environment's own code is not silent
    code = main()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate()):
        os._exit(code)  # the interpreter would wait for them, perhaps for ever
    sys.exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb; return the exit code. A user's mistake is one line and code 2, Ctrl-C is code 130."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    open_standard_descriptors()
    accept_any_terminal()
    try:
        code = _dispatch(arguments)
        if sys.stdout is not None:  # closed with >&-
            sys.stdout.flush()
        return code
    except ClearlError as error:
        if os.environ.get("CLEARL_DEBUG"):
            raise
        print(f"clearl: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("clearl: stopped", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        silence()  # `clearl list | head`: the reader has what it wants
        return 0
    except OSError as error:
        if os.environ.get("CLEARL_DEBUG"):
            raise
        silence()
        print(f"clearl: {os_problem(error)}", file=sys.stderr)
        return 1


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if arguments[0] in ("--version", "version"):
        print(f"clearl {__version__}")
        return 0
    verb, rest = arguments[0], arguments[1:]
    if verb not in VERBS:
        raise UnknownNameError("verb", verb, VERBS)
    run: Callable[[list[str]], int] = import_module(f"clearl.cli.{verb}").main
    return run(rest)
