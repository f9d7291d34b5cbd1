"""A client of exported detectors behind TensorFlow Serving's REST API, real or the development server.

Needs NumPy, not TensorFlow: a client machine need not install or import it.
"""

import base64
import dataclasses
import json
import os
import pathlib
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import requests
import urllib3.exceptions
import urllib3.util

from tfbnood._core.images import as_images
from tfbnood.errors import ServingError

__all__ = ["Client", "Scores"]

_DTYPES = {
    "score": np.float32,
    "p_value": np.float32,
    "is_ood": np.bool_,
    "valid": np.bool_,
}
_OPTIONAL = {"bits_per_dim": np.float32, "is_ood_certified": np.bool_, "cluster": np.int32}
# Large images go in smaller requests: this many values are about 20 MB of JSON.
_VALUES_PER_REQUEST = 4_000_000
_BYTES_PER_REQUEST = 16_000_000
_RETRIED = (429, 503)
# In seconds; the first pause is shorter, and each is twice the one before.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


@dataclasses.dataclass(frozen=True, eq=False)
class Scores:
    """The server's answer for n images; every array has the shape `[n]`.

    Attributes:
        score: the detector's statistic; greater is stranger.
        p_value: share of in-distribution images that would score as high.
        is_ood: whether the image is flagged as out-of-distribution.
        valid: False for a row that was not an image or had values outside 0–255.
        bits_per_dim: negative log-likelihood; None for a detector that has no likelihood model.
        is_ood_certified: alarms at a certified rate; None for an export without `confidence`.
        cluster: of reference images that the image belongs to; None without a calibration within clusters.

    Example:
        >>> yes, no = np.array([True, True]), np.array([False, True])
        >>> scores = Scores(np.array([1.2, 9.7]), np.array([0.4, 0.001]), is_ood=no, valid=yes)
        >>> len(scores), scores.p_value[scores.is_ood]
        (2, array([0.001]))
    """

    score: np.ndarray
    p_value: np.ndarray
    is_ood: np.ndarray
    valid: np.ndarray
    bits_per_dim: np.ndarray | None = None
    is_ood_certified: np.ndarray | None = None
    cluster: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.score)


class Client:
    """Asks a served detector for scores.

    Args:
        url: the server, such as `http://localhost:8501`.
        model: name of the served model.
        version: the version to use. Defaults to the newest.
        label: instead, a label of a version.
        timeout: seconds to wait for an answer.
        retries: how often to try again if the server is busy (429, 503) or unreachable, with growing pauses.
        images_per_request: how many images go in one request.

    Example:
        >>> client = Client("http://127.0.0.1:1", "digits", retries=0)
        >>> client.score(x.test)  # `Server` has an example with a server
        Traceback (most recent call last):
            ...
        tfbnood.errors.ServingError: http://127.0.0.1:1 cannot be reached (...)
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        version: int | None = None,
        label: str | None = None,
        timeout: float = 30,
        retries: int = 5,
        images_per_request: int = 64,
    ) -> None:
        if version is not None and label is not None:
            raise ServingError(f"give a version or a label. Received: {version=}, {label=}")
        if images_per_request < 1:
            raise ServingError(
                f"images_per_request must be positive. Received: {images_per_request}"
            )
        parts = urllib.parse.urlsplit(url)
        more = parts.query or parts.fragment
        if parts.scheme not in ("http", "https") or not parts.hostname or more:
            raise ServingError(f"url must look like http://localhost:8501. Received: {url}")
        self.url = url.rstrip("/")
        self._path = f"/v1/models/{urllib.parse.quote(model, safe='')}"
        if version is not None:
            self._path += f"/versions/{int(version)}"
        if label is not None:
            self._path += f"/labels/{urllib.parse.quote(label, safe='')}"
        self._timeout = timeout
        self._session = _new_session(retries)
        self._images_per_request = images_per_request

    def score(self, images: Any) -> Scores:
        """Scores images of shape `[n, height, width, channels]` with values 0–255.

        Raises:
            DataError: if the images do not have this form.
            ServingError: if the server cannot be reached or refuses.
        """
        images = as_images(images)
        size = min(self._images_per_request, max(1, _VALUES_PER_REQUEST // images[0].size))
        chunks = (images[start : start + size] for start in range(0, len(images), size))
        return _join(
            [self._scores("serving_default", "images", chunk.tolist()) for chunk in chunks]
        )

    def score_files(self, paths: Iterable[str | os.PathLike]) -> Scores:
        """Scores PNG and JPEG files; the server decodes them and fits them to the model's size.

        Raises:
            ServingError: if a file cannot be read, or the server cannot be reached or refuses.
        """
        if isinstance(paths, str | os.PathLike):
            paths = [paths]
        parts = [
            self._scores("encoded", "image_bytes", chunk) for chunk in self._encode_chunks(paths)
        ]
        if not parts:
            raise ServingError("paths must name at least one file. Received: none")
        return _join(parts)

    def metadata(self) -> dict[str, Any]:
        """Name, version and signatures of the served model."""
        return self._ask("GET", "/metadata")

    def status(self) -> dict[str, Any]:
        """The versions that the server knows, and their states."""
        return self._ask("GET", "")

    def _encode_chunks(self, paths: Iterable[str | os.PathLike]) -> Iterator[list[dict[str, str]]]:
        chunk: list[dict[str, str]] = []
        held = 0
        for path in paths:
            try:
                content = pathlib.Path(path).read_bytes()
            except OSError as error:
                raise ServingError(f"{path} cannot be read ({error.strerror or error})") from error
            too_much = held + len(content) > _BYTES_PER_REQUEST
            if chunk and (too_much or len(chunk) == self._images_per_request):
                yield chunk
                chunk, held = [], 0
            chunk.append({"b64": base64.b64encode(content).decode()})
            held += len(content)
        if chunk:
            yield chunk

    def _scores(self, signature: str, name: str, values: list[Any]) -> Scores:
        body = {"signature_name": signature, "inputs": {name: values}}
        outputs = self._ask("POST", ":predict", json.dumps(body).encode()).get("outputs")
        if not isinstance(outputs, Mapping) or not _DTYPES.keys() <= outputs.keys():
            raise ServingError(
                f"{self.url}{self._path} is not an export of tfbnood: {signature} must answer with "
                f"{', '.join(_DTYPES)}. Received: {_shorten(outputs)}"
            )
        arrays: dict[str, np.ndarray] = {
            key: np.asarray(outputs[key], dtype)
            for key, dtype in (_DTYPES | _OPTIONAL).items()
            if key in outputs
        }
        if any(array.shape != (len(values),) for array in arrays.values()):
            shapes = ", ".join(f"{key} {array.shape}" for key, array in arrays.items())
            raise ServingError(f"{len(values)} images must get as many scores. Received: {shapes}")
        return Scores(**arrays)

    def _ask(self, method: str, suffix: str, body: bytes | None = None) -> dict[str, Any]:
        try:
            response = self._session.request(
                method,
                f"{self.url}{self._path}{suffix}",
                data=body,
                headers={"Content-Type": "application/json"},
                timeout=self._timeout,
                allow_redirects=False,
            )
        except urllib3.exceptions.NewConnectionError as error:
            raise ServingError(f"{self.url} cannot be reached ({_find_cause(error)})") from error
        except (requests.Timeout, urllib3.exceptions.TimeoutError) as error:
            raise ServingError(f"{self.url} did not answer within {self._timeout:g} s") from error
        except requests.ConnectionError as error:
            raise ServingError(f"{self.url} cannot be reached ({_find_cause(error)})") from error
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise ServingError(
                f"the request to {self.url} failed ({_find_cause(error)})"
            ) from error
        return self._answer(response.status_code, response.content)

    def _answer(self, code: int, content: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(content)
        except ValueError:
            answer = None
        if code == 200 and isinstance(answer, dict):
            return answer
        said = (
            answer.get("error") if isinstance(answer, dict) else content.decode("utf-8", "replace")
        )
        raise ServingError(f"{self.url}{self._path} answered {code}: {_shorten(said)}", code)


class _Retry(urllib3.util.Retry):
    """Retries only where that helps, with bounded pauses whatever the server requests."""

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: Any = None,
        error: Exception | None = None,
        _pool: Any = None,
        _stacktrace: Any = None,
    ) -> Any:
        # A user who has waited for the whole time-out, or mistyped the host, wants to know now. For urllib3 a refused
        # connection is a kind of time-out.
        refused = isinstance(error, urllib3.exceptions.NewConnectionError)
        timed_out = isinstance(error, urllib3.exceptions.TimeoutError) and not refused
        if error and (timed_out or isinstance(error, urllib3.exceptions.NameResolutionError)):
            raise error
        return super().increment(method, url, response, error, _pool, _stacktrace)

    def get_retry_after(self, response: Any) -> float | None:
        wished = super().get_retry_after(response)
        return None if wished is None else min(wished, _LONGEST_PAUSE)


def _new_session(retries: int) -> requests.Session:
    retry = _Retry(
        total=retries,
        redirect=0,
        other=0,
        status_forcelist=_RETRIED,
        # POST too: scoring changes nothing on the server, so that a repeated request does no harm.
        allowed_methods=None,
        backoff_factor=_FIRST_PAUSE,
        backoff_max=_LONGEST_PAUSE,
        raise_on_status=False,
    )
    session = requests.Session()
    # No proxies and no .netrc from the environment: a local server is contacted directly.
    session.trust_env = False
    for scheme in ("http://", "https://"):
        session.mount(scheme, requests.adapters.HTTPAdapter(max_retries=retry))
    return session


def _find_cause(error: BaseException) -> str:
    """The system's error message, from below the layers of requests and urllib3."""
    while below := error.__cause__ or error.__context__:
        error = below
    return _shorten(error)


def _join(parts: list[Scores]) -> Scores:
    # A server may change to a version with other outputs between two requests.
    known = [key for key in vars(parts[0]) if all(getattr(one, key) is not None for one in parts)]
    return Scores(**{key: np.concatenate([getattr(part, key) for part in parts]) for key in known})


def _shorten(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 300 else f"{text[:300]}…"
