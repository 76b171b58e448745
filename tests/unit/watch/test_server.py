"""The server answers for runs below its roots and nothing else, and for nobody who should not ask."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from clearl.cli.main import main
from clearl.errors import ConfigError
from clearl.records import MetricsWriter, eval_row
from clearl.watch import server as server_module
from clearl.watch.run import WatchedRun
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


def list_runs(server: WatchServer) -> list[dict[str, Any]]:
    return get_json(server, "/api/runs")["runs"]


def test_lists_the_runs_below_a_directory_and_shows_their_rows(make_run: Callable[..., Path], tmp_path: Path) -> None:
    make_run("clear", 0, returns=lambda task, share: 10 * share)
    make_run("clear", 1)
    with serving(tmp_path) as server:
        runs = list_runs(server)
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
        runs = {run["name"]: run for run in list_runs(server)}
        assert (runs["runs/ends"]["total_frames"], runs["runs/ends"]["forever"]) == (2000, False)
        assert (runs["runs/goes-on"]["total_frames"], runs["runs/goes-on"]["forever"]) == (None, True)
        assert (runs["runs/odd"]["total_frames"], runs["runs/odd"]["tasks"]) == (None, [])


def test_a_growing_a_resumed_and_a_deleted_run_are_followed(make_run: Callable[..., Path], tmp_path: Path) -> None:
    path = make_run("clear", 0, until=0.5, status="running")
    with serving(tmp_path) as server:
        (run,) = list_runs(server)
        address = f"/api/runs/{run['id']}"
        before = get_json(server, address)["evaluations"]["a"]["frames"]
        position = (path / "metrics.jsonl").read_bytes()
        with MetricsWriter(path) as writer:
            writer.write(eval_row(task="a", frames=2500, mean_return=7.0, episodes=1, updates=1, wall_s=1.0))
        assert get_json(server, address)["evaluations"]["a"]["frames"] == [*before, 2500.0]
        (path / "metrics.jsonl").write_bytes(position)  # a resume drops what its checkpoint does not know
        assert get_json(server, address)["evaluations"]["a"]["frames"] == before
        (path / "metrics.jsonl").unlink()  # whoever deletes a directory deletes one file after the other
        assert get_json(server, address)["evaluations"]["a"]["frames"] == before
        shutil.rmtree(path)
        shown = get_json(server, address)
        assert (shown["status"], shown["evaluations"]["a"]["frames"], shown["method"]) == ("deleted", before, "clear")
        (line,) = list_runs(server)
        assert (line["status"], line["frames"], line["arm"]) == ("deleted", 2000, "clear")


class Events:
    """The events that a page would get."""

    def __init__(self, server: WatchServer, *ids: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        self._connection.request("GET", "/api/events?" + "&".join(f"run={key}" for key in ids))
        self._answer = self._connection.getresponse()
        assert self._answer.getheader("Content-Type") == "text/event-stream"
        self.expect("alive")

    def expect(self, kind: str) -> None:
        """Read on to the next event of a kind, which must come within two seconds."""
        began = time.monotonic()
        while self._answer.readline().decode().strip() != f"event: {kind}":
            assert time.monotonic() - began < 2
        self._answer.readline()

    def close(self) -> None:
        self._answer.close()
        self._connection.close()


def add_evaluation(path: Path, frames: int) -> None:
    with MetricsWriter(path) as writer:
        writer.write(eval_row(task="a", frames=frames, mean_return=7.0, episodes=1, updates=1, wall_s=1.0))


def test_events_tell_of_new_rows_and_new_runs_within_two_seconds(make_run: Callable[..., Path], tmp_path: Path) -> None:
    path = make_run("clear", 0, until=0.5, status="running")
    with serving(tmp_path) as server:
        (run,) = list_runs(server)
        events = Events(server, run["id"])
        add_evaluation(path, 2500)
        events.expect("run")
        make_run("clear", 1)
        events.expect("runs")
        events.close()


def test_the_list_follows_runs_that_nobody_has_chosen(make_run: Callable[..., Path], tmp_path: Path) -> None:
    path = make_run("clear", 0, until=0.5, status="running")
    with serving(tmp_path) as server:
        assert [run["frames"] for run in list_runs(server)] == [2000]
        events = Events(server)
        add_evaluation(path, 2500)
        events.expect("runs")
        assert [run["frames"] for run in list_runs(server)] == [2500]
        os.utime(path / "metrics.jsonl", (1_000, 1_000))
        events.expect("runs")
        assert [(run["status"], run["silent"]) for run in list_runs(server)] == [("running", True)]
        shutil.rmtree(path)
        events.expect("runs")
        assert [(run["status"], run["silent"], run["frames"]) for run in list_runs(server)] == [
            ("deleted", False, 2500)
        ]
        events.close()


def test_a_closed_page_is_no_longer_served(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with serving(tmp_path) as server:
        events = Events(server)
        (serving_it,) = [each for each in set(threading.enumerate()) - before if "process_request" in each.name]
        events.close()
        serving_it.join(timeout=server_module.POLL_S + 2)
        assert not serving_it.is_alive(), "not at the next sign of life, 15 s later"


def test_a_video_that_is_written_again_is_told_and_shown_anew(make_run: Callable[..., Path], tmp_path: Path) -> None:
    path = make_run("clear", 0)
    (path / "videos").mkdir()
    with serving(tmp_path) as server:
        (run,) = list_runs(server)
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
        cookie = headers["set-cookie"].partition(";")[0]
        assert "secret" not in cookie and get(server, "/api/runs", Cookie=f"a=b; {cookie}")[0] == 200
        assert get(server, "/api/runs", Cookie=cookie[:-1])[0] == 403


@pytest.mark.parametrize("token", ["a+b/c=", "a&b#c%41", '";,\\ \r\n', "Zürich 🎈"])
def test_any_token_makes_a_link_that_opens(tmp_path: Path, token: str) -> None:
    jar = CookieJar()
    opener = build_opener(HTTPCookieProcessor(jar))
    with serving(tmp_path, token=token) as one, serving(tmp_path, token="other") as other:
        for server in (one, other):
            with opener.open(server.url, timeout=20) as page:
                assert page.status == 200
        for server in (one, other):  # the link to the second has not logged out the first
            with opener.open(f"http://127.0.0.1:{server.server_port}/api/runs", timeout=20) as answer:
                assert json.load(answer)["runs"] == []


@pytest.mark.parametrize("token", ["", "  ", "\udcff"])
def test_a_token_that_protects_nothing_is_refused(tmp_path: Path, token: str) -> None:
    with pytest.raises(ConfigError, match="--token"):
        serve([tmp_path], host="0.0.0.0", token=token)


def test_the_link_for_others_names_the_machine(tmp_path: Path) -> None:
    with serving(tmp_path, host="0.0.0.0", token="secret") as server:
        assert server.url == f"http://127.0.0.1:{server.server_port}/?token=secret"
        assert server.shared_url == f"http://{socket.gethostname()}:{server.server_port}/?token=secret"
    with serving(tmp_path) as server:
        assert server.shared_url is None


def test_the_token_is_given_taken_from_the_environment_or_made_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(server: WatchServer, poll_interval: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(WatchServer, "serve_forever", stop)
    monkeypatch.delenv("CLEARL_WATCH_TOKEN", raising=False)

    def tokens(*arguments: str) -> list[str]:
        assert main(["watch", str(tmp_path), "--no-browser", *arguments]) == 0
        return re.findall(r"http://\S+?:\d+/(?:\?token=)?(\S*)", capsys.readouterr().out)

    assert tokens() == [""]
    made_up, for_others = tokens("--host", "0.0.0.0")
    assert made_up == for_others and len(made_up) >= 22 and tokens("--host", "0.0.0.0")[0] != made_up
    monkeypatch.setenv("CLEARL_WATCH_TOKEN", "from the shell")
    assert tokens("--host", "0.0.0.0") == ["from%20the%20shell"] * 2 and tokens() == ["from%20the%20shell"]
    assert tokens("--token", "given") == ["given"]


@pytest.mark.parametrize(
    ("asked", "status", "body", "content_range"),
    [
        ("bytes=0-1", 206, b"01", "bytes 0-1/10"),
        ("bytes=8-", 206, b"89", "bytes 8-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=4-99", 206, b"456789", "bytes 4-9/10"),
        ("bytes=10-", 416, b"", "bytes */10"),
        ("bytes=0-1,4-5", 200, b"0123456789", None),
        ("bytes=-", 200, b"0123456789", None),
    ],
)
def test_parts_of_a_video_are_sent_to_browsers_that_play_no_other(
    make_run: Callable[..., Path], tmp_path: Path, asked: str, status: int, body: bytes, content_range: str | None
) -> None:
    path = make_run("clear", 0)
    (path / "videos").mkdir()
    (path / "videos" / "play.mp4").write_bytes(b"0123456789")
    with serving(tmp_path) as server:
        (run,) = list_runs(server)
        answer = get(server, f"/api/runs/{run['id']}/videos/play.mp4", Range=asked)
        assert (answer[0], answer[1], answer[2].get("content-range")) == (status, body, content_range)
        assert answer[2]["content-type"] == "video/mp4"


def test_no_path_leads_out_of_the_runs(make_run: Callable[..., Path], tmp_path: Path) -> None:
    path = make_run("clear", 0)
    (tmp_path / "secret.gif").write_bytes(b"secret")
    (path / "videos").mkdir()
    (path / "videos" / "play.gif").write_bytes(b"GIF89a")
    with serving(tmp_path) as server:
        (run,) = list_runs(server)
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
        assert list_runs(server)[0]["arm"] == HOSTILE


def test_damaged_and_odd_files_are_shown_as_far_as_they_go(make_run: Callable[..., Path], tmp_path: Path) -> None:
    path = make_run("clear", 0)
    (path / "meta.json").write_text("{")
    with open(path / "metrics.jsonl", "ab") as file:
        file.write(b'garbage\n{"v":1,"kind":"train"}\n\xff\xfe\n{"half')
    with serving(tmp_path) as server:
        (run,) = list_runs(server)
        assert run["status"] == "unreadable"
        assert get_json(server, f"/api/runs/{run['id']}")["evaluations"]["a"]["frames"][-1] == 4000


def test_pipes_instead_of_files_hold_up_nothing(make_run: Callable[..., Path], tmp_path: Path) -> None:
    path, other = make_run("clear", 0), make_run("clear", 1)
    for name in ("metrics.jsonl", "config.yaml"):
        (path / name).unlink()
        os.mkfifo(path / name)
    with serving(tmp_path) as server:
        odd, whole = list_runs(server)
        assert (odd["frames"], whole["frames"], whole["name"]) == (None, 4000, f"runs/{other.name}")
        shown = get_json(server, f"/api/runs/{odd['id']}")
        assert shown["problem"] == f"{path / 'metrics.jsonl'} is no plain file" and shown["config"] == ""
        (path / "metrics.jsonl").unlink()
        (path / "metrics.jsonl").symlink_to(path / "metrics.jsonl")
        shown = get_json(server, f"/api/runs/{odd['id']}")
        assert shown["problem"] == "metrics.jsonl cannot be read: Too many levels of symbolic links"


def test_a_request_that_fails_says_why_and_an_open_stream_gets_no_second_answer(
    make_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run("clear", 0)

    def fail(self: WatchedRun) -> None:
        raise PermissionError(13, "no entry")

    with serving(tmp_path) as server:
        (run,) = list_runs(server)
        monkeypatch.setattr(WatchedRun, "summary", fail)
        status, body, _ = get(server, f"/api/runs/{run['id']}")
        assert (status, body) == (500, b"PermissionError: [Errno 13] no entry")
        monkeypatch.undo()
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        connection.request("GET", f"/api/events?run={run['id']}")
        answer = connection.getresponse()
        monkeypatch.setattr(WatchedRun, "stamp", fail)
        assert b"PermissionError" not in answer.read() and answer.status == 200
        connection.close()


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
        runs = list_runs(server)
        assert len(runs) == 100
        assert get_json(server, f"/api/runs/{runs[50]['id']}")["rows"] > 1_000
        assert time.process_time() - began < 3.0
