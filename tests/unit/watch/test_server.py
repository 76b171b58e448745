"""The server answers for runs below its roots and nothing else, and for nobody who should not ask."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clearl.errors import ConfigError
from clearl.records import MetricsWriter, eval_row
from clearl.watch import server as server_module
from clearl.watch.server import WatchServer, serve

HOSTILE = '<img src=x onerror="alert(1)">'


@contextmanager
def serving(*roots: Path, **options: Any) -> Iterator[WatchServer]:
    server = serve(list(roots), **options)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def get(server: WatchServer, path: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body, {name.lower(): value for name, value in answer.getheaders()}


def get_json(server: WatchServer, path: str) -> Any:
    status, body, _ = get(server, path)
    assert status == 200, body
    return json.loads(body)


def test_lists_the_runs_below_a_directory_and_shows_their_rows(make_run: Callable[..., Path], tmp_path: Path) -> None:
    make_run("clear", 0, returns=lambda task, share: 10 * share)
    make_run("clear", 1)
    with serving(tmp_path) as server:
        runs = get_json(server, "/api/runs")
        assert [run["name"] for run in runs] == ["runs/clear-seed0", "runs/clear-seed1"]
        assert (runs[0]["frames"], runs[0]["total_frames"], runs[0]["status"]) == (4000, 4000, "finished")
        shown = get_json(server, f"/api/runs/{runs[0]['id']}")
        assert shown["evaluations"]["a"]["frames"][-1] == 4000
        assert shown["evaluations"]["a"]["values"]["return"][-1] == 10.0
        assert "learning_rate" in shown["config"]


def test_a_plan_without_an_end_has_no_length(make_run: Callable[..., Path], tmp_path: Path) -> None:
    segments = [{"tasks": [task], "frames": 1000} for task in "ab"]
    make_run("clear", 0, name="ends", plan={"segments": segments})
    make_run("clear", 1, name="goes-on", plan={"segments": segments, "forever": True})
    make_run("clear", 2, name="odd", plan={"segments": 7, "evaluate": "ab", "forever": "yes"})
    with serving(tmp_path) as server:
        runs = {run["name"]: run for run in get_json(server, "/api/runs")}
        assert (runs["runs/ends"]["total_frames"], runs["runs/ends"]["forever"]) == (2000, False)
        assert (runs["runs/goes-on"]["total_frames"], runs["runs/goes-on"]["forever"]) == (None, True)
        assert (runs["runs/odd"]["total_frames"], runs["runs/odd"]["tasks"]) == (None, [])


def test_a_growing_a_resumed_and_a_deleted_run_are_followed(make_run: Callable[..., Path], tmp_path: Path) -> None:
    path = make_run("clear", 0, until=0.5, status="running")
    with serving(tmp_path) as server:
        (run,) = get_json(server, "/api/runs")
        address = f"/api/runs/{run['id']}"
        before = get_json(server, address)["evaluations"]["a"]["frames"]
        position = (path / "metrics.jsonl").read_bytes()
        with MetricsWriter(path) as writer:
            writer.write(eval_row(task="a", frames=2500, mean_return=7.0, episodes=1, updates=1, wall_s=1.0))
        assert get_json(server, address)["evaluations"]["a"]["frames"] == [*before, 2500.0]
        (path / "metrics.jsonl").write_bytes(position)  # a resume drops what its checkpoint does not know
        assert get_json(server, address)["evaluations"]["a"]["frames"] == before
        shutil.rmtree(path)
        assert get_json(server, address)["gone"] is True


def test_events_tell_of_new_rows_and_new_runs_within_two_seconds(make_run: Callable[..., Path], tmp_path: Path) -> None:
    path = make_run("clear", 0, until=0.5, status="running")
    with serving(tmp_path) as server:
        (run,) = get_json(server, "/api/runs")
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        connection.request("GET", f"/api/events?run={run['id']}")
        answer = connection.getresponse()
        assert answer.getheader("Content-Type") == "text/event-stream"

        def expect(kind: str) -> None:
            began = time.monotonic()
            while answer.readline().decode().strip() != f"event: {kind}":
                assert time.monotonic() - began < 2 + server_module.POLL_S
            answer.readline()

        expect("alive")
        with MetricsWriter(path) as writer:
            writer.write(eval_row(task="a", frames=2500, mean_return=7.0, episodes=1, updates=1, wall_s=1.0))
        expect("run")
        make_run("clear", 1)
        expect("runs")
        connection.close()


def test_a_video_that_is_written_again_is_told_and_shown_anew(make_run: Callable[..., Path], tmp_path: Path) -> None:
    path = make_run("clear", 0)
    (path / "videos").mkdir()
    with serving(tmp_path) as server:
        (run,) = get_json(server, "/api/runs")
        address = f"/api/runs/{run['id']}"
        watched = server.library.get(run["id"])
        assert watched is not None and get_json(server, address)["video"] is None
        stamps = {watched.stamp()}
        for number in range(2):
            (path / "videos" / "play.gif.7.tmp").write_bytes(b"half")
            assert watched.stamp() in stamps, "a video under way is not shown"
            (path / "videos" / "play.gif.7.tmp").rename(path / "videos" / "play.gif")
            os.utime(path / "videos" / "play.gif", ns=(number, number))
            shown = get_json(server, address)
            assert (shown["video"], shown["video_stamp"]) == ("play.gif", str(number))
            stamps.add(watched.stamp())
        assert len(stamps) == 3, "each one is told"


def test_another_sites_name_for_this_address_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert get(server, "/api/runs", Host="evil.example")[0] == 421
        assert get(server, "/api/runs", Host="evil.example:80")[0] == 421
        for host in ("localhost", "127.0.0.1:1", "[::1]:80"):
            assert get(server, "/api/runs", Host=host)[0] == 200


def test_other_addresses_need_a_token_and_the_token_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--token"):
        serve([tmp_path], host="0.0.0.0")
    with serving(tmp_path, host="0.0.0.0", token="secret") as server:
        for path in ("/", "/api/runs", "/watch.js", "/api/events", "/api/runs?token=wrong"):
            assert get(server, path)[0] == 403
        status, _, headers = get(server, "/?token=secret")
        assert status == 200 and "HttpOnly" in headers["set-cookie"] and "SameSite=Strict" in headers["set-cookie"]
        assert get(server, "/api/runs", Cookie="clearl_token=secret")[0] == 200


def test_no_path_leads_out_of_the_runs(make_run: Callable[..., Path], tmp_path: Path) -> None:
    path = make_run("clear", 0)
    (tmp_path / "secret.gif").write_bytes(b"secret")
    (path / "videos").mkdir()
    (path / "videos" / "play.gif").write_bytes(b"GIF89a")
    with serving(tmp_path) as server:
        (run,) = get_json(server, "/api/runs")
        base = f"/api/runs/{run['id']}/videos"
        assert get(server, f"{base}/play.gif")[1] == b"GIF89a"
        tries = [f"{base}/..%2f..%2fsecret.gif", f"{base}/../../secret.gif", f"{base}/other.gif", base]
        tries += ["/../pyproject.toml", "/static/../server.py", "/%2e%2e/server.py", "//etc/passwd"]
        for address in tries:
            status, body, _ = get(server, address)
            assert status == 404 and b"secret" not in body, address


def test_every_answer_forbids_scripts_and_hosts_of_others(make_run: Callable[..., Path], tmp_path: Path) -> None:
    make_run(HOSTILE, 0, tasks=(HOSTILE, "b"), name="run")
    with serving(tmp_path) as server:
        for path in ("/", "/watch.js", "/charts.js", "/watch.css", "/uPlot.iife.min.js", "/api/runs", "/nothing"):
            _, body, headers = get(server, path)
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
            assert headers["x-content-type-options"] == "nosniff"
            if path.endswith((".js", "/")) and "uPlot" not in path:
                assert b"innerHTML" not in body and b"https://" not in body
        assert json.loads(get(server, "/api/runs")[1])[0]["arm"] == HOSTILE


def test_damaged_and_odd_files_are_shown_as_far_as_they_go(make_run: Callable[..., Path], tmp_path: Path) -> None:
    path = make_run("clear", 0)
    (path / "meta.json").write_text("{")
    with open(path / "metrics.jsonl", "ab") as file:
        file.write(b'garbage\n{"v":1,"kind":"train"}\n\xff\xfe\n{"half')
    with serving(tmp_path) as server:
        (run,) = get_json(server, "/api/runs")
        assert run["status"] == "unreadable"
        assert get_json(server, f"/api/runs/{run['id']}")["evaluations"]["a"]["frames"][-1] == 4000


def test_bad_arguments_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no directory"):
        serve([tmp_path / "nowhere"])
    with serving(tmp_path) as server, pytest.raises(ConfigError, match="choose another --port"):
        serve([tmp_path], port=server.server_port)


def test_a_hundred_runs_of_ten_megabytes_open_in_three_seconds(make_run: Callable[..., Path], tmp_path: Path) -> None:
    path = make_run("clear", 0)
    line = (path / "metrics.jsonl").read_bytes().splitlines(keepends=True)[-1]
    (path / "metrics.jsonl").write_bytes(line * (10_000_000 // len(line)))
    for number in range(1, 100):
        other = tmp_path / f"run-{number}"
        other.mkdir()
        for name in ("meta.json", "config.yaml", "metrics.jsonl"):
            (other / name).hardlink_to(path / name)
    with serving(tmp_path) as server:
        began = time.process_time()  # of this process alone, whatever else the machine does
        runs = get_json(server, "/api/runs")
        assert len(runs) == 100
        assert get_json(server, f"/api/runs/{runs[50]['id']}")["rows"] > 1_000
        assert time.process_time() - began < 3.0
