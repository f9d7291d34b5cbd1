"""Monitor: has something changed in a stream of images, since when, which images show it?"""

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfbnood._core.checks import check_integer
from tfbnood._version import __version__
from tfbnood.errors import DataError
from tfbnood.monitor import state
from tfbnood.monitor.bets import Evidence
from tfbnood.monitor.estimates import Estimate, likely_onsets, onset, share
from tfbnood.monitor.history import History
from tfbnood.monitor.online_fdr import OnlineFdr
from tfbnood.monitor.ranks import Ranks, theta
from tfbnood.monitor.readings import Exemplar, Readings
from tfbnood.monitor.sources import Score, as_groups, as_keys, as_scores, as_source
from tfbnood.monitor.thinning import Spacing

__all__ = ["Monitor"]

# Autocorrelation is measured every so many images, over so many of them.
_EVERY, _WINDOW = 64, 2048
_EXEMPLARS = 16
# Plain attributes that are saved as they are.
_PLAIN = ("count", "alarm_index", "_started")


class Monitor:
    """Watches a stream of images and raises an alarm when they no longer look like the held-out ones.

    Every score is ranked among the held-out scores and all earlier ones of the stream, and bets are placed against
    these p-values being uniform; `tfbnood/monitor/bets.py` has the formulas.

    **What is guaranteed.** As long as held-out and stream images are exchangeable (in particular: independent draws
    from one distribution), for any distribution of the scores and any number of held-out ones, averaged over draws:

    - the average run length to a false alarm is at least `run_length`: E[N] ≥ run_length, by the e-detector theorem of
      Shin, Ramdas & Rinaldo (2024), whose condition holds since the p-values are independent and uniform (Vovk);
    - m images raise a false alarm with a probability of at most m / run_length;
    - after `restart()` both hold anew, so that the long-run rate of false alarms is at most 1 / run_length;
    - `martingale` ever reaches c with a probability of at most 1/c (Ville).

    **What breaks it.** Neighbours that resemble each other (video, bursts, images in class order), and a mix of classes
    that changes. The first is measured: with `thin=None` the monitor bets only on images so far apart that their scores
    are hardly correlated, and warns (`AutocorrelationWarning`). That is approximate, and cannot help before it has seen
    two scenes. So an alarm in the first 64 images waits for the first measurement. For the second, give `groups`:
    scores are then ranked within their group (Mondrian conformal prediction), and the guarantee only needs
    exchangeability within each group, whatever the order and mix of groups. The groups must be the kinds whose mix
    changes: clusters help only as far as they match them.

    Only high scores count: a change that makes images look more ordinary than before goes unnoticed.

    Memory grows with the number of groups, not with the stream. Beyond `capacity` scores of a group, p-values are still
    exactly uniform and independent; the rank of a single score is approximate, as `tfbnood/monitor/pool.py` states.
    `since`, `share` and `worst` look back `history` images. Not thread-safe.

    Args:
        source: a calibrated `Detector`, a `Calibration`, or held-out scores `[n]`. Clusters of a calibration are not
            used: give scores with `groups` for that.
        run_length: a lower bound on the average number of images between false alarms.
        seed: of the random order among ties.
        groups: for held-out scores in an array, the group of each: integers or names.
        thin: bet on every thin-th image. Defaults to the measured distance; give 1 if images are known to be
            independent.
        fdr: also decide on single images, by this `OnlineFdr` or `OnlineFdr(fdr)`, on p-values among the held-out
            scores alone with ties broken at random.
        capacity: scores kept one by one, per group.
        history: number of latest images to keep, with their keys.

    Attributes:
        count: images seen.
        alarm_index: index of the image that raised the alarm; None while it is off.
        since: index since which images have been strange, an `Estimate` made when the alarm was raised; None while it
            is off.
        online_fdr: the `OnlineFdr`, or None.

    Example:
        >>> random = np.random.default_rng(0)
        >>> monitor = tfbnood.Monitor(random.normal(size=1000), run_length=10_000)
        >>> bool(monitor.update(scores=random.normal(size=500)).alarm.any())
        False
        >>> found = monitor.update(scores=random.normal(2.5, size=100))
        >>> monitor.alarm, monitor.since.low <= 500 <= monitor.since.high, monitor.share.value > 0.5
        (True, True, True)
    """

    def __init__(
        self,
        source: Any,
        run_length: float = 10_000,
        seed: int = 0,
        *,
        groups: Any = None,
        thin: int | None = None,
        fdr: float | OnlineFdr | None = None,
        capacity: int = 65_536,
        history: int = 10_000,
    ):
        check_integer("seed", seed, least=0)
        check_integer("capacity", capacity, least=32)
        check_integer("history", history, least=64)
        if thin is not None:
            check_integer("thin", thin, least=1)
        self.run_length = _check_run_length(run_length)
        self.seed = int(seed)
        self._spacing = Spacing(None if thin is None else int(thin))
        self.online_fdr = fdr if fdr is None or isinstance(fdr, OnlineFdr) else OnlineFdr(fdr)
        self._score: Score | None
        scores, self._score = as_source(source, grouped=groups is not None)
        self._grouped = groups is not None
        self._ranks = Ranks(scores, as_groups(groups, len(scores)), capacity=int(capacity))
        self._history = History(int(history))
        self._evidence = Evidence()
        self.count = self._started = 0
        self.alarm_index: int | None = None
        self.since: Estimate | None = None

    @property
    def alarm(self) -> bool:
        """Whether the alarm is on; it stays on until `restart()`."""
        return self.alarm_index is not None

    @property
    def log_evidence(self) -> float:
        """Logarithm of the e-detector; the alarm is raised at log(run_length)."""
        return self._evidence.log_detector

    @property
    def log_cusum(self) -> float:
        """Logarithm of the CUSUM statistic, which is at most the evidence."""
        return self._evidence.log_cusum

    @property
    def log_martingale(self) -> float:
        """Logarithm of the test martingale, 0 at the start."""
        return self._evidence.log_martingale

    @property
    def martingale(self) -> float:
        """The test martingale: it ever reaches c with a probability of at most 1/c if nothing has changed."""
        return _exp(self.log_martingale)

    @property
    def thin(self) -> int | None:
        """The requested distance between bets; None if it is measured."""
        return self._spacing.fixed

    @property
    def thinned(self) -> int:
        """The current distance between bets."""
        return self._spacing.distance

    @property
    def autocorrelation(self) -> float:
        """Autocorrelation of neighbouring p-values, as last measured; 0 before."""
        return self._spacing.autocorrelation

    @property
    def share(self) -> Estimate | None:
        """The share of outliers since the onset, an `Estimate`; None while the alarm is off.

        It is an average over likely onsets. Right after an alarm it is still too high if few images are outliers:
        alarms come when these happen to be dense. Later images correct it.
        """
        if self.alarm_index is None:
            return None
        first = max(self._started, self._history.first)
        seen = self._history.since(first)
        before = max(0, self.alarm_index + 1 - first)  # up to the alarm, as far as kept
        used = seen["bet"][:before] > 0
        starts = likely_onsets(seen["stream_p_value"][:before], used) if before else [0]
        return share(seen["p_value"], starts)

    @property
    def worst(self) -> list[Exemplar]:
        """Up to 16 images with the smallest p-values, worst first: since the onset, or of all before an alarm."""
        since = self._started if self.since is None else int(self.since.value)
        found = self._history.since(since)
        first = self.count - len(found["score"])
        places = np.lexsort((-found["score"], found["p_value"]))[:_EXEMPLARS].tolist()
        return [
            Exemplar(
                first + place,
                self._history.key(first + place),
                float(found["score"][place]),
                float(found["p_value"][place]),
            )
            for place in places
        ]

    def update(
        self,
        images: Any = None,
        *,
        scores: Any = None,
        keys: Sequence[Any] | None = None,
        groups: Any = None,
    ) -> Readings:
        """Processes the next images or their scores, any number at a time.

        The same scores give the same results, bit for bit, whatever the chunks. (A detector's score of an image may
        differ in its last bits with the number of images beside it.)

        Args:
            images: `[n, height, width, channels]` in 0–255, for a monitor of a detector.
            scores: `[n]`, instead of images.
            keys: names or numbers of the images, for `worst`.
            groups: `[n]`, for a monitor with groups. A group without held-out scores is compared with itself.

        Raises:
            DataError: for invalid input; nothing of the chunk was processed.

        Example:
            >>> monitor = Monitor(detector)
            >>> found = monitor.update(255 - x.test[:70], keys=[f"{i}.png" for i in range(70)])
            >>> monitor.alarm, monitor.since.low, bool(found.alarm[0])
            (True, 0, False)
        """
        scored = self._scored(images, scores)
        if (groups is not None) != self._grouped:
            where = "update()" if groups is not None else "Monitor()"
            raise DataError(
                f"groups must be given to both Monitor() and update(), or to neither. Received: only {where}"
            )
        labels, named = as_groups(groups, len(scored)), as_keys(keys, len(scored))
        rows = np.empty((len(scored), 6))
        for row, one in enumerate(zip(scored.tolist(), labels, named, strict=True)):
            rows[row] = self._take(*one)
        return Readings(
            index=self.count - len(scored),
            score=scored,
            p_value=rows[:, 0],
            stream_p_value=rows[:, 1],
            log_evidence=rows[:, 2],
            log_martingale=rows[:, 3],
            alarm=rows[:, 4].astype(bool),
            discovery=None if self.online_fdr is None else rows[:, 5].astype(bool),
        )

    def restart(self, *, forget: bool = False) -> None:
        """Turns the alarm off and starts to collect evidence anew.

        Args:
            forget: after a real change that has been fixed, also removes the scores since the onset (as far as
                `history` reaches) from the comparison; else they would make the next outliers look ordinary. The
                guarantee then depends on a correct onset. Leave it False after a false alarm: then all scores stay, and
                the guarantee is exact. If the change is the new normal, neither helps: calibrate on new images and make
                a new monitor.

        Example:
            >>> monitor = Monitor(np.random.default_rng(0).normal(size=500))
            >>> found = monitor.update(scores=np.full(70, 9.0))
            >>> monitor.restart(forget=True)
            >>> bool(found.alarm[-1]), monitor.alarm
            (True, False)
        """
        if forget and self.since is not None:
            first = max(int(self.since.low), self._history.first)
            found = self._history.since(first)
            for place in np.flatnonzero(found["forgotten"] == 0).tolist():
                self._ranks.remove(float(found["score"][place]), self._history.group(first + place))
            self._history.forget(first)
        self._evidence = Evidence()
        self._started = self.count
        self.alarm_index = self.since = None

    def save(self, folder: str | os.PathLike) -> None:
        """Writes the state as a folder, JSON and arrays, atomically: a kill leaves the old one or the new one.

        Example:
            >>> monitor = Monitor(np.arange(99.0))
            >>> found = monitor.update(scores=[1.0, 2.0])
            >>> monitor.save(folder / "monitor")
            >>> Monitor.load(folder / "monitor").count
            2
        """
        ranks, rank_arrays = self._ranks.get_state()
        history, history_arrays = self._history.get_state()
        content = {
            "tfbnood": __version__,
            "settings": {"run_length": self.run_length, "seed": self.seed},
            "spacing": self._spacing.get_state(),
            "grouped": self._grouped,
            "plain": {name: getattr(self, name) for name in _PLAIN},
            "since": None if self.since is None else dataclasses.asdict(self.since),
            "online_fdr": None if self.online_fdr is None else self.online_fdr.get_state(),
            "ranks": ranks,
            "history": history,
        }
        parts = {
            "ranks": rank_arrays,
            "history": history_arrays,
            "evidence": self._evidence.get_state(),
        }
        arrays = {f"{part}/{name}": of for part, some in parts.items() for name, of in some.items()}
        state.write(folder, content, arrays)

    @classmethod
    def load(cls, folder: str | os.PathLike, *, source: Any = None) -> "Monitor":
        """Reads what `save` wrote; the monitor continues bit for bit.

        Args:
            folder: of `save`.
            source: the detector to score images with, of the same calibration. Without it, `update` only takes scores.

        Example:
            >>> Monitor(detector).save(folder / "monitor")
            >>> len(Monitor.load(folder / "monitor", source=detector).update(x.test[:5]))
            5
        """
        content, arrays = state.read(folder)
        monitor = cls.__new__(cls)
        try:
            monitor._restore(content, arrays)
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise DataError(f"{folder} cannot be loaded: it is damaged ({error!r})") from None
        if source is not None:
            scores, monitor._score = as_source(source, grouped=monitor._grouped)
            if not np.array_equal(np.sort(scores), monitor._ranks.scores):
                raise DataError(
                    "source must have the held-out scores that the monitor was made with; else make a new monitor. "
                    f"Received: {len(scores)} other scores"
                )
        return monitor

    def __repr__(self) -> str:
        found = f"no alarm, evidence {_exp(self.log_evidence):.3g} of {self.run_length:,.0f}"
        if self.since is not None:
            found = f"alarm at image {self.alarm_index:,}, since {self.since.value:,}"
        thinned = f", bets {self.thinned} images apart" if self.thinned > 1 else ""
        return f"<Monitor: {self.count:,} images, {found}{thinned}>"

    def _scored(self, images: Any, scores: Any) -> np.ndarray:
        if (images is None) == (scores is None):
            given = "neither" if images is None else "both"
            raise DataError(f"give images or scores. Received: {given}")
        if scores is not None:
            return as_scores(scores)
        if self._score is None:
            raise DataError(
                "images need a monitor with a detector: give scores=, or a Detector as source, also to load(). "
                "Received: images"
            )
        return as_scores(self._score(images))

    def _take(self, score: float, group: int | str, key: Any) -> tuple[float, ...]:
        """One image: its p-values, the bet, the measurement, the alarm."""
        index = self.count
        found = self._ranks.take(score, group, theta(self.seed, index))
        bet = self._spacing.take(index)
        self._history.add(score, found.held_out, found.stream, bet, group, key)
        if bet:
            self._evidence.bet(found.stream, index)
        self.count += 1
        if self.thin is None and self.count % _EVERY == 0 and not self.alarm:
            self._measure()
        log_evidence = self._evidence.log_detector
        enough = log_evidence >= math.log(self.run_length)
        if not self.alarm and self._spacing.measured and enough:
            self.alarm_index = index
            first = max(self._started, self._history.first)
            seen = self._history.since(first)
            self.since = onset(seen["stream_p_value"], seen["bet"] > 0, first)
        discovery = self.online_fdr is not None and self.online_fdr.test(found.smoothed)
        martingale = self._evidence.log_martingale
        return found.held_out, found.stream, log_evidence, martingale, self.alarm, discovery

    def _measure(self) -> None:
        """Measures the autocorrelation of p-values since the last restart, on one side of the suspected onset.

        A change would look like autocorrelation, even one before a restart.
        """
        first_time = not self._spacing.measured
        if self.count - self._started < _EVERY and not first_time:
            return
        since = max(self.count - _WINDOW, 0 if first_time else self._started)
        seen = self._history.since(since)["stream_p_value"]
        cut = max(0, len(seen) - (self.count - self._evidence.onset))
        longer = seen[:cut] if 2 * cut > len(seen) else seen[cut:]
        # At first there is too little to split.
        self._spacing.measure(seen if first_time else longer, stacklevel=4)
        if first_time and self.thinned > 1:
            self._bet_again()

    def _bet_again(self) -> None:
        """After the first measurement: keeps no more evidence than bets at this distance would have won."""
        first = max(self._started, self._history.first)
        p_values = self._history.since(first)["stream_p_value"]
        used = np.arange(len(p_values)) % self.thinned == 0
        again = Evidence()
        for place in np.flatnonzero(used).tolist():
            again.bet(float(p_values[place]), first + place)
            self._spacing.last = first + place
        self._history.set_bets(first, used)
        self._evidence.lower(again)

    def _restore(self, content: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        def of(part: str) -> dict[str, np.ndarray]:
            return {
                name.removeprefix(f"{part}/"): array
                for name, array in arrays.items()
                if name.startswith(f"{part}/")
            }

        for name in ("run_length", "seed"):
            setattr(self, name, content["settings"][name])
        self._spacing = Spacing.from_state(content["spacing"])
        for name in _PLAIN:
            setattr(self, name, content["plain"][name])
        self._score = None
        self._grouped = content["grouped"]
        self._ranks = Ranks.from_state(content["ranks"], of("ranks"))
        self._history = History.from_state(content["history"], of("history"))
        self._evidence = Evidence.from_state(of("evidence"))
        self.since = None if content["since"] is None else Estimate(**content["since"])
        online = content["online_fdr"]
        self.online_fdr = None if online is None else OnlineFdr.from_state(online)


def _check_run_length(run_length: Any) -> float:
    number = isinstance(run_length, int | float | np.number) and not isinstance(run_length, bool)
    if not number or not 1 < run_length < math.inf:
        raise DataError(
            f"run_length must be a number of images above 1. Received: run_length={run_length!r}"
        )
    return float(run_length)


def _exp(logarithm: float) -> float:
    return math.exp(min(logarithm, 700.0))
