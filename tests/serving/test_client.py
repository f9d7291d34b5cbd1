"""The client: against the servers, and against a server that is made to fail."""

import http.server
import json
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tfbnood.errors import DataError, TfbnoodError
from tfbnood.serving import Client, Scores, ServingError, client

IMAGES = np.random.default_rng(0).integers(0, 256, (10, 2, 2, 1)).astype(np.uint8)


def answer_for(body):
    rows = body["inputs"].get("images") or body["inputs"]["image_bytes"]
    size = len(rows)
    return {
        "score": [float(i) for i in range(size)],
        "p_value": [0.5] * size,
        "is_ood": [False] * size,
        "bits_per_dim": [float("nan")] * size,
        "valid": [True] * size,
    }


class Fake(http.server.BaseHTTPRequestHandler):
    """Answers by a list of (code, content); after its end, as an export would."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        code, content = 200, json.dumps({"outputs": answer_for(body)}).encode()
        if self.server.plan:
            code, content = self.server.plan.pop(0)
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        if self.server.retry_after:
            self.send_header("Retry-After", self.server.retry_after)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def fake():
    with http.server.HTTPServer(("127.0.0.1", 0), Fake) as server:
        server.plan, server.bodies, server.retry_after = [], [], None
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class KeptOpen(Fake):
    """A `Fake` whose connections stay open, are counted, and may be dropped."""

    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.server.connections += 1

    def do_POST(self):
        if self.server.drop:
            self.server.drop, self.close_connection = False, True
            return
        super().do_POST()


@pytest.fixture
def kept_open():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), KeptOpen) as server:
        server.plan, server.bodies, server.retry_after = [], [], None
        server.connections, server.drop, server.daemon_threads = 0, False, True
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_the_client_does_not_import_tensorflow():
    code = (
        "import sys; from tfbnood.serving import Client, Scores, ServingError; "
        "assert 'tensorflow' not in sys.modules and 'keras' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_scores_are_arrays_of_the_served_numbers(api):
    scores = Client(api.url, "contract").score(IMAGES)
    expected = IMAGES.sum(axis=(1, 2, 3), dtype=np.float32)
    assert isinstance(scores, Scores)
    assert len(scores) == 10
    np.testing.assert_array_equal(scores.score, expected)
    np.testing.assert_allclose(scores.p_value, 1 / (1 + expected), rtol=1e-6)
    np.testing.assert_array_equal(scores.is_ood, expected > 500)
    np.testing.assert_array_equal(scores.bits_per_dim, expected / 8)
    assert scores.valid.all()
    assert scores.score.dtype == scores.bits_per_dim.dtype == np.float32
    assert scores.is_ood.dtype == scores.valid.dtype == np.bool_


def test_small_requests_give_the_same_scores(api):
    whole = Client(api.url, "contract").score(IMAGES)
    parts = Client(api.url, "contract", images_per_request=3).score(IMAGES.astype(float))
    np.testing.assert_array_equal(whole.score, parts.score)


def test_files_go_as_they_are(api, tmp_path):
    paths = [tmp_path / f"{size}.png" for size in (0, 1, 700)]
    for path, size in zip(paths, (0, 1, 700), strict=True):
        path.write_bytes(bytes(range(256)) * 3 if size == 700 else b"\xff" * size)
    scores = Client(api.url, "contract", images_per_request=2).score_files(paths)
    np.testing.assert_array_equal(scores.score, [0, 1, 768])
    np.testing.assert_array_equal(scores.is_ood, [False, False, True])
    assert len(Client(api.url, "contract").score_files(paths[1])) == 1


def test_status_and_metadata_follow_version_and_label(api):
    for options, version in [
        ({}, "2"),
        ({"version": 1}, "1"),
        ({"label": "stable"}, "1"),
        ({"label": "canary"}, "2"),
    ]:
        asked = Client(api.url, "factor", **options)
        assert asked.metadata()["model_spec"]["version"] == version
    versions = Client(api.url, "factor", version=1).status()["model_version_status"]
    assert [each["version"] for each in versions] == ["1"]


def test_errors_of_the_server_are_one_line_with_its_words(api):
    with pytest.raises(ServingError, match=r"answered 404: Servable not found .*nobody") as caught:
        Client(api.url, "nobody").score(IMAGES)
    assert caught.value.code == 404
    with pytest.raises(ServingError, match="not compatible with expected shape") as caught:
        Client(api.url, "contract").score(np.full((1, 3, 3, 1), 7))
    assert caught.value.code == 400
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, TfbnoodError)


def test_a_model_that_is_no_export_is_told_so(api):
    with pytest.raises(ServingError, match="answered 400: Missing named input: x"):
        Client(api.url, "factor").score(IMAGES)


def test_big_inputs_are_cut_into_requests(fake):
    scores = Client(fake.url, "m").score(np.full((130, 2, 2, 1), 9))
    assert [len(body["inputs"]["images"]) for body in fake.bodies] == [64, 64, 2]
    assert len(scores) == 130
    assert np.isnan(scores.bits_per_dim).all()
    assert {body["signature_name"] for body in fake.bodies} == {"serving_default"}


def test_a_detector_without_likelihood_has_no_bits_per_dim(fake):
    answer = answer_for({"inputs": {"images": [0, 0]}})
    without = {name: values for name, values in answer.items() if name != "bits_per_dim"}
    for outputs in ([without, without], [answer, without]):  # The second: the version changed.
        fake.plan = [(200, json.dumps({"outputs": one}).encode()) for one in outputs]
        scores = Client(fake.url, "m", images_per_request=2).score(IMAGES[:4])
        assert scores.bits_per_dim is None
        assert scores.score.tolist() == [0, 1, 0, 1]


def test_certified_alarms_and_clusters_arrive_where_the_export_has_them(fake):
    more = {"is_ood_certified": [False, True], "cluster": [3, 0]}
    answer = {**answer_for({"inputs": {"images": [0, 0]}}), **more}
    fake.plan = [(200, json.dumps({"outputs": answer}).encode())]
    scores = Client(fake.url, "m").score(IMAGES[:2])
    assert scores.is_ood_certified.tolist() == more["is_ood_certified"]
    assert scores.cluster.tolist() == more["cluster"]


def test_large_images_go_in_smaller_requests(fake, monkeypatch):
    monkeypatch.setattr(client, "_VALUES_PER_REQUEST", 250)
    Client(fake.url, "m").score(np.full((3, 10, 10, 1), 9, np.uint8))
    assert [len(body["inputs"]["images"]) for body in fake.bodies] == [2, 1]


def test_large_files_go_in_smaller_requests(fake, tmp_path, monkeypatch):
    monkeypatch.setattr(client, "_BYTES_PER_REQUEST", 250)
    path = tmp_path / "a.png"
    path.write_bytes(b"x" * 100)
    Client(fake.url, "m").score_files([path, path, path])
    assert [len(body["inputs"]["image_bytes"]) for body in fake.bodies] == [2, 1]


@pytest.mark.parametrize("code", [429, 503])
def test_a_busy_server_is_asked_again(fake, code):
    fake.plan = [(code, b'{"error": "busy"}'), (code, b"")]
    assert len(Client(fake.url, "m").score(IMAGES)) == 10
    assert len(fake.bodies) == 3


def test_a_server_that_stays_busy_is_an_error(fake):
    fake.plan = [(503, b'{"error": "busy"}')] * 5
    with pytest.raises(ServingError, match="answered 503: busy"):
        Client(fake.url, "m", retries=1).score(IMAGES)
    assert len(fake.bodies) == 2


def test_other_errors_are_not_asked_again(fake):
    fake.plan = [(500, b'{"error": "broken\\ngraph"}')]
    with pytest.raises(ServingError, match="answered 500: broken graph"):
        Client(fake.url, "m").score(IMAGES)
    assert len(fake.bodies) == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<html>a proxy</html>", "answered 200: <html>a proxy"),
        (b"[1]", "answered 200"),
        (b'{"outputs": [1.0]}', "is not an export of tfbnood"),
        (b'{"predictions": []}', "is not an export of tfbnood"),
        (
            json.dumps({"outputs": answer_for({"inputs": {"images": [1]}})}).encode(),
            "10 images must",
        ),
    ],
)
def test_answers_that_make_no_sense_are_errors(fake, content, said):
    fake.plan = [(200, content)]
    with pytest.raises(ServingError, match=said):
        Client(fake.url, "m").score(IMAGES)


def test_a_server_that_comes_late_is_waited_for():
    # Bound from the beginning, so that nobody else takes the port; until it listens, connections are refused.
    with http.server.HTTPServer(("127.0.0.1", 0), Fake, bind_and_activate=False) as late:
        late.plan, late.bodies, late.retry_after = [], [], None
        late.server_bind()

        def start():
            late.server_activate()
            late.handle_request()

        timer = threading.Timer(0.3, start)
        timer.start()
        client = Client(f"http://127.0.0.1:{late.server_port}/", "m", retries=10)
        assert len(client.score(IMAGES)) == 10
        timer.join()


def test_a_server_that_is_not_there_or_silent_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(ServingError, match=r"did not answer within 0.2 s"):
            Client(f"http://127.0.0.1:{port}", "m", timeout=0.2).status()
    with socket.socket() as closed:  # bound, so that nobody else listens there
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with pytest.raises(ServingError, match=r"cannot be reached \(.*refused\)"):
            Client(f"http://127.0.0.1:{port}", "m", retries=1).status()


def test_arguments_are_checked_before_anything_is_sent(tmp_path):
    for url in ("localhost:8501", "ftp://x", "http://", "", "http://x?a=b"):
        with pytest.raises(ServingError, match="url must look like"):
            Client(url, "m")
    with pytest.raises(ServingError, match="a version or a label"):
        Client("http://x", "m", version=1, label="a")
    with pytest.raises(ServingError, match="must be positive"):
        Client("http://x", "m", images_per_request=0)
    unreached = Client("http://127.0.0.1:1", "m", retries=0)
    with pytest.raises(DataError, match="four axes"):
        unreached.score(np.zeros((2, 2)))
    with pytest.raises(DataError, match="not 0–1"):
        unreached.score(np.full((1, 2, 2, 1), 0.5))
    with pytest.raises(ServingError, match="at least one file"):
        unreached.score_files([])
    with pytest.raises(ServingError, match="cannot be read"):
        unreached.score_files([tmp_path / "none.png"])


def test_a_host_that_has_no_address_is_not_asked_again(monkeypatch):
    asked = []

    def unknown(host, *_, **__):
        asked.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    # Not by the DNS, which may be slow or answer for everybody.
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ServingError, match=r"cannot be reached \(.*Name or service not known"):
        Client("http://no-such-host.invalid", "m", retries=50).status()
    assert asked == ["no-such-host.invalid"]


def test_a_server_cannot_make_the_client_pause_for_long(fake, monkeypatch):
    monkeypatch.setattr(client, "_LONGEST_PAUSE", 0.2)
    fake.plan = [(503, b"")]
    fake.retry_after = "3600"
    began = time.monotonic()
    assert len(Client(fake.url, "m").score(IMAGES)) == 10
    assert time.monotonic() - began < 20
    assert len(fake.bodies) == 2


def test_one_connection_carries_all_requests_of_a_client(kept_open):
    asked = Client(kept_open.url, "m", images_per_request=1)
    asked.score(IMAGES)
    assert len(kept_open.bodies) == 10
    assert kept_open.connections == 1


def test_a_connection_that_the_server_has_dropped_is_made_anew(kept_open):
    asked = Client(kept_open.url, "m")
    asked.score(IMAGES)
    kept_open.drop = True  # hangs up without an answer, once
    assert len(asked.score(IMAGES)) == 10
    assert kept_open.connections == 2


def test_redirects_and_proxies_of_the_environment_are_not_followed(fake, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    fake.plan = [(301, b"moved")]
    with pytest.raises(ServingError, match="answered 301: moved"):
        Client(fake.url, "m").score(IMAGES)


def test_a_client_can_be_used_by_many_threads(kept_open):
    asked = Client(kept_open.url, "m")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda size: asked.score(IMAGES[:size]), [1, 2, 3, 4] * 20))
    assert [len(scores) for scores in answers] == [1, 2, 3, 4] * 20
