"""How `ensemble` should join its members: AUROC on pseudo-outliers, made of held-out images alone.

    .venv/bin/python tools/choose_ensemble.py NAME … --out results/choose_ensemble.json

Members are scored once; every rule is then tried on their normal scores. Several detectors, of different data sets, are
given at once, since a rule has to hold for all: the best one is the one that is least below the best single member on
the average. Rotations and other data sets are not looked at.

`pretext` is trained on pseudo-outliers, so that it must not be judged on kinds it knows: kinds are left out by pairs of
a family, a network is trained on the other eight for each of them, and every kind is scored with the network that has
not seen it.
"""

import argparse
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
from scipy.stats import norm
from sklearn.mixture import GaussianMixture

from tfbnood import shipped
from tfbnood.batching import map_batches
from tfbnood.data import load
from tfbnood.ensemble import Ensemble, normal_scores, tables
from tfbnood.evidence import EvidenceStatistic
from tfbnood.files import write_json
from tfbnood.metrics import auroc
from tfbnood.pretext_statistic import Pretext
from tfbnood.provenance import machine, versions
from tfbnood.pseudo import KINDS, pseudo_outliers

Rule = Callable[[np.ndarray], np.ndarray]

FAMILIES = (
    ("flip", "blend"),
    ("patches", "mosaic"),
    ("noise", "sharp"),
    ("dark", "bright"),
    ("blur", "zoom"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", metavar="NAME", help="detector under savedmodels/")
    parser.add_argument("--n", type=int, default=1000, help="images of each kind (default: 1000)")
    parser.add_argument(
        "--steps", type=int, default=500, help="of training each pretext network (default: 500)"
    )
    parser.add_argument("--width", type=int, default=16, help="of it (default: 16)")
    parser.add_argument("--data-dir")
    parser.add_argument("--out", help="result file, JSON")
    arguments = parser.parse_args()
    table: dict[str, dict[str, dict[str, float]]] = {}
    pretexts: dict[str, list[EvidenceStatistic]] = {}
    for name in arguments.names:
        data = shipped.manifest(name)["training"]["data"]
        dataset = load(data, data_dir=arguments.data_dir)
        ensemble = Ensemble(pretext=False).fit(shipped.load(name).model, dataset.train)
        if data not in pretexts:
            pretexts[data] = trained_pretexts(ensemble, dataset.train, arguments)
        held_out = dataset.calibration[: 2 * arguments.n]
        sets = {
            "inliers": held_out[: arguments.n],
            **pseudo_outliers(held_out[arguments.n :], seed=0),
        }
        sets["fitting"] = halves(ensemble, dataset.train)[1][: ensemble.reference_images]
        scores = {kind: points(ensemble, images) for kind, images in sets.items()}
        for pretext, family in zip(pretexts[data], FAMILIES, strict=True):
            own = {kind: pretext.score(sets[kind]) for kind in ("fitting", "inliers", *family)}
            fitted = tables(own["fitting"][:, None])
            joint = {
                kind: np.column_stack([scores[kind], _normal(one[:, None], fitted)])
                for kind, one in own.items()
            }
            for label, rule in rules([*ensemble._members, pretext], joint["fitting"]):
                inliers = rule(joint["inliers"])
                row = table.setdefault(label, {}).setdefault(name, {})
                row |= {kind: separation(inliers, rule(joint[kind])) for kind in family}
        for label, of in table.items():
            print(f"{name} {label:48} {mean(of[name]):.3f}", flush=True)
    means = {label: {name: mean(row) for name, row in of.items()} for label, of in table.items()}
    below = shortfalls(table)
    for label, of in sorted(means.items(), key=lambda item: below[item[0]]["mean"]):
        short = below[label]
        print(
            f"{label:48} {mean(of):.3f}, {short['mean']:.3f} (worst {short['worst']:.3f}) below the best member"
        )
    if arguments.out:
        pretext = {"steps": arguments.steps, "width": arguments.width}
        about = {"images": arguments.n, "pretext": pretext}
        about |= {"versions": versions(), "machine": machine()}
        content = {"mean_auroc": means, "below_the_best_member": below, "auroc": table}
        write_json(arguments.out, {**about, **content})


def shortfalls(
    table: dict[str, dict[str, dict[str, float]]],
) -> dict[str, dict[str, float]]:
    """By rule, how far it is below the best single member, 0 where it is better: mean and worst of all kinds."""
    alone = [of for label, of in table.items() if label.endswith(" alone")]
    found = {}
    for label, of in table.items():
        short = [
            max(0.0, max(one[name][kind] for one in alone) - value)
            for name, row in of.items()
            for kind, value in row.items()
        ]
        found[label] = {"mean": float(np.mean(short)), "worst": max(short)}
    return found


def trained_pretexts(
    ensemble: Ensemble, train: np.ndarray, arguments: argparse.Namespace
) -> list[EvidenceStatistic]:
    """For every family a pretext that has not seen it."""
    known = halves(ensemble, train)[0]
    return [
        Pretext(
            steps=arguments.steps,
            width=arguments.width,
            kinds=[kind for kind in KINDS if kind not in family],
        ).fit(None, known, progress=True)
        for family in FAMILIES
    ]


def points(ensemble: Ensemble, images: np.ndarray) -> np.ndarray:
    """Normal scores of every member, `[n, members]`."""

    def of(batch):
        return ensemble._normal_scores(ensemble._member_scores(ensemble._gather(batch)))

    return map_batches(of, images, progress=True).astype(np.float64)


def halves(ensemble: Ensemble, train: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The images that the ensemble fits its members to, and those of its mixture."""
    order = np.random.RandomState(ensemble.seed).permutation(len(train))
    return train[order[: len(train) // 2]], train[order[len(train) // 2 :]]


def rules(members: list[EvidenceStatistic], fitting: np.ndarray) -> Iterator[tuple[str, Rule]]:
    """By label, a score of normal scores `[n, members]`; the last member is `pretext`."""
    names = [member.name for member in members]
    for index, name in enumerate(names):
        grid = members[index].get_config().get("grid")
        yield f"{name}{f' grid {grid}' if grid else ''} alone", lambda g, index=index: g[:, index]
    moments = np.array([member.need == "moments" for member in members])
    sums: dict[str, Rule] = {
        "all": lambda g: g.sum(axis=1),
        "bn_moments": lambda g: g[:, moments].sum(axis=1),
        "positive parts": lambda g: np.maximum(g, 0).sum(axis=1),
        "positive parts squared": lambda g: np.square(np.maximum(g, 0)).sum(axis=1),
        "absolute values": lambda g: np.abs(g).sum(axis=1),
        "squares": lambda g: np.square(g).sum(axis=1),
    }
    for label, total in sums.items():
        yield f"sum of {label}", total

    yield "without pretext: density of 10 + 1.5 × bn_moments", without_last(fitting, moments)
    yield "largest", lambda g: g.max(axis=1)
    yield "largest absolute value", lambda g: np.abs(g).max(axis=1)
    for components in (1, 3, 10, 20, 40):
        mixture = GaussianMixture(components, reg_covar=1e-2, random_state=0).fit(fitting)

        def surprise(g, mixture=mixture):
            return -mixture.score_samples(g)

        yield f"density of {components}", surprise
        for label in ("all", "bn_moments", "positive parts"):
            for weight in (0.25, 0.5, 1.0, 1.5, 2.0, 3.0):
                if components == 10 or (label, weight) == ("bn_moments", 1.5):
                    yield (
                        f"density of {components} + {weight:g} × {label}",
                        lambda g, of=surprise, weight=weight, total=sums[label]: (
                            of(g) + weight * total(g)
                        ),
                    )
        for weight in (0.5, 1.0, 1.5, 2.0, 3.0, 4.0):
            yield (
                f"density of {components} + 1.5 × bn_moments + {weight:g} × pretext",
                lambda g, of=surprise, weight=weight: (
                    of(g) + 1.5 * sums["bn_moments"](g) + weight * g[:, -1]
                ),
            )
        if components in (10, 20):
            yield from likelihood_too(
                f"density of {components} + 1.5 × bn_moments",
                lambda g, of=surprise: of(g) + 1.5 * sums["bn_moments"](g),
                lambda g: g[:, [names.index("log_prob"), names.index("complexity")]].sum(axis=1),
                fitting,
            )


def without_last(fitting: np.ndarray, moments: np.ndarray) -> Rule:
    """The rule that was the best before there was a pretext."""
    mixture = GaussianMixture(10, reg_covar=1e-2, random_state=0).fit(fitting[:, :-1])
    return lambda g: 1.5 * g[:, moments].sum(axis=1) - mixture.score_samples(g[:, :-1])


def likelihood_too(
    label: str, unusual: Rule, unlikely: Rule, fitting: np.ndarray
) -> Iterator[tuple[str, Rule]]:
    """A rule joined with the sum of `log_prob` and `complexity`, both as normal scores of their own."""

    def summaries(g):
        return np.stack([unusual(g), unlikely(g)], axis=1)

    fitted = tables(summaries(fitting))

    def both(g):
        return _normal(summaries(g), fitted).T

    label = f"({label}, log_prob + complexity)"
    yield f"larger of {label}", lambda g: np.maximum(*both(g))
    for sharpness in (1, 2, 4):
        yield (
            f"soft maximum, {sharpness}, of {label}",
            lambda g, sharpness=sharpness: np.logaddexp(*(sharpness * both(g))),
        )
    yield f"Fisher of {label}", lambda g: -norm.logsf(both(g)).sum(axis=0)
    for weight in (0.25, 0.5, 1.0):
        yield (
            f"first + {weight:g} × positive part of second of {label}",
            lambda g, weight=weight: both(g)[0] + weight * np.maximum(both(g)[1], 0),
        )


def _normal(values: np.ndarray, fitted: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    return normal_scores(tf.constant(values, tf.float32), *fitted).numpy().astype(np.float64)


def separation(inliers: np.ndarray, outliers: np.ndarray) -> float:
    is_ood = np.arange(len(inliers) + len(outliers)) >= len(inliers)
    return auroc(is_ood, np.concatenate([inliers, outliers]))


def mean(values: dict[str, float]) -> float:
    return float(np.mean(list(values.values())))


if __name__ == "__main__":
    main()
