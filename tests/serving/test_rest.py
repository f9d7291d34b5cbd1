"""The REST API's contract, over HTTP: one suite for the stand-in and for the real server."""

import base64
import json
import math

import numpy as np
import pytest

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 2, 2, 1)).astype(float)
OUTPUTS = {"score", "p_value", "is_ood", "bits_per_dim", "valid"}


def b64(content):
    return {"b64": base64.b64encode(content).decode()}


def test_rows_and_columns_give_the_same_numbers(api):
    code, rows = api.predict({"instances": IMAGES.tolist()})
    assert code == 200
    code, columns = api.predict({"inputs": {"images": IMAGES.tolist()}})
    assert code == 200
    assert set(columns["outputs"]) == OUTPUTS
    for name in OUTPUTS:
        assert [row[name] for row in rows["predictions"]] == columns["outputs"][name]
    expected = IMAGES.sum(axis=(1, 2, 3)).astype(np.float32)
    assert columns["outputs"]["score"] == expected.tolist()
    np.testing.assert_allclose(columns["outputs"]["p_value"], 1 / (1 + expected), rtol=1e-6)
    assert columns["outputs"]["is_ood"] == (expected > 500).tolist()


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({"instances": [1, 2.5]}, {"predictions": [2.0, 5.0]}),
        ({"inputs": [1, 2.5]}, {"outputs": [2.0, 5.0]}),
        ({"instances": [{"x": 1}, {"x": 2}]}, {"predictions": [2.0, 4.0]}),
        ({"inputs": {"x": [[1], [2]]}}, {"outputs": [[2.0], [4.0]]}),
        ({"inputs": {"x": [1], "extra": "ignored"}}, {"outputs": [2.0]}),
        ({"inputs": 3}, {"outputs": 6.0}),
        ({"instances": [0.1]}, {"predictions": [0.2]}),
        ({"inputs": [], "signature_name": "one"}, {"outputs": []}),
        (b'{"signature_name": "one", "instances": [1]} and more', {"predictions": [2.0]}),
        (
            b' \n{"signature_name": "one", "instances": [1e2, -0.5E1]}',
            {"predictions": [200.0, -10.0]},
        ),
    ],
)
def test_a_single_output_goes_without_its_name(api, body, answer):
    assert api.predict(body, "one") == (200, answer)


def test_several_inputs_come_as_objects_and_several_outputs_go_as_objects(api):
    rows = {"instances": [{"a": 0.5, "b": 1}, {"a": 1, "b": 2}]}
    expected = [{"sum": 1.5, "b": 1}, {"sum": 3.0, "b": 2}]
    assert api.predict(rows, "two") == (200, {"predictions": expected})
    columns = {"inputs": {"a": [0.5, 1], "b": [1, 2]}}
    assert api.predict(columns, "two") == (200, {"outputs": {"sum": [1.5, 3.0], "b": [1, 2]}})


def test_small_integers_wrap_silently(api):
    assert api.predict({"instances": [255, 256, -1]}, "uint8") == (
        200,
        {"predictions": [255, 0, 255]},
    )


def test_integers_doubles_and_bools_keep_their_values(api):
    assert api.predict({"instances": [2**53 + 1, -5]}, "int64") == (
        200,
        {"predictions": [2**53 + 2, -4]},
    )
    assert api.predict({"instances": [0.1]}, "double") == (200, {"predictions": [0.2]})
    assert api.predict({"instances": [True, False]}, "bool") == (
        200,
        {"predictions": [False, True]},
    )


@pytest.mark.parametrize(
    ("signature", "sent", "answered"),
    [
        ("one", "[16777216]", "[33554432.0]"),
        ("one", "[16777217, 1.5]", "[33554432.0, 3.0]"),  # read as a double, kept as a float
        ("one", "[1e39, -1e39]", "[Infinity, -Infinity]"),
        ("one", f"[{10**39}]", "[Infinity]"),
        ("one", f"[[{2**64}], [1]]", "[[3.68934881e+19], [2.0]]"),
        ("double", f"[{2**53}, {2**53 + 1}]", "[18014398509481984.0, 18014398509481984.0]"),
        ("double", f"[{10**39}]", "[2e+39]"),
    ],
)
def test_numbers_that_a_float_cannot_hold_are_rounded_or_infinite(api, signature, sent, answered):
    body = f'{{"signature_name": "{signature}", "inputs": {sent}}}'.encode()
    code, content, _ = api.ask("POST", "/v1/models/contract:predict", body)
    assert code == 200
    assert b"".join(content.split()) == f'{{"outputs":{answered}}}'.replace(" ", "").encode()


@pytest.mark.parametrize(
    ("signature", "half", "written"),
    [
        ("double", 1 / 6, "0.33333333333333331"),
        ("double", 0.1, "0.2"),
        ("double", 0.05, "0.1"),
        ("double", 1e-300 / 3, "%.17g" % (1e-300 / 3 * 2)),
        ("double", 500000, "1e+06"),
        ("double", 61728.5, "123457.0"),
        ("double", 61728.394, "123456.788"),
        ("double", -0.0, "-0.0"),
        ("one", 1 / 6, "0.333333343"),
        ("one", 0.1, "0.2"),
        ("one", 8388608.5, "16777216.0"),
        ("one", 3.0, "6.0"),
        ("one", 1e-30 / 3, f"{np.float32(2e-30 / 3):.9g}"),
    ],
)
def test_numbers_are_written_with_six_digits_or_else_with_all(api, signature, half, written):
    body = f'{{"signature_name": "{signature}", "instances": [{half!r}]}}'.encode()
    code, content, _ = api.ask("POST", "/v1/models/contract:predict", body)
    assert code == 200
    assert b"".join(content.split()) == f'{{"predictions":[{written}]}}'.encode()


@pytest.mark.parametrize("signature", ["jit", "jit_inside"])
@pytest.mark.parametrize("body", [{"instances": [1]}, {"inputs": [1, 2]}])
def test_a_signature_that_needs_xla_fails_as_on_a_stock_server(api, signature, body):
    code, answer = api.predict(body, signature)
    assert code == 500
    assert "XLA compilation disabled" in answer["error"]
    assert api.predict(body, "one")[0] == 200  # its neighbours do not


EXAMPLES = [{"a": 1.0}]


@pytest.mark.parametrize("method", ["classify", "regress"])
@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({}, "When method is classify, key 'examples' is expected and was not found"),
        ({"instances": [1]}, "key 'examples' is expected and was not found"),
        ({"examples": 3}, "Expecting 'examples' value to be an list/array"),
        ({"examples": []}, "'examples' value is an empty array"),
        ({"examples": [3]}, "Example must be JSON object but got JSON Number"),
        ({"examples": EXAMPLES, "signature_name": "two"}, "Expected one input Tensor."),
        (
            {"examples": EXAMPLES, "signature_name": "no"},
            "No signature was found with the name: no",
        ),
        (
            {"examples": EXAMPLES, "signature_name": 3},
            "'signature_name' key must be a string value.",
        ),
    ],
)
def test_classify_and_regress_want_examples_and_a_signature_for_them(api, method, body, error):
    code, content, _ = api.ask("POST", f"/v1/models/contract:{method}", json.dumps(body).encode())
    assert code == 400
    assert error in json.loads(content)["error"]


@pytest.mark.parametrize(
    ("method", "signature", "error"),
    [
        ("regress", "one", "No regression inputs found in SignatureDef"),
        ("regress", "one_of_inputs", "No regression outputs found in SignatureDef"),
        ("regress", "text", "Expected one output Tensor."),
        ("classify", "one", "No classification inputs found in SignatureDef"),
        ("classify", "one_of_inputs", 'to contain at least one of "classes" or "scores"'),
        ("classify", "text", "Expected one or two output Tensors, found 3"),
    ],
)
def test_a_plain_signature_neither_classifies_nor_regresses(api, method, signature, error):
    body = json.dumps({"examples": EXAMPLES, "signature_name": signature}).encode()
    code, content, _ = api.ask("POST", f"/v1/models/contract:{method}", body)
    assert code == 400
    assert error in json.loads(content)["error"]
    code, content, _ = api.ask("POST", f"/v1/models/nobody:{method}", body)
    assert (code, json.loads(content)["error"]) == (
        404,
        "Servable not found for request: Latest(nobody)",
    )


def test_nan_and_infinity_travel_as_bare_tokens(api):
    code, answer = api.predict(
        b'{"signature_name": "one", "instances": [NaN, Infinity, -Infinity]}'
    )
    assert code == 200
    assert math.isnan(answer["predictions"][0])
    assert answer["predictions"][1:] == [math.inf, -math.inf]
    _, content, _ = api.ask(
        "POST", "/v1/models/contract:predict", b'{"signature_name": "log", "inputs": [-1, 0]}'
    )
    assert b"NaN" in content
    assert b"-Infinity" in content


def test_bytes_go_as_b64_only_where_the_name_ends_in_bytes(api):
    body = json.dumps({"signature_name": "text", "inputs": [b64(b"\xff\x80a")]}).encode()
    code, content, _ = api.ask("POST", "/v1/models/contract:predict", body)
    assert code == 200
    # Elsewhere the bytes go as they are, whether or not that is text.
    answer = json.loads(content.decode("utf-8", "surrogateescape"))["outputs"]
    assert answer["echo_bytes"] == [b64(b"\xff\x80a")]
    assert answer["echo"][0].encode("utf-8", "surrogateescape") == b"\xff\x80a"


def test_b64_and_plain_strings_are_inputs(api):
    code, answer = api.predict({"instances": [b64(b"ab\x00"), "Grüße"]}, "text")
    assert code == 200
    assert [row["length"] for row in answer["predictions"]] == [3, len("Grüße".encode())]
    assert answer["predictions"][1]["echo"] == "Grüße"
    assert answer["predictions"][0]["echo_bytes"] == b64(b"ab\x00")
    assert answer["predictions"][1]["echo_bytes"] == b64("Grüße".encode())
    named = {"instances": [{"text": b64(b"ab\x00")}, {"text": "Grüße"}]}
    assert api.predict(named, "text") == (200, answer)
    assert api.predict({"inputs": b64(b"x")}, "text")[1]["outputs"]["length"] == 1


def test_the_graph_alone_looks_at_shapes(api):
    # Declared [None, 2], and sent [1, 1]: it broadcasts, which is why exports use ensure_shape.
    assert api.predict({"instances": [[5]]}, "loose") == (200, {"predictions": [[6.0, 7.0]]})
    code, answer = api.predict({"instances": [[5]]})
    assert code == 400
    assert "[1,1] is not compatible with expected shape [?,2,2,1]" in answer["error"]


ERRORS = [
    ({}, "one", "Missing 'inputs' or 'instances' key"),
    ({"instances": [1], "inputs": [1]}, "one", "expecting only one of 'inputs' or 'instances'"),
    ({"instances": []}, "one", "No values in 'instances' array"),
    ({"instances": 3}, "one", "Expecting 'instances' to be an list/array"),
    ({"instances": ["1"]}, "one", '"1" Type: String is not of expected type: float'),
    ({"instances": [None]}, "one", "null Type: Null is not of expected type: float"),
    ({"instances": [True]}, "one", "true Type: True is not of expected type: float"),
    ({"instances": [b64(b"x")]}, "one", "Type: Object is not of expected type: float"),
    ({"inputs": [1.0]}, "int64", "Type: Number is not of expected type: int64"),
    ({"inputs": [1.0]}, "uint8", "Type: Number is not of expected type: uint8"),
    ({"inputs": [2**31]}, "uint8", "Type: Number is not of expected type: uint8"),
    ({"inputs": [2**63]}, "int64", "Type: Number is not of expected type: int64"),
    ({"inputs": [1]}, "bool", "1 Type: Number is not of expected type: bool"),
    ({"inputs": [1]}, "text", "1 Type: Number is not of expected type: string"),
    ({"inputs": [10**400]}, "one", "Number too big to be stored in double"),
    ({"inputs": [10**400]}, "double", "Number too big to be stored in double"),
    ({"inputs": [{"b64": "?"}]}, "text", "Unable to base64 decode"),
    ({"inputs": {"text": {"b65": "YQ=="}}}, "text", "not formatted correctly for base64 data"),
    ({"instances": [[1, 2], [3]]}, "one", "Expecting tensor size: 2 but got: 1"),
    ({"instances": [[[1, 2]], [[3], [4]]]}, "one", "Expecting shape [1,2] but got: [2,1]"),
    ({"instances": [[1, [2]]]}, "one", "Encountered list at unexpected level: 1 expected < 1"),
    ({"inputs": [[1], [2, 3]]}, "one", "Encountered list at unexpected size: 2 at level: 1"),
    ({"inputs": [[1], 2]}, "one", "2 found at incorrect level: 2 in the JSON DOM"),
    ({"instances": [{"z": 1}]}, "one", "does not have named input: z"),
    ({"instances": [{"x": 1, "z": 1}]}, "one", "does not have named input: z"),
    ({"instances": [{"a": 1}]}, "two", "keys must be equal to: a,b"),
    ({"instances": [{"x": 1}, 2]}, "one", "Expecting object but got list at item 1"),
    ({"instances": [1, {"x": 2}]}, "one", "Expecting value/list but got object at item 1"),
    ({"instances": [1]}, "two", "instances is a plain list, but expecting list of objects"),
    ({"inputs": [1]}, "two", "inputs is a plain value/list, but expecting an object"),
    ({"inputs": {"a": [1]}}, "two", "Missing named input: b in 'inputs' object."),
    ({"instances": [1]}, "scalar", "Tensor name: z has no shape information"),
    ({"instances": [1]}, "other", "has inconsistent batch size"),
    ({"instances": [1]}, "nowhere", 'Serving signature name: "nowhere" not found in signature def'),
    ({"instances": [1]}, 7, "'signature_name' key must be a string value."),
    ({"instances": [0.5]}, "half", "to type: half"),
    ({"instances": [0.5]}, "half_out", "JSON value for tensor type: half"),
    (b"", None, "JSON Parse error: The document is empty"),
    (b"instances = [1]", None, "JSON Parse error: Invalid value."),
    (b'{"instances": [1', None, "JSON Parse error: Missing a comma"),
    (b'{"instances" [1]}', None, "JSON Parse error: Missing a colon"),
    (b"{instances: [1]}", None, "JSON Parse error: Missing a name"),
    (b'{"instances": ["a]}', None, "JSON Parse error: Missing a closing quotation mark"),
    (b'{"instances": [1e999]}', None, "JSON Parse error: Number too big to be stored in double"),
    (b"[1]", None, "Is not object"),
]


@pytest.mark.parametrize(("body", "signature", "error"), ERRORS)
def test_a_bad_request_is_told_what_is_wrong(api, body, signature, error):
    code, answer = api.predict(body, signature)
    assert code == 400
    assert set(answer) == {"error"}
    assert error in answer["error"]


def test_a_type_that_json_cannot_fill_is_not_implemented(api):
    code, answer = api.predict({"inputs": [0.5]}, "half")
    assert code == 501
    assert "to type: half" in answer["error"]


def test_columns_may_have_any_zeroth_dimension(api):
    code, answer = api.predict({"inputs": [1.0, 2.0]}, "scalar")
    assert (code, answer["outputs"]) == (200, {"y": [1.0, 2.0], "z": 3.0})
    code, answer = api.predict({"inputs": [1.0]}, "other")
    assert (code, answer["outputs"]) == (200, {"y": [1.0], "z": [0.0] * 5})


@pytest.mark.parametrize(
    ("which", "factor"),
    [("", 2), ("/versions/1", 1), ("/versions/2", 2), ("/labels/stable", 1), ("/labels/canary", 2)],
)
def test_versions_and_labels_choose_who_answers(api, which, factor):
    assert api.predict({"instances": [1]}, model=f"factor{which}") == (
        200,
        {"predictions": [factor]},
    )
    code, answer = api.get(f"/v1/models/factor{which}/metadata")
    assert code == 200
    assert answer["model_spec"] == {"name": "factor", "signature_name": "", "version": str(factor)}


@pytest.mark.parametrize(
    ("model", "code", "error"),
    [
        ("nobody", 404, "Servable not found for request: Latest(nobody)"),
        ("nobody/versions/4", 404, "Servable not found for request: Specific(nobody, 4)"),
        ("factor/versions/3", 404, "Servable not found for request: Specific(factor, 3)"),
        ("factor/labels/gone", 404, "Servable not found for request: Specific(factor, 9)"),
        ("factor/labels/none", 400, "Unrecognized servable version label: none"),
    ],
)
def test_who_is_not_there_cannot_answer(api, model, code, error):
    assert api.predict({"instances": [1]}, model=model) == (code, {"error": error})
    metadata_code, answer = api.get(f"/v1/models/{model}/metadata")
    assert (metadata_code, answer) == (code, {"error": error})


def test_status_lists_the_versions_newest_first(api):
    available = {"state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    versions = [{"version": "2", **available}, {"version": "1", **available}]
    assert api.get("/v1/models/factor") == (200, {"model_version_status": versions})
    assert api.get("/v1/models/factor/versions/1") == (200, {"model_version_status": versions[1:]})
    assert api.get("/v1/models/factor/versions/8") == (
        404,
        {"error": "Could not find version 8 of model factor"},
    )
    assert api.get("/v1/models/nobody") == (
        404,
        {"error": "Could not find any versions of model nobody"},
    )


def test_metadata_names_inputs_and_outputs_with_sizes_as_strings(api):
    code, answer = api.get("/v1/models/contract/metadata")
    assert code == 200
    signatures = answer["metadata"]["signature_def"]["signature_def"]
    signature = signatures["serving_default"]
    assert signature["method_name"] == "tensorflow/serving/predict"
    images = signature["inputs"]["images"]
    assert images["dtype"] == "DT_FLOAT"
    assert [dim["size"] for dim in images["tensor_shape"]["dim"]] == ["-1", "2", "2", "1"]
    assert images["tensor_shape"]["unknown_rank"] is False
    assert set(signature["outputs"]) == OUTPUTS
    assert {"encoded", "one", "uint8"} <= set(signatures)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_paths_outside_the_api_are_a_page_that_says_404(api, method):
    for path in ("/", "/v2/models/contract", "/monitoring/nothing"):
        code, content, headers = api.ask(method, path)
        assert code == 404
        assert headers["Content-Type"].startswith("text/html")
        assert b"Not Found" in content


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/models/contract:predict"),
        ("POST", "/v1/models/contract"),
        ("POST", "/v1/models/contract/version/1:predict"),
        ("POST", "/v1/models/contract/versions/x:predict"),
        ("GET", "/v1/other"),
        ("POST", "/v1/models/contract:Predict"),
        ("PUT", "/v1/models/contract:predict"),
    ],
)
def test_paths_inside_the_api_that_make_no_sense_are_malformed(api, method, path):
    code, content, headers = api.ask(method, path)
    assert code == 400
    assert headers["Content-Type"] == "application/json"
    assert json.loads(content) == {"error": f"Malformed request: {method} {path}"}


def test_a_status_needs_a_model(api):
    assert api.get("/v1/models") == (400, {"error": "Missing model name in request."})


def test_the_content_type_is_ignored(api):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "image/png"):
        code, _, headers = api.ask(
            "POST",
            "/v1/models/factor:predict",
            b'{"instances": [1]}',
            {"Content-Type": kind},
        )
        assert code == 200
        assert headers["Content-Type"] == "application/json"
