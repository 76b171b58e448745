"""Agents on the Hugging Face hub, or on a server with its API at HF_ENDPOINT."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from clearl.errors import ClearlError, ConfigError, MissingExtraError

PREFIX = "hf:"
_NAME = re.compile(r"([\w-][\w.-]*/[\w-][\w.-]*)(?:@([\w.-]+))?", re.ASCII)
_COMMIT = re.compile("[0-9a-f]{40}")


class HubError(ClearlError):
    """The hub cannot be reached, or refuses a request."""


class HubName(NamedTuple):
    """`ORG/NAME` or `ORG/NAME@REVISION`."""

    repo: str
    revision: str | None

    @classmethod
    def parse(cls, text: str) -> HubName:
        found = _NAME.fullmatch(text.removeprefix(PREFIX))
        if found is None or ".." in text:
            raise ConfigError(f"a model on the hub is named ORG/NAME or ORG/NAME@REVISION, got {text!r}")
        return cls(found[1], found[2])


def download(name: str, caps_nbytes: Mapping[str, int]) -> Path:
    """Fetch the files named in `caps_nbytes`, none larger than that, and nothing else; return their directory.

    They are kept below HF_HOME, and fetched again only when they have changed; what was fetched before is found without
    a network where the revision is a whole commit hash.
    """
    hub, (repo, revision) = _hub(), HubName.parse(name)
    if _COMMIT.fullmatch(revision or "") and all(
        (_place(hub, repo, revision) / file).is_file() for file in caps_nbytes
    ):
        return _place(hub, repo, revision)
    with _one_line(hub, repo):
        about = hub.HfApi().model_info(repo, revision=revision, files_metadata=True)
        sizes = {file.rfilename: file.size for file in about.siblings or []}
        _check_sizes(repo, sizes, caps_nbytes)
        directory = _place(hub, repo, about.sha)
        for file in caps_nbytes:
            hub.hf_hub_download(repo, file, revision=about.sha, local_dir=directory)
    return directory


def _place(hub: Any, repo: str, commit: str | None) -> Path:
    return Path(hub.constants.HF_HOME) / "clearl" / f"{repo.replace('/', '--')}@{commit}"


def _check_sizes(repo: str, sizes: Mapping[str, int | None], caps_nbytes: Mapping[str, int]) -> None:
    for file, cap in caps_nbytes.items():
        if file not in sizes:
            raise HubError(f"{repo} holds no {file}: it is no agent that clearl push has written")
        size = sizes[file]
        if size is None or size > cap:
            told = "an unknown number of" if size is None else f"{size:,}"
            raise HubError(
                f"{repo}: {file} has {told} bytes, and at most {cap:,} are fetched; if you trust it, download the "
                "files yourself and give their directory to load_agent"
            )


def check_push(name: str) -> str:
    """Return the repository that is named; raise, before anything is made for it, if `push` could not write there."""
    hub, parsed = _hub(), HubName.parse(name)
    if parsed.revision is not None:
        raise ConfigError(f"push goes to the main branch; leave out @{parsed.revision}")
    if not hub.get_token():
        raise ConfigError(
            "no token of the Hugging Face hub is set; run `hf auth login`, or set HF_TOKEN to one that may write"
        )
    return parsed.repo


def push(folder: Path, repo: str, *, replaces: Sequence[str], private: bool, message: str) -> str:
    """Upload every file below `folder` as one commit, into a repository that is made if need be; return its address.

    Files in the repository that match a pattern of `replaces`, and are not below `folder`, are deleted.
    """
    hub = _hub()
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    with _one_line(hub, repo):
        api = hub.HfApi()
        url = api.create_repo(repo, private=private, exist_ok=True)
        about = api.model_info(repo)
        held = [file.rfilename for file in about.siblings or []]
        stale = [name for name in held if name not in files and any(fnmatchcase(name, each) for each in replaces)]
        operations = [hub.CommitOperationAdd(name, path) for name, path in files.items()]
        operations += [hub.CommitOperationDelete(name) for name in stale]
        # With its parent named, the commit fails if another push came in between, whose files `stale` does not have.
        api.create_commit(repo, operations, commit_message=message, parent_commit=about.sha)
    return str(url)


def _hub() -> Any:
    try:
        for name in ("constants", "errors"):  # the package itself imports lazily
            import_module(f"huggingface_hub.{name}")
        return import_module("huggingface_hub")
    except ImportError:
        raise MissingExtraError("the Hugging Face hub", "huggingface_hub", "pip install 'clearl[hub]'") from None


@contextmanager
def _one_line(hub: Any, repo: str) -> Iterator[None]:
    """Turn what the hub's client raises into one line that says what to do."""
    try:
        yield
    except ClearlError:
        raise
    except Exception as error:  # which kind it is depends on the HTTP library that the client uses
        # The client wraps what went wrong with a large file.
        raise _problem(hub, repo, (error.__cause__ if isinstance(error, RuntimeError) else None) or error) from error


def _problem(hub: Any, repo: str, error: BaseException) -> HubError:
    endpoint = hub.constants.ENDPOINT
    if isinstance(error, hub.errors.RepositoryNotFoundError):
        return HubError(
            f"{endpoint} has no model {repo}, or it is private; check the name, or log in with `hf auth login`"
        )
    if isinstance(error, hub.errors.RevisionNotFoundError):
        return HubError(f"{repo} has no such revision on {endpoint}; check what stands after the @")
    if isinstance(error, hub.errors.HfHubHTTPError):
        status = getattr(getattr(error, "response", None), "status_code", None)
        remedy = "log in with a token that may do so: `hf auth login`" if status in (401, 403) else "try again later"
        return HubError(f"{endpoint} answers {status} for {repo}: {_first_line(error)}; {remedy}")
    return HubError(
        f"{endpoint} cannot be reached ({type(error).__name__}: {_first_line(error)}); check the network and "
        "HF_ENDPOINT"
    )


def _first_line(error: BaseException) -> str:
    return (str(getattr(error, "server_message", None) or error).strip() or "no message").splitlines()[0][:200]
