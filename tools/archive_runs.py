"""Keep the rows of finished runs, so that an experiment goes on, or is reported anew, on another machine.

    python tools/archive_runs.py pack OUT NAME       after clearl sweep experiments/NAME.yaml --out OUT
    python tools/archive_runs.py unpack OUT NAME     before clearl sweep experiments/NAME.yaml --out OUT

`experiments/rows/NAME.tar.xz` holds settings, meta data and rows of each run, but no weights and no replay. A sweep
does not repeat a run that was unpacked. The same runs give the same bytes. Paths below OUT become relative to it, and
other absolute ones are refused, so that no path of your machine gets into the archive.
"""

from __future__ import annotations

import io
import json
import re
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from clearl.records.parts import is_part
from clearl.records.run_dir import CONFIG_FILE, META_FILE, holds_run
from clearl.records.schema import METRICS_FILE, seal, unseal
from clearl.reproduce.runner import is_finished

ARCHIVES = Path(__file__).resolve().parent.parent / "experiments" / "rows"
KEPT = (CONFIG_FILE, META_FILE, METRICS_FILE)


def pack(out: Path, archive: Path, name: str) -> int:
    """Write the kept files of every finished run of an experiment; return the number of runs."""
    runs = list(_finished_runs(out / "runs" / name))
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for run in runs:
            for file in sorted(path for path in run.rglob("*") if _is_kept(path.name) and path.is_file()):
                data = file.read_bytes()
                if file.name == META_FILE:
                    data = _without_paths(data, file, out)
                entry = tarfile.TarInfo(file.relative_to(out).as_posix())
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
    return len(runs)


def unpack(out: Path, archive: Path) -> int:
    """Write the files of an archive below `out`, but never over a run that is there; return the number of runs."""
    here = {path.parent for path in out.rglob(CONFIG_FILE)}
    written = set()
    with tarfile.open(archive, "r:xz") as tar:
        for entry in tar:
            run = (out / entry.name).parent
            if run in here or not _is_kept(Path(entry.name).name):
                continue
            tar.extract(entry, out, filter="data")
            written.add(run)
    return sum(not holds_run(run.parent) for run in written)  # the parts of a separate run are no runs of their own


def _is_kept(name: str) -> bool:
    return name in KEPT or is_part(name)


def _finished_runs(place: Path) -> Iterator[Path]:
    for meta in sorted(place.glob(f"*/*/{META_FILE}")):
        if is_finished(meta.parent):
            yield meta.parent


def _without_paths(data: bytes, file: Path, out: Path) -> bytes:
    """Make the paths of a run's command relative to `out`; refuse those that are elsewhere."""
    meta, above = unseal(data), f"{out.resolve()}/"
    words = [str(word) for word in meta.get("argv", [])]
    shortened = [word.removeprefix(above) for word in words]
    for word in shortened:
        if re.match(r"/|~|[A-Za-z]:\\", word):
            raise SystemExit(f"{file} names {word}, which is not below {out}: run the sweep without this path")
    return data if shortened == words else seal(json.dumps(meta | {"argv": shortened}, indent=2)) + b"\n"


if __name__ == "__main__":
    verb, out, name = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    archive = ARCHIVES / f"{name}.tar.xz"
    count = {"pack": lambda: pack(out, archive, name), "unpack": lambda: unpack(out, archive)}[verb]()
    print(f"{verb}: {count} runs, {archive.name}, {archive.stat().st_size:,} bytes")
