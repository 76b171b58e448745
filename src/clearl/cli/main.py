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
from clearl.cli.output import accept_any_terminal, reader_is_gone, silence
from clearl.errors import ClearlError, UnknownNameError, os_problem
from clearl.runtimes.host import open_standard_descriptors

VERBS = {
    "demo": "see forgetting and its cure in minutes, with a report",
    "run": "train an agent on a stream of tasks; the same command resumes",
    "resume": "continue a run where it stopped, with its own settings",
    "reproduce": "run an experiment of the paper: arms, seeds, figures and tables",
    "sweep": "run arms, settings and seeds from a file, with one report",
    "memory": "show what the replay buffer of a run holds, task by task",
    "forget": "delete a task from the replay buffer of a run",
    "watch": "follow runs live in the browser",
    "report": "compare runs: a page, figures and tables",
    "leaderboard": "rank the methods of run directories on each suite",
    "eval": "evaluate the trained agent, task by task",
    "video": "watch the trained agent play",
    "export": "write the trained agent to files that need no run directory",
    "push": "upload the trained agent, with a model card, to Hugging Face",
    "check": "check that an environment is fit for training, with remedies",
    "bench": "measure training speed against the ideal on this machine",
    "list": "list methods, suites, tasks, protocols, presets, runtimes, torsos",
    "doctor": "show what is installed, what is missing, and how to install it",
}
INTERRUPTED = 130


def usage() -> str:
    """Return the text of `clearl --help`."""
    width = max(map(len, VERBS)) + 2
    lines = [f"  {verb:<{width}}{text}" for verb, text in VERBS.items()]
    head = (
        f"clearl {__version__}: one agent, a stream of tasks, nothing forgotten (CLEAR)\n\nusage: clearl VERB [flags]\n"
    )
    return "\n".join([head, *lines, "\nclearl VERB --help describes a verb and its flags."])


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
        if sys.stdout is not None and not sys.stdout.closed:  # None: closed with >&-
            sys.stdout.flush()
        return code
    except ClearlError as error:
        if os.environ.get("CLEARL_DEBUG"):
            raise
        from clearl.records.names import printable  # a stranger's files may have named what the error tells

        print(printable("\n".join([f"clearl: {error}", *getattr(error, "__notes__", ())])), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("clearl: stopped", file=sys.stderr)
        return INTERRUPTED
    except ValueError:
        if os.environ.get("CLEARL_DEBUG") or sys.stdout is None or not sys.stdout.closed:
            raise
        print("clearl: the output is closed; an environment must not close sys.stdout", file=sys.stderr)
        return 1
    except OSError as error:
        if isinstance(error, BrokenPipeError) and reader_is_gone():
            silence()  # `clearl list | head`: the reader has what it wants
            return 0
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
