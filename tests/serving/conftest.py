"""A served model with a signature for every rule of the REST API, and the servers that must follow them."""

import http.client
import json
import shutil
import socket
import subprocess
import time
import urllib.parse

import pytest
import tensorflow as tf

import tfbnood
from tfbnood.serving.launch import find_model_server
from tfbnood.serving.standin.config import models_from
from tfbnood.serving.standin.server import Server


class Api:
    """Asks a server; bodies are JSON values or raw bytes."""

    def __init__(self, url):
        self.url = url
        self.address = urllib.parse.urlsplit(url).netloc

    def ask(self, method, path, body=b"", headers=None):
        connection = http.client.HTTPConnection(self.address, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.read(), response.headers
        finally:
            connection.close()

    def connect(self, sent):
        """A connection on which some bytes have been sent."""
        host, port = self.address.split(":")
        connection = socket.create_connection((host, int(port)), timeout=30)
        connection.sendall(sent)
        return connection

    def get(self, path):
        code, content, _ = self.ask("GET", path)
        return code, json.loads(content)

    def predict(self, body, signature=None, model="contract"):
        if isinstance(body, dict) and signature is not None:
            body = {"signature_name": signature, **body}
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        code, content, _ = self.ask("POST", f"/v1/models/{model}:predict", body)
        return code, json.loads(content)


def scores(score):
    return {
        "score": score,
        "p_value": 1 / (1 + score),
        "is_ood": score > 500.0,
        "bits_per_dim": score / 8,
        "valid": score >= 0.0,
    }


class Contract(tf.Module):
    """What each signature does is one line, so that a test can do it again in NumPy."""

    def __init__(self):
        super().__init__()
        f, s = tf.float32, tf.string
        self.functions = {
            "serving_default": self.made(self.default, images=tf.TensorSpec([None, 2, 2, 1], f)),
            "encoded": self.made(self.encoded, image_bytes=tf.TensorSpec([None], s)),
            "one": self.made(lambda x: {"y": 2 * x}, x=tf.TensorSpec(None, f)),
            "loose": self.made(
                lambda x: {"y": tf.add(x, [1.0, 2.0])}, x=tf.TensorSpec([None, 2], f)
            ),
            "uint8": self.made(
                lambda x: {"y": x + tf.zeros_like(x)}, x=tf.TensorSpec(None, tf.uint8)
            ),
            "int64": self.made(lambda x: {"y": x + 1}, x=tf.TensorSpec([None], tf.int64)),
            "double": self.made(lambda x: {"y": x * 2}, x=tf.TensorSpec([None], tf.float64)),
            "bool": self.made(lambda x: {"y": ~x}, x=tf.TensorSpec([None], tf.bool)),
            "half": self.made(lambda x: {"y": 2 * x}, x=tf.TensorSpec([None], tf.float16)),
            "half_out": self.made(
                lambda x: {"y": tf.cast(x, tf.float16)}, x=tf.TensorSpec([None], f)
            ),
            "text": self.made(self.text, text=tf.TensorSpec(None, s)),
            "two": self.made(
                lambda a, b: {"sum": a + tf.cast(b, f), "b": b + 0},
                a=tf.TensorSpec([None], f),
                b=tf.TensorSpec([None], tf.int64),
            ),
            "scalar": self.made(
                lambda x: {"y": x + 0, "z": tf.reduce_sum(x)}, x=tf.TensorSpec([None], f)
            ),
            "other": self.made(
                lambda x: {"y": x + 0, "z": tf.zeros(5)}, x=tf.TensorSpec([None], f)
            ),
            "log": self.made(lambda x: {"y": tf.math.log(x)}, x=tf.TensorSpec([None], f)),
            # Stock servers have XLA switched off.
            "jit": tf.function(lambda x: {"y": 2 * x}, jit_compile=True).get_concrete_function(
                x=tf.TensorSpec([None], f, "x")
            ),
            "jit_inside": self.made(self.jit_inside, x=tf.TensorSpec([None], f)),
            "regression": self.made(
                lambda inputs: {"outputs": tf.cast(tf.strings.length(inputs), f)},
                inputs=tf.TensorSpec([None], s),
            ),
            "one_of_inputs": self.made(
                lambda inputs: {"y": inputs + ""}, inputs=tf.TensorSpec([None], s)
            ),
            "slow": self.made(self.slow, steps=tf.TensorSpec([None], tf.int64)),
        }

    def made(self, function, **inputs):
        return tf.function(function).get_concrete_function(
            **{name: tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in inputs.items()}
        )

    def default(self, images):
        return scores(tf.reduce_sum(tf.ensure_shape(images, [None, 2, 2, 1]), [1, 2, 3]))

    def encoded(self, image_bytes):
        return scores(tf.cast(tf.strings.length(image_bytes), tf.float32))

    def jit_inside(self, x):
        compiled = tf.function(lambda x: 2 * x, jit_compile=True)
        return {"y": tf.cond(tf.size(x) > 0, lambda: compiled(x), lambda: x)}

    def text(self, text):
        return {"echo": text + "", "echo_bytes": text + "", "length": tf.strings.length(text)}

    def slow(self, steps):
        end = tf.reduce_max(steps)
        _, total = tf.while_loop(
            lambda i, _: i < end,
            lambda i, total: (i + 1, total + 1),
            (tf.zeros([], tf.int64), tf.zeros([], tf.int64)),
            maximum_iterations=10_000_000,
        )
        return {"total": total + 0 * steps}


class Factor(tf.Module):
    """Answers with its version, times the input."""

    def __init__(self, version):
        super().__init__()
        self.factor = tf.Variable(float(version))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
    def call(self, x):
        return {"y": x * self.factor}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Bases of `contract` (version 1) and `factor` (1, 2 and 3)."""
    folder = tmp_path_factory.mktemp("bases")
    contract = Contract()
    tf.saved_model.save(contract, str(folder / "contract" / "1"), signatures=contract.functions)
    for version in (1, 2, 3):
        made = Factor(version)
        tf.saved_model.save(made, str(folder / "factor" / str(version)), signatures=made.call)
    return folder


@pytest.fixture(scope="session")
def config(folder):
    """A models.config with labels and specific versions."""
    path = folder / "models.config"
    path.write_text(f"""
    # what `tfbnood serve` and the real server read
    model_config_list {{
      config {{ name: "contract" base_path: "{folder}/contract" model_platform: "tensorflow" }}
      config: {{
        name: 'factor', base_path: "{folder}/factor"
        model_platform: "tensorflow"
        model_version_policy {{ specific {{ versions: 1 versions: 2 }} }}
        version_labels {{ key: "stable" value: 1 }}
        version_labels {{ key: "canary" value: 2 }}
        version_labels {{ key: "gone" value: 9 }}
      }}
    }}
    """)
    return path


@pytest.fixture(scope="session")
def stand_in(config):
    with Server(models_from(config), port=0) as server:
        yield server.url


@pytest.fixture(scope="session")
def model_server(config):
    executable = find_model_server()
    if executable is None:
        pytest.skip("no tensorflow_model_server on the PATH or in TFBNOOD_MODEL_SERVER")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [executable, f"--rest_api_port={port}", "--port=0", f"--model_config_file={config}"]
    process = subprocess.Popen([*command, "--allow_version_labels_for_unavailable_models=true"])
    try:
        api = Api(f"http://127.0.0.1:{port}")
        _wait_for(api, process)
        yield api.url
    finally:
        process.terminate()
        process.wait(30)


def _wait_for(api, process, seconds=60):
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        try:
            codes = [api.get(f"/v1/models/{name}/metadata")[0] for name in ("contract", "factor")]
        except ConnectionError:
            codes = []
        if codes == [200, 200]:
            return
        time.sleep(0.2)
    raise TimeoutError("tensorflow_model_server does not serve")


@pytest.fixture(params=["stand-in", "tensorflow_model_server"])
def api(request):
    """The same questions for the stand-in and, where there is one, the real server."""
    name = "stand_in" if request.param == "stand-in" else "model_server"
    return Api(request.getfixturevalue(name))


@pytest.fixture(scope="session")
def api_of():
    return Api


@pytest.fixture
def factor_base(folder, tmp_path):
    """A base with version 1 of `factor`, and a function that adds another version as an export does."""
    base = tmp_path / "factor"

    def add(version):
        shutil.copytree(folder / "factor" / str(version), base / f".{version}")
        (base / f".{version}").rename(base / str(version))

    add(1)
    return base, add


@pytest.fixture(scope="session")
def digits():
    return tfbnood.data.load("digits")
