"""Prometheus metrics of a watched stream: like the journal, counts continue after a restart."""

import dataclasses
import math
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from tfbnood.errors import ServingError
from tfbnood.watch.session import Session
from tfbnood.watch.tally import BUCKETS

__all__ = ["Metrics", "Snapshot", "serve_metrics", "snapshot"]

_COUNTERS = {
    "images": "Images with a score.",
    "unreadable": "Items without a score: files that are not images, rows that the server marks as invalid.",
    "flagged": "Images with a p-value of at most the false-alarm rate (--fpr).",
    "discoveries": "Images called outliers by online FDR (--fdr).",
    "alarms": "How often the alarm was raised.",
    "restarts": "How often the alarm was cleared.",
}
_GAUGES = {
    "alarm": "1 while the alarm is on.",
    "log_evidence": "Natural logarithm of the evidence for a change.",
    "log_threshold": "Natural logarithm of the run length: the alarm is raised when the evidence reaches it.",
    "log_martingale": "Natural logarithm of the test martingale.",
    "share": "Estimated share of outliers since the onset, while the alarm is on.",
    "share_low": "Lower end of its 95 % interval.",
    "share_high": "Upper end of its 95 % interval.",
    "onset_image": "Number of the image since which images are unusual, while the alarm is on.",
    "autocorrelation": "Autocorrelation of the p-values of neighbouring images.",
    "thinning": "Distance between images that are bet on.",
    "last_image_timestamp_seconds": "Time of the last image.",
    "source_up": "0 while the folder or the server behind the proxy cannot be reached.",
    "writable": "0 while the journal cannot be written and answers pass unwatched.",
}
_PROXY = {
    "unwatched_rows": "Rows of answers that were not counted: other signatures, or the journal could not be written.",
    "mismatched_rows": "Rows that were not counted because the served model differs from the detector.",
}


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """All metrics at one moment, for the thread that answers Prometheus."""

    counters: Mapping[str, int]
    gauges: Mapping[str, float]
    buckets: tuple[int, ...]
    p_value_sum: float
    proxy: Mapping[str, int] = dataclasses.field(default_factory=dict)
    answers: Mapping[int, int] = dataclasses.field(default_factory=dict)


def snapshot(
    session: Session, *, source_up: bool = True, writable: bool = True, proxy: Any = None
) -> Snapshot:
    """The current metrics of a session.

    Example:
        >>> from tfbnood.watch import HeldOut, Item, Session
        >>> with Session.open(folder / "out", HeldOut("mine", np.arange(99.0), (8, 8, 1), "pixel_pca")) as session:
        ...     events = session.take([Item("a.png", 9.0)])
        ...     found = snapshot(session)
        >>> found.counters["images"], found.gauges["alarm"], sum(found.buckets)
        (1, 0.0, 1)
    """
    monitor, tally = session.monitor, session.tally
    gauges = {
        "alarm": float(monitor.alarm),
        "log_evidence": monitor.log_evidence,
        "log_threshold": math.log(monitor.run_length),
        "log_martingale": monitor.log_martingale,
        "autocorrelation": monitor.autocorrelation,
        "thinning": float(monitor.thinned),
        "last_image_timestamp_seconds": tally.last,
        "source_up": float(source_up),
        "writable": float(writable),
    }
    if monitor.since is not None and (share := monitor.share) is not None:
        gauges |= {"share": share.value, "share_low": share.low, "share_high": share.high}
        gauges["onset_image"] = float(monitor.since.value)
    return Snapshot(
        {name: getattr(tally, name) for name in _COUNTERS},
        gauges,
        tuple(tally.buckets.tolist()),
        tally.p_value_sum,
        {}
        if proxy is None
        else {"unwatched_rows": proxy.unwatched, "mismatched_rows": proxy.mismatched},
        {} if proxy is None else dict(proxy.answers),
    )


class Metrics:
    """A collector for `prometheus_client`: returns the latest snapshot. Every metric is called `tfbnood_watch_…`.

    Attributes:
        latest: set by the loop; reading and setting one attribute needs no lock.
    """

    def __init__(self, latest: Snapshot):
        self.latest = latest

    def collect(self) -> Iterator[Any]:
        """Called by the registry."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        now = self.latest
        for name, words in _COUNTERS.items():
            yield CounterMetricFamily(f"tfbnood_watch_{name}", words, value=now.counters[name])
        for name, words in _GAUGES.items():
            if name in now.gauges:
                yield GaugeMetricFamily(f"tfbnood_watch_{name}", words, value=now.gauges[name])
        for name, words in _PROXY.items():
            if name in now.proxy:
                yield CounterMetricFamily(f"tfbnood_watch_{name}", words, value=now.proxy[name])
        if now.proxy:
            answers = CounterMetricFamily(
                "tfbnood_watch_answers", "Answers that the proxy passed on.", labels=["code"]
            )
            for code, count in sorted(now.answers.items()):
                answers.add_metric([str(code)], count)
            yield answers
        total, buckets = 0, []
        for bound, count in zip(BUCKETS, now.buckets, strict=True):
            total += count
            buckets.append((str(float(bound)), float(total)))
        buckets.append(("+Inf", float(total)))
        yield HistogramMetricFamily(
            "tfbnood_watch_p_value",
            "P-values of images among the held-out scores.",
            buckets=buckets,
            sum_value=now.p_value_sum,
        )


def serve_metrics(
    metrics: Metrics, port: int, host: str = "127.0.0.1"
) -> tuple[Any, threading.Thread]:
    """Serves Prometheus at `/metrics`; returns the server, whose `shutdown` ends it, and its thread.

    Raises:
        ServingError: if the port is taken.
    """
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)  # type: ignore[arg-type]
    try:
        return start_http_server(port, host, registry)
    except (OSError, OverflowError) as error:
        raise ServingError(f"cannot listen on metrics_port {host}:{port} ({error})") from error
