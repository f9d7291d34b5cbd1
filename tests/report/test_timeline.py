"""The page of `tfbnood watch`, in a real browser: what it says, shows and asks for."""

import re

import numpy as np
import pytest
from watching import held_out, pixels

from tfbnood.watch import Item, Session
from tfbnood.watch.page import timeline_page
from tfbnood.watch.timeline import p_values_svg
from tfbnood.watch.words import alarm_sentences, state_words

NASTY = ("<img src=x onerror=alert(1)>.png", "a\"b'c&amp;<!--.png", "caf\udce9.png")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """By name: before the first image, without an alarm, with one; and the session of the last."""
    random = np.random.default_rng(0)
    made = {}
    with Session.open(
        tmp_path_factory.mktemp("page") / "out", held_out(), run_length=1000
    ) as session:
        made["empty"] = timeline_page(session, "uploads", refresh=5)
        calm = [
            Item(f"{row}.png", float(one)) for row, one in enumerate(random.normal(100, 10, 300))
        ]
        session.take(calm)
        made["calm"] = timeline_page(session, "uploads <i>", refresh=5)
        names = [*NASTY, *(f"strange/{row}.png" for row in range(37))]
        session.take([Item("bad.png", unreadable="truncated")])
        session.take(
            [
                Item(name, 190.0 - row, picture=lambda row=row: pixels(150 + row)[..., None])
                for row, name in enumerate(names)
            ]
        )
        made["alarm"] = timeline_page(session, "uploads", refresh=None)
        made["session"] = session
        made["words"] = alarm_sentences(session)
        made["state"] = state_words(session)
    return made


@pytest.mark.parametrize("size", ["desktop", "phone"])
@pytest.mark.parametrize("name", ["empty", "calm", "alarm"])
def test_pages_fit_the_window(open_page, pages, name, size):
    page = open_page(pages[name], size=size, dark=size == "phone")
    wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.execute_script(wide) <= 0
    assert page.execute_script("return document.querySelectorAll('svg').length") == 2 * (
        name != "empty"
    )


def test_the_alarm_is_told_in_words_and_pictures(open_page, pages):
    page = open_page(pages["alarm"])
    session = pages["session"]
    title = page.find_element("css selector", "h1").text
    assert title.startswith(
        f"Something has changed since image {int(session.monitor.since.value):,}"
    )
    assert "of the images since then are outliers; 95 % interval" in title
    shown = page.find_elements("css selector", ".examples li")
    worst = session.monitor.worst
    assert len(shown) == len(worst) == 16
    assert all(
        f"image\u00a0{one.index:,}" in tile.get_attribute("textContent")
        for one, tile in zip(worst, shown, strict=True)
    )
    loaded = "return [...document.querySelectorAll('.examples img')].every((one) => one.naturalWidth == 4)"
    assert page.execute_script(loaded)
    assert len(page.find_elements("css selector", ".examples img")) == 16
    assert len(page.find_elements("css selector", "rect.band")) == 1
    words = page.find_element("css selector", "main").text
    assert "What is guaranteed" in words
    assert f"alarm, image {session.monitor.alarm_index:,}" in words
    assert page.find_element("css selector", "details").text == "1 unreadable; the latest 1"


def test_the_curve_crosses_the_level_where_the_alarm_was_raised(pages):
    page, session = pages["alarm"], pages["session"]
    (points,) = re.findall(r'class="curve c0" points="([^"]*)"', page)
    curve = np.array([[float(one) for one in pair.split(",")] for pair in points.split()])
    level = float(re.findall(r'class="threshold" x1="52"[^>]* y1="([\d.]+)"', page)[0])
    assert len(curve) == session.tally.images == 340
    above = curve[:, 1] <= level
    assert int(np.argmax(above)) == session.monitor.alarm_index
    assert not above[:300].any()


def test_a_watched_page_reads_itself_again_and_an_ended_one_does_not(pages):
    assert '<meta http-equiv="refresh" content="5">' in pages["calm"]
    assert 'http-equiv="refresh"' not in pages["alarm"]


def test_names_are_text_and_no_markup(pages):
    assert "<i>" not in pages["calm"]
    for name in NASTY[:2]:
        assert name not in pages["alarm"]
    assert "&lt;img src=x onerror=alert(1)&gt;.png" in pages["alarm"]


def test_the_sentences_answer_what_people_ask(pages):
    when, since, share, which, false = pages["words"]
    monitor = pages["session"].monitor
    raised = pages["session"].tally.raised[-1]
    assert re.fullmatch(
        rf"Alarm at \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d, image {raised['index']} .*", when, re.S
    )
    low, high = int(monitor.since.low), int(monitor.since.high)
    assert f"unusual since image {int(monitor.since.value)}," in since
    assert since.endswith(f"95 % interval: {low} to {high}.")
    assert re.match(
        r"About \d+ % of the images since then are outliers; 95 % interval: \d+ % to \d+ %", share
    )
    assert which == f"These show it most: {', '.join(one.key for one in monitor.worst[:5])}."
    assert false == "Without a change, an alarm comes at most once in 1,000 images on average."
    assert pages["state"].startswith("340 images, 1 unreadable, ")
    assert pages["state"].endswith(f"ALARM at image {raised['index']}")


def test_chance_of_few_held_out_images_does_not_look_like_a_change():
    null = np.sort(np.random.default_rng(0).normal(size=(200, 100)), axis=1)
    streams = np.random.default_rng(1).normal(size=(200, 1000))
    hot = 0
    for held, scores in zip(null, streams, strict=True):
        p_values = (101 - np.searchsorted(held, scores)) / 101
        hot += "bars hot" in p_values_svg(p_values, held_out=100, label="p")
    assert hot <= 6  # of 200; beyond three standard errors
    assert "bars hot" in p_values_svg(
        [0.01] * 30 + list(np.linspace(0.05, 1, 70)), held_out=100, label="p"
    )
