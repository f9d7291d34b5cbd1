"""The proxy changes no byte, counts every image once, and stands between clients and a server that may go away."""

import concurrent.futures
import contextlib
import gzip
import http.client
import http.server
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request

import numpy as np
import pytest
from faults import contents, fill, mounted
from watching import events, feed, held_out

from tfbnood.errors import ServingError
from tfbnood.watch import Session
from tfbnood.watch import proxy as proxy_module
from tfbnood.watch import run as run_module
from tfbnood.watch.proxy import ProxySource, split_url
from tfbnood.watch.run import Watch

PREDICT = "/v1/models/fm:predict"


class Upstream:
    """A server that answers a predict request with the scores it was sent, and everything else with an echo."""

    def __init__(self, port=0):
        self.connections, self.requests = 0, []
        self.answer = None
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                super().setup()
                outer.connections += 1

            def log_message(self, *_):
                pass

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.requests.append((self.command, self.path, dict(self.headers), body))
                code, kind, answer = 200, "application/json", body
                if outer.answer is not None:
                    answer = outer.answer
                elif self.path.startswith(PREDICT):
                    rows = json.loads(
                        gzip.decompress(body)
                        if self.headers.get("Content-Encoding") == "gzip"
                        else body
                    )["instances"]
                    answer = json.dumps({"predictions": [{"score": row} for row in rows]}).encode()
                self.send_response(code, "Fine")
                self.send_header("X-Odd", "kept  as it is")
                if self.headers.get("Accept-Encoding") == "gzip":
                    answer = gzip.compress(answer, mtime=0)
                    self.send_header("Content-Encoding", "gzip")
                self.send_header("Content-Type", kind)
                if self.path == "/chunked":
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(answer), answer))
                    return
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer)

            do_GET = do_HEAD = do_PUT = do_DELETE = do_POST

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *_):
                pass

        self.server = Server(("127.0.0.1", port), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def upstream():
    made = Upstream()
    yield made
    made.close()


def ask(address, method, path, body=b"", headers=()):
    connection = http.client.HTTPConnection(address, timeout=60)
    with contextlib.closing(connection):
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        content = response.read()
        headers = [one for one in response.headers.items() if one[0] != "Date"]
        return response.status, response.reason, sorted(headers), content


def predict(address, scores, path=PREDICT, **more):
    body = json.dumps({**more, "instances": scores}).encode()
    return ask(address, "POST", path, body)


class Running:
    """A watch in a thread, by the loop of the command."""

    def __init__(self, out, url, held, **settings):
        self.lines, self.source = [], None
        self.started = threading.Event()
        self.out = out

        def make(session):
            self.source = ProxySource(
                url, held, lost=dict(session.tally.requests), requests=session.tally.requests_seen
            )
            self.started.set()
            return self.source

        self.watch = Watch(
            out,
            url,
            lambda: Session.open(out, held, **settings),
            make,
            metrics_port=0,
            say=self.lines.append,
        )
        self.error = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        try:
            self.watch.run()
        except Exception as error:
            self.error = error

    def __enter__(self):
        self.thread.start()
        assert self.started.wait(30)
        self.address = urllib.parse.urlsplit(self.source.url).netloc
        return self

    def __exit__(self, *_):
        self.watch._ask_to_stop()
        self.thread.join(30)
        assert not self.thread.is_alive()

    def gauge(self, name):
        """As Prometheus reads it, which may be half a second old."""
        (line,) = [one for one in self.lines if one.startswith("metrics: ")]
        with urllib.request.urlopen(line.split()[1]) as answer:
            text = answer.read().decode()
        return float(re.search(rf"^tfbnood_watch_{name} (\S+)$", text, re.M)[1])

    def wait_for(self, words):
        wait_until(lambda: any(words in line for line in self.lines), self.lines)


def wait_until(condition, about="it did not happen in time", seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, about
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def _patience(monkeypatch):
    """An answer waits for the journal however slow the disk of a busy machine is: tests look into it right after."""
    monkeypatch.setattr(proxy_module, "_COMMIT_SECONDS", 300.0)


@pytest.fixture
def proxy(tmp_path, upstream):
    with Running(
        tmp_path / "out", f"http://127.0.0.1:{upstream.port}/v1/models/fm", held_out()
    ) as made:
        yield made


def test_every_answer_is_passed_on_unchanged(proxy, upstream):
    here, there = proxy.address, f"127.0.0.1:{upstream.port}"
    cases = [
        ("GET", "/v1/models/fm/metadata?x=%20y", b"", {"X-Mine": "a, b"}),
        ("HEAD", "/v1/models/fm", b"", {}),
        ("POST", PREDICT, b'{"instances":  [1,2.50]}', {"Accept-Encoding": "gzip"}),
        ("POST", PREDICT, gzip.compress(b'{"instances": [3]}'), {"Content-Encoding": "gzip"}),
        ("PUT", "/anything", bytes(range(256)) * 4096 * 20, {"Content-Type": "x/y"}),  # 20 MB
        ("DELETE", "/v1/models/other:predict", b"", {}),
        ("POST", "/v1/models/other:predict", b"not json", {}),
    ]
    for case in cases:
        assert ask(here, *case) == ask(there, *case), case[:2]
    # By pairs, what the server was sent is the same too, but for the address.
    for through, direct in zip(upstream.requests[::2], upstream.requests[1::2], strict=True):
        assert through[1] == direct[1]
        assert through[3] == direct[3]
        names = {*direct[2]} - {"Host", "Accept-Encoding"}
        assert {name: through[2][name] for name in names} == {
            name: direct[2][name] for name in names
        }
    # A body in chunks comes as the same body.
    assert ask(here, "POST", "/chunked", b"12345")[3] == b"12345"
    connection = http.client.HTTPConnection(here, timeout=30)
    with contextlib.closing(connection):
        connection.request("POST", "/x", iter([b"abc", b"def"]), encode_chunked=True)
        assert connection.getresponse().read() == b"abcdef"


def test_scores_of_single_rows_are_counted_in_every_format(proxy, upstream, tmp_path):
    for body, headers in [
        (b'{"instances": [100.25]}', {}),
        (b'{"instances": [101, 102.5]}', {"X-Request-Id": "upload 7"}),
        (gzip.compress(b'{"instances": [103]}'), {"Content-Encoding": "gzip"}),
        (b'{"instances": [104]}', {"Accept-Encoding": "gzip"}),
        (b'{"signature_name": "encoded", "instances": [105]}', {}),
        (b'{"signature_name": "score_batch", "instances": [9]}', {}),
        (b'{"instances": [NaN]}', {}),
        (b'{"instances": ["text"]}', {}),
    ]:
        assert ask(proxy.address, "POST", PREDICT, body, headers.items())[0] == 200
    assert ask(proxy.address, "POST", "/v1/models/fm/versions/3:predict", b"{}")[0] == 200
    found = events(tmp_path / "out")
    assert [one["score"] for one in found if "score" in one] == [100.25, 101, 102.5, 103, 104, 105]
    assert [one["key"] for one in found][:4] == [
        "request 1",
        "upload 7, row 0",
        "upload 7, row 1",
        "request 3",
    ]
    assert [one["unreadable"] for one in found if "unreadable" in one] == [
        "not a valid image, according to the server"
    ]
    assert proxy.source.unwatched == 1
    assert proxy.source.answers[200] == 9


def test_one_connection_of_a_client_is_one_to_the_server(proxy, upstream, tmp_path):
    connection = http.client.HTTPConnection(proxy.address, timeout=30)
    with contextlib.closing(connection):
        for score in range(20):
            connection.request("POST", PREDICT, json.dumps({"instances": [score]}))
            assert json.loads(connection.getresponse().read()) == {
                "predictions": [{"score": score}]
            }
    assert upstream.connections == 1
    assert len(events(tmp_path / "out")) == 20


def test_many_clients_at_once_are_counted_once_each(proxy, tmp_path):
    scores = [float(one) for one in range(200)]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda one: predict(proxy.address, [one, one + 0.5]), scores))
    assert all(one[0] == 200 for one in answers)
    found = sorted(one["score"] for one in events(tmp_path / "out"))
    assert found == sorted([*scores, *(one + 0.5 for one in scores)])


def test_a_server_that_goes_away_and_comes_back(proxy, upstream, tmp_path):
    assert predict(proxy.address, [1.0])[0] == 200
    upstream.close()
    held = socket.socket()  # so that nobody else takes the port in the meantime
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", upstream.port))
    status, _, headers, content = predict(proxy.address, [2.0])
    assert (status, dict(headers)["Content-Type"]) == (502, "application/json")
    url = f"http://127.0.0.1:{upstream.port}"
    assert json.loads(content) == {"error": f"{url} cannot be reached (Connection refused)"}
    assert predict(proxy.address, [3.0])[0] == 502
    proxy.wait_for("cannot be reached (Connection refused); waiting until it is back")
    wait_until(lambda: proxy.gauge("source_up") == 0)
    with held, contextlib.closing(Upstream(upstream.port)):
        assert predict(proxy.address, [4.0])[0] == 200
        proxy.wait_for("is back")
    assert [one["score"] for one in events(tmp_path / "out")] == [1.0, 4.0]
    assert len([one for one in proxy.lines if "cannot be reached" in one]) == 1


def test_a_client_that_hung_up_and_asks_again_is_counted_once(proxy, upstream, tmp_path):
    # An answer that no buffer holds.
    upstream.answer = b'{"predictions": [{"score": 7.0}]' + 2**24 * b" " + b"}"
    body = b'{"instances": [7.0]}'
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    host, port = proxy.address.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + body)
        end = time.monotonic() + 30
        while time.monotonic() < end and not upstream.requests:
            time.sleep(0.01)
    end = time.monotonic() + 30
    while time.monotonic() < end and not proxy.source._lost:
        time.sleep(0.05)
    for _ in range(2):  # the retry; then a new one
        assert ask(proxy.address, "POST", PREDICT, body)[0] == 200
    assert [one["key"] for one in events(tmp_path / "out")] == ["request 1", "request 2"]


def test_a_request_that_a_kill_cut_in_the_journal_is_completed(tmp_path, upstream):
    out, url = tmp_path / "out", f"http://127.0.0.1:{upstream.port}/v1/models/fm"
    with Running(out, url, held_out()) as proxy:
        predict(proxy.address, [95.0])
        predict(proxy.address, [101.0, 102.0, 103.0])
    lines = (out / "events.jsonl").read_bytes().splitlines(keepends=True)
    (out / "events.jsonl").write_bytes(b"".join(lines[:2]) + lines[2][:40])
    for name in ("state", "tally.npz"):
        (out / name).rename(tmp_path / name)  # as before the first save
    with Running(out, url, held_out()) as proxy:
        assert predict(proxy.address, [101.0, 102.0, 103.0])[0] == 200
        assert [one["score"] for one in events(out)] == [95.0, 101.0, 102.0, 103.0]
        assert [one["line"] for one in events(out)] == [0, 1, 2, 3]
        # The same bytes once more are a new request.
        predict(proxy.address, [101.0, 102.0, 103.0])
        assert len(events(out)) == 7


@pytest.mark.parametrize("forget", [False, True])
def test_a_running_watch_takes_its_alarm_back(tmp_path, upstream, forget):
    out, url = tmp_path / "out", f"http://127.0.0.1:{upstream.port}/v1/models/fm"
    random = np.random.default_rng(0)
    with Running(out, url, held_out(), thin=1) as proxy:
        predict(proxy.address, random.normal(160, 5, 30).tolist())
        proxy.wait_for("ALARM at ")
        again = Running(out, url, held_out(), thin=1)
        again.watch.restart, again.watch.forget = True, forget
        assert again.watch.run() == 0
        assert again.lines == [f"--restart: passed to the process that is watching in {out}"]
        proxy.wait_for("--restart: the alarm was cleared")
        predict(proxy.address, [100.0])
    found = events(out)
    (line,) = [one for one in found if "restart" in one]
    assert line["forget"] is forget
    assert found[-1]["alarm"] is False
    assert not (out / "restart").exists()
    whole = feed(tmp_path / "whole", found, thin=1)
    assert contents(out / "state") == contents(whole / "state")


def test_answers_of_another_model_are_passed_on_and_not_counted(proxy, upstream, tmp_path):
    null = held_out().scores
    for score, told, counted in ((100.0, 0.0, 1), (100.0, 0.01, 1), (120.0, 0.0, 2)):
        p_value = (1 + (null >= score).sum()) / (len(null) + 1) + told
        row = {"score": score, "p_value": float(np.float32(p_value)), "valid": True}
        upstream.answer = json.dumps(
            {"outputs": {name: [one] for name, one in row.items()}}
        ).encode()
        assert predict(proxy.address, [told])[3] == upstream.answer
        assert len(events(tmp_path / "out")) == counted
    assert proxy.source.mismatched == 1
    proxy.wait_for("another model is served")


def test_a_full_disk_does_not_stop_the_clients(tmp_path, upstream, monkeypatch):
    monkeypatch.setattr(run_module, "_TRY_AGAIN", 0.5)
    url = f"http://127.0.0.1:{upstream.port}/v1/models/fm"
    with mounted(tmp_path / "disk", "size=600k") as disk:
        out = disk / "out"
        with Running(out, url, held_out()) as proxy:
            assert predict(proxy.address, [100.0])[0] == 200
            fill(disk)
            for row in range(60):
                assert predict(proxy.address, [float(row)] * 20)[0] == 200
            proxy.wait_for("answers are passed on unwatched until it is writable")
            assert len(events(out)) < 1201
            wait_until(lambda: proxy.gauge("writable") == 0)
            (disk / "filling").unlink()
            more = 0
            while not any("can be written again; " in line for line in proxy.lines):
                assert predict(proxy.address, [80.0])[0] == 200
                more += 1
                assert more < 1000, proxy.lines
                time.sleep(0.05)
            for row in range(5):
                assert predict(proxy.address, [90.0 + row])[0] == 200
            wait_until(lambda: proxy.gauge("writable") == 1)
        assert proxy.error is None
        found = events(out)
        assert [one["score"] for one in found][-5:] == [90.0, 91.0, 92.0, 93.0, 94.0]
        assert [one["line"] for one in found] == list(range(len(found)))
        unwatched = int(
            next(one for one in proxy.lines if "again" in one)
            .split("; ")[1]
            .split()[0]
            .replace(",", "")
        )
        assert unwatched + len(found) == 1 + 1200 + more + 5
        assert len([one for one in proxy.lines if "passed on unwatched" in one]) == 1


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8501",
        "http://127.0.0.1:8501",
        "http://x/v1/models/",
        "http://x/v1/models/a:predict",
        "ftp://x/v1/models/a",
        "http://x:bad/v1/models/a",
        "http://x/v1/models/a?b",
        "http:///v1/models/a",
    ],
)
def test_other_urls_are_refused(url):
    with pytest.raises(ServingError, match="url must look like http://127"):
        split_url(url)


def save_held_out(folder):
    """A detector's folder as far as a proxy reads it."""
    from tfbnood._core.files import file_sha256

    folder.mkdir()
    np.savez(folder / "arrays.npz", **{"image_scores/1": held_out().scores})
    about = {"calibrated": True, "image_shape": [4, 4, 1], "statistic": "mean"}
    about["sha256"] = {"arrays.npz": file_sha256(folder / "arrays.npz")}
    (folder / "detector.json").write_text(json.dumps(about))


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def test_kills_between_clients_and_server_count_no_image_twice(tmp_path, upstream):
    """Clients ask until they have an answer; the proxy is killed and started again meanwhile."""
    save_held_out(tmp_path / "detector")
    out, port = tmp_path / "out", free_port()
    url = f"http://127.0.0.1:{upstream.port}/v1/models/fm"
    words = ["watch", "detector", "--url", url, "--port", str(port), "--out", str(out)]
    command = [sys.executable, "-m", "tfbnood", *words]
    waiting = list(range(1, 121))
    lock, done = threading.Lock(), []

    def client():
        while True:
            with lock:
                if not waiting:
                    return
                score = waiting.pop()
            while True:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    if predict(f"127.0.0.1:{port}", [float(score)])[0] == 200:
                        with lock:
                            done.append(score)
                        break
                time.sleep(0.02)
            time.sleep(0.03)

    threads = [threading.Thread(target=client, daemon=True) for _ in range(4)]
    for number in range(4):
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        if not number:
            for one in threads:
                one.start()
        target = 25 * (number + 1)
        end = time.monotonic() + 60
        while len(done) < target and time.monotonic() < end and process.poll() is None:
            time.sleep(0.003)
        assert process.poll() is None
        if number < 3:
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
    for one in threads:
        one.join(60)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    found = [one["score"] for one in events(out)]
    assert sorted(found) == [float(one) for one in range(1, 121)]
    assert "ended: 120 images" in said
    assert pathlib.Path(out / "timeline.html").is_file()
