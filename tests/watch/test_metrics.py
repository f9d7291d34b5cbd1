"""Metrics over HTTP, and the files that are built on them: every metric they name is one that a real run exports."""

import json
import pathlib
import re
import urllib.request

import numpy as np
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from watching import events, held_out

from tfbnood.errors import ServingError
from tfbnood.watch import Item, Session
from tfbnood.watch.metrics import Metrics, serve_metrics, snapshot
from tfbnood.watch.proxy import ProxySource
from tfbnood.watch.run import Watch

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools" / "serving"


class Given(ProxySource):
    """A proxy to nowhere that hands on given batches, and looks at the metrics after the last."""

    def __init__(self, batches, look):
        super().__init__("http://127.0.0.1:1/v1/models/fm", held_out())
        self.batches, self.look = [*batches, []], look
        self.answers[200] += 7

    def poll(self, seconds):
        if len(self.batches) == 1:
            self.look()
            self.stop()
        return self.batches.pop(0) if self.batches else []


@pytest.fixture(scope="module")
def scraped(tmp_path_factory):
    """By name and labels, all samples of a run that ends in an alarm; and its lines."""
    out = tmp_path_factory.mktemp("metrics") / "out"
    random = np.random.default_rng(0)
    scores = np.concatenate([random.normal(100, 10, 200), random.normal(150, 10, 60)])
    items = [Item(f"{row}.png", float(one)) for row, one in enumerate(scores)]
    items.insert(5, Item("bad.png", unreadable="empty"))
    said, samples = [], {}

    def look():
        address = next(one for one in said if one.startswith("metrics: ")).split()[1]
        with urllib.request.urlopen(address) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain")
            text = answer.read().decode()
        for family in text_string_to_metric_families(text):
            assert family.documentation.endswith(".")
            for sample in family.samples:
                samples[(sample.name, *sample.labels.values())] = sample.value

    def make(session):
        batches = [items[start : start + 64] for start in range(0, len(items), 64)]
        return Given(batches, look)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tfbnood.watch.run._METRICS_SECONDS", -1.0)
        watch = Watch(
            out,
            "nowhere",
            lambda: Session.open(out, held_out(), run_length=1000, fdr=0.1),
            make,
            metrics_port=0,
            say=said.append,
        )
        assert watch.run() == 0
    return samples, events(out)


def test_metrics_are_what_the_journal_says(scraped):
    samples, lines = scraped
    scored = [one for one in lines if "score" in one]
    value = {name[0]: one for name, one in samples.items() if len(name) == 1}
    p_values = np.array([one["p_value"] for one in scored])
    assert value["tfbnood_watch_images_total"] == 260
    assert value["tfbnood_watch_unreadable_total"] == 1
    assert value["tfbnood_watch_alarms_total"] == value["tfbnood_watch_alarm"] == 1
    assert value["tfbnood_watch_flagged_total"] == (p_values <= 0.01).sum()
    assert value["tfbnood_watch_discoveries_total"] == sum(one["discovery"] for one in scored)
    assert value["tfbnood_watch_log_evidence"] == scored[-1]["log_evidence"]
    assert value["tfbnood_watch_log_threshold"] == pytest.approx(np.log(1000))
    assert value["tfbnood_watch_share_low"] < value["tfbnood_watch_share"] < 1
    assert value["tfbnood_watch_onset_image"] == pytest.approx(200, abs=5)
    assert value["tfbnood_watch_p_value_count"] == 260
    assert value["tfbnood_watch_p_value_sum"] == pytest.approx(p_values.sum())
    for bound in (0.001, 0.01, 0.05, 0.5, 1):
        found = samples[("tfbnood_watch_p_value_bucket", str(float(bound)))]
        assert found == (p_values <= bound + 1e-12).sum()
    assert samples[("tfbnood_watch_answers_total", "200")] == 7


@pytest.mark.parametrize("name", ["alerts.rules.yml", "grafana-dashboard.json"])
def test_every_metric_that_a_file_names_is_exported(name, scraped):
    named = set(re.findall(r"tfbnood_watch_\w+", (TOOLS / name).read_text()))
    assert len(named) >= 8
    assert named <= {one[0] for one in scraped[0]}


def test_every_metric_is_in_the_dashboard_or_in_a_rule(scraped):
    text = "".join(
        (TOOLS / name).read_text() for name in ("alerts.rules.yml", "grafana-dashboard.json")
    )
    helpers = ("_sum", "_count", "_created")
    unused = {one[0] for one in scraped[0] if one[0] not in text and not one[0].endswith(helpers)}
    assert unused == set()


def test_the_rules_are_rules():
    (group,) = yaml.safe_load((TOOLS / "alerts.rules.yml").read_text())["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert len(names) == len(set(names)) >= 6
    for rule in group["rules"]:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"]["summary"]
        assert rule["expr"].count("(") == rule["expr"].count(")")
    scrape = yaml.safe_load((TOOLS / "prometheus.yml").read_text())
    assert all((TOOLS / one).is_file() for one in scrape["rule_files"])


def test_the_dashboard_s_panels_have_places_queries_and_words():
    board = json.loads((TOOLS / "grafana-dashboard.json").read_text())
    taken = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert all(one["expr"] and one["datasource"] for one in panel["targets"])
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_a_taken_port_is_one_line(tmp_path):
    with Session.open(tmp_path / "out", held_out()) as session:
        server, _ = serve_metrics(Metrics(snapshot(session)), 0)
        try:
            with pytest.raises(ServingError, match="cannot listen on metrics_port") as error:
                serve_metrics(Metrics(snapshot(session)), server.server_port)
            assert "\n" not in str(error.value)
            assert server.server_address[0] == "127.0.0.1"
        finally:
            server.shutdown()
            server.server_close()
