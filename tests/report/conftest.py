"""A real browser, pages to look at, and the rule that holds for all of them: no error, and nothing fetched."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tfbnood.report import Example, score_page, write_page

SIZES = {"desktop": (1280, 900, False), "phone": (360, 740, True)}
# As root and in a container; quiet, so that only a page itself could ask for anything.
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
NASTY = (
    "<img src=x onerror=alert(1)>.png",
    "</script><script>alert(2)</script>.png",
    "a\"b'c&amp;<!--.png",
    "caf\udce9.png",  # a byte that is not UTF-8, as os.fsdecode gives it
    "\u202egnp.exe",
    "日本/写真.png",
)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Chromium without a window."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    binary = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if not binary or not driver:
        pytest.skip(
            "needs a browser (Debian, Ubuntu: apt install chromium chromium-driver) to look at pages"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in FLAGS:
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    running = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield running
    running.quit()


@pytest.fixture
def open_page(browser, tmp_path):
    """Opens a page from a file, in a size; in the end checks that it raised no error and asked for nothing."""

    def opened(page, *, size="desktop", dark=False, script=True):
        path = page
        if isinstance(page, str):
            path = tmp_path / "report.html"
            write_page(path, page)
        width, height, mobile = SIZES[size]
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not script})
        browser.get_log("browser")
        browser.get_log("performance")
        browser.get(path.as_uri())
        return browser

    yield opened
    errors = browser.get_log("browser")
    asked = requests(browser)
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    browser.get("about:blank")
    assert errors == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def requests(browser):
    events = (json.loads(one["message"])["message"] for one in browser.get_log("performance"))
    return [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]


class Made:
    """A page with the numbers it was made from."""

    def __init__(self, count=90, calibration=199, fpr=0.05, **options):
        random = np.random.default_rng(5)
        null = np.sort(random.normal(size=calibration))
        self.calibration, self.fpr = calibration, fpr
        self.scores = random.normal(size=count)
        self.scores[::6] += 3
        at_least = calibration - np.searchsorted(null, self.scores)
        self.p_values = (1 + at_least) / (calibration + 1)
        self.images = random.integers(0, 256, (count, 20, 30, 3), np.uint8)
        self.names = [f"{'cat' if row % 3 else 'dog'}s/IMG_{row:04d}.png" for row in range(count)]
        self.names[: len(NASTY)] = NASTY[:count]
        self.order = np.lexsort((-self.scores, self.p_values))
        self.where = {int(row): random.random((5, 7)) for row in self.order[:4]}
        self.why = {int(row): [("early", 2.5), ("late <b>", -1.25)] for row in self.order[:4]}
        self.page = score_page(
            self.names,
            self.images,
            self.scores,
            self.p_values,
            calibration_images=calibration,
            fpr=fpr,
            where=self.where,
            why=self.why,
            why_words="Normal scores of the members.",
            **{
                "batch_p_value": 0.0005,
                "batch_words": "higher criticism",
                "converted": ["7 of 90 files were resized & cropped."],
                "card": {"data": "cats <and> dogs", "versions": {"keras": "3.10"}},
                "detailed": 10,
                **options,
            },
        )

    def name(self, place):
        """Of the image at a place on the page, as a browser writes it."""
        return (
            self.names[self.order[place]]
            .encode("utf-8", "replace")
            .decode()
            .replace("?.", "\ufffd.")
        )


@pytest.fixture(scope="session")
def made():
    return Made()


@pytest.fixture(scope="session")
def made_page():
    """Makes such a page with other settings."""
    return Made


@pytest.fixture(scope="session")
def examples():
    pixels = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 1), np.uint8)
    return [Example(name, one, note="score 1") for name, one in zip(NASTY, pixels, strict=False)]


@pytest.fixture(scope="session")
def ten_thousand(tmp_path_factory):
    """The file of a page about 10,000 colour images, which are never in memory together, and its p-values."""
    random = np.random.default_rng(0)
    y, x = np.mgrid[:96, :96] / 96
    # Waves and grain: they compress about as badly as photographs.
    waves = random.uniform(-20, 20, (32, 3, 4, 2))
    kinds = np.sin(np.einsum("kcwa,ahv->kcwhv", waves, np.stack([y, x]))).mean(2)
    kinds = np.moveaxis(127 + 100 * kinds, 1, -1) + random.normal(0, 12, (32, 96, 96, 3))
    kinds = np.clip(kinds, 0, 255).astype(np.uint8)
    p_values = random.integers(1, 1001, 10_000) / 1000
    page = score_page(
        [f"camera {row % 7}/{row:06d}.jpg" for row in range(10_000)],
        lambda row: np.roll(kinds[row % 32], row, axis=(0, 1)),
        -p_values,
        p_values,
        calibration_images=999,
    )
    path: Path = tmp_path_factory.mktemp("large") / "report.html"
    write_page(path, page)
    return path, p_values
