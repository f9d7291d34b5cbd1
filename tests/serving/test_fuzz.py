"""Bodies of all kinds: the stand-in answers every one, and none breaks it."""

import http.client
import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

VALID = [
    b'{"instances": [[[[1], [2]], [[3], [4]]]]}',
    b'{"signature_name": "one", "inputs": {"x": [1, 2.5, NaN]}}',
    b'{"signature_name": "uint8", "instances": [{"x": 1}, {"x": 256}]}',
    b'{"signature_name": "text", "instances": [{"b64": "YQ=="}, "b"]}',
    b'{"signature_name": "two", "instances": [{"a": 1, "b": 2}]}',
    b'{"signature_name": "bool", "inputs": [true, false]}',
]
TOKENS = [
    *(bytes([c]) for c in b'{}[]":,\\-'),
    b"NaN",
    b"1e9",
    b"null",
    b"true",
    b'"b64"',
    b"\xff",
    b"[[[[",
]


def mutated(seed):
    """A valid body with a few bytes taken out, put in, or repeated."""
    chance = random.Random(seed)
    body = bytearray(chance.choice(VALID))
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(body) + 1)
        end = min(len(body), at + chance.randint(0, 6))
        body[at:end] = chance.choice([b"", chance.choice(TOKENS), bytes(body[at:end]) * 2])
    return bytes(body)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["x", "a", "b", "b64", "images", "text"]), inner, max_size=3
        )
    ),
    max_leaves=12,
)
documents = st.fixed_dictionaries(
    {},
    optional={
        "signature_name": st.sampled_from(
            ["one", "uint8", "int64", "text", "two", "bool", "", "no", 3]
        ),
        "instances": values,
        "inputs": values,
    },
).map(lambda document: json.dumps(document).encode())


def post(connection, body):
    connection.request("POST", "/v1/models/contract:predict", body)
    response = connection.getresponse()
    content = response.read()
    assert response.status in (200, 400, 404), (body, content)
    if response.status != 200:
        assert set(json.loads(content)) == {"error"}
    return response.status


def test_no_damaged_body_breaks_the_server(fuzzed):
    codes = [post(fuzzed, mutated(seed)) for seed in range(2000)]
    assert codes.count(200) > 50  # some damage is none
    assert codes.count(400) > 1000


@settings(
    max_examples=500,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(body=documents | st.binary(max_size=40))
def test_no_document_breaks_the_server(fuzzed, body):
    post(fuzzed, body)


@pytest.fixture(scope="module")
def fuzzed(stand_in, api_of):
    api = api_of(stand_in)
    connection = http.client.HTTPConnection(api.address, timeout=30)
    yield connection
    connection.close()
    assert api.predict({"instances": [1]}, "one") == (200, {"predictions": [2.0]})


def test_deep_nesting_is_refused(stand_in, api_of):
    # Not for the real server, whose parser has no limit but its stack.
    api = api_of(stand_in)
    for depth in (100, 900, 100_000):
        body = b'{"signature_name": "one", "inputs": ' + b"[" * depth + b"1" + b"]" * depth + b"}"
        assert api.predict(body)[0] == 400
