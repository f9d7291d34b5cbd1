"""How `ensemble` should combine its members: AUROC on pseudo-outliers, made from held-out images.

    .venv/bin/python tools/research/choose_ensemble.py NAME … --out tools/research/results/choose_ensemble.json

Members are scored once; every rule is then tried on their normal scores. Give several detectors of different data sets
at once, since a rule has to hold for all: the best rule is the one that is least below the best single member on
average. Rotations and other data sets are not used.

`pretext` is trained on pseudo-outliers, so that it must not be judged on kinds it knows. Kinds are left out by family:
for each family a network is trained on the others, and every kind is scored with a network that has not seen it.
"""

import argparse
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
from scipy.stats import norm
from sklearn.mixture import GaussianMixture

from tfbnood import zoo
from tfbnood._core.batching import map_batches
from tfbnood._core.files import write_json
from tfbnood._core.provenance import machine, versions
from tfbnood._core.sampling import shuffled_halves
from tfbnood.data import load
from tfbnood.data.pseudo import ALL_KINDS, KINDS, pseudo_outliers
from tfbnood.metrics import auroc
from tfbnood.reproduce.reuse import load_or_fit
from tfbnood.scoring.evidence import gather
from tfbnood.statistics.base import EvidenceStatistic
from tfbnood.statistics.ensemble import Ensemble
from tfbnood.statistics.normal_scores import normal_scores, tables
from tfbnood.statistics.pretext.statistic import Pretext

Rule = Callable[[np.ndarray], np.ndarray]

FAMILIES = (
    ("flip", "blend", "shift"),
    ("patches", "mosaic", "halves"),
    ("noise", "sharp", "jitter"),
    ("dark", "bright", "flat"),
    ("blur", "zoom", "stretch", "pixels"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", metavar="NAME", help="detector under savedmodels/")
    parser.add_argument("--n", type=int, default=1000, help="images of each kind (default: 1000)")
    parser.add_argument(
        "--steps",
        type=int,
        nargs=2,
        default=(2000, 1000),
        help="training steps of the networks of ten and of sixteen kinds (default: 2000 1000)",
    )
    parser.add_argument("--width", type=int, default=24, help="width of the networks (default: 24)")
    parser.add_argument(
        "--runs",
        default="runs/choose_ensemble",
        help="folder of trained networks (default: runs/choose_ensemble)",
    )
    parser.add_argument("--data-dir")
    parser.add_argument("--out", help="result file, JSON")
    arguments = parser.parse_args()
    table: dict[str, dict[str, dict[str, float]]] = {}
    pretexts: dict[str, list[list[Pretext]]] = {}
    for name in arguments.names:
        data = zoo.manifest(name)["training"]["data"]
        dataset = load(data, data_dir=arguments.data_dir)
        ensemble = Ensemble(pretext=False).fit(zoo.load(name).model, dataset.train)
        if data not in pretexts:
            pretexts[data] = trained_pretexts(dataset.train, arguments)
        held_out = dataset.calibration[: 2 * arguments.n]
        sets = {
            "inliers": held_out[: arguments.n],
            **pseudo_outliers(held_out[arguments.n :], seed=0, kinds=ALL_KINDS),
        }
        sets["fitting"] = shuffled_halves(dataset.train)[1][: ensemble.reference_images]
        scores = {kind: points(ensemble, images) for kind, images in sets.items()}
        for both, family in zip(pretexts[data], FAMILIES, strict=True):
            own = {kind: raw_pretexts(both, sets[kind]) for kind in ("fitting", "inliers", *family)}
            fitted = tables(own["fitting"])
            joint = {
                kind: np.column_stack([scores[kind], _normal(raw, fitted)])
                for kind, raw in own.items()
            }
            for label, rule in rules(ensemble._members, joint["fitting"]):
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
        pretext = {"steps": list(arguments.steps), "width": arguments.width}
        about = {"images": arguments.n, "pretext": pretext}
        about |= {"versions": versions(), "machine": machine()}
        content = {"mean_auroc": means, "below_the_best_member": below, "auroc": table}
        write_json(arguments.out, {**about, **content})


def shortfalls(
    table: dict[str, dict[str, dict[str, float]]],
) -> dict[str, dict[str, float]]:
    """By rule, how far it is below the best single member, 0 if it is better: mean and worst over all kinds."""
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


def trained_pretexts(train: np.ndarray, arguments: argparse.Namespace) -> list[list[Pretext]]:
    """For every family, a pretext of the first ten kinds and one of all kinds, without that family's."""
    known, _ = shuffled_halves(train)
    return [
        [
            load_or_fit(
                Pretext(
                    steps=steps,
                    width=arguments.width,
                    kinds=[kind for kind in kinds if kind not in family],
                ),
                known,
                arguments.runs,
            )
            for kinds, steps in zip((KINDS, ALL_KINDS), arguments.steps, strict=True)
        ]
        for family in FAMILIES
    ]


def points(ensemble: Ensemble, images: np.ndarray) -> np.ndarray:
    """Normal scores of every member, `[n, members]`."""
    return _normal(ensemble.columns(images), (ensemble.values_, ensemble.slopes_))


def raw_pretexts(both: list[Pretext], images: np.ndarray) -> np.ndarray:
    """Score and distance of features of both networks together, then scores of ten and of sixteen kinds, `[n, 4]`."""
    ten, sixteen = (
        map_batches(lambda batch, of=one: of.tensor_columns(gather(None, "pixels", batch)), images)
        for one in both
    )
    return np.column_stack([(ten + sixteen) / 2, ten[:, 0], sixteen[:, 0]])


def rules(members: list[EvidenceStatistic], fitting: np.ndarray) -> Iterator[tuple[str, Rule]]:
    """By label, a score from normal scores `[n, members + 4]`, the last four as in `raw_pretexts`."""
    count = len(members)
    features = count + 1
    pretexts = {"pretext": count, "pretext of ten": count + 2, "pretext of sixteen": count + 3}
    for index, member in enumerate(members):
        grid = member.get_config().get("grid")
        label = f"{member.name}{f' grid {grid}' if grid else ''} alone"
        yield label, lambda g, index=index: g[:, index]
    for name, index in {**pretexts, "features of pretext": features}.items():
        yield f"{name} alone", lambda g, index=index: g[:, index]
    moments = [index for index, member in enumerate(members) if member.need == "moments"]
    others = density(10, fitting, list(range(count)), moments)
    yield "without pretext: density of 10 + 1.5 × bn_moments", others
    for name, index in pretexts.items():
        for weight in (0.5, 1.0, 1.5, 2.0, 3.0, 4.0):
            yield (
                f"density of 10 + 1.5 × bn_moments + {weight:g} × {name}",
                density(10, fitting, [*range(count), index], moments, {index: weight}),
            )
    for components in (10, 20):
        for weight in (1.5, 2.0, 3.0):
            for distance in (0.0, 0.5, 1.0):
                added = f" + {distance:g} × features" if distance else ""
                yield (
                    f"density of {components} with features + 1.5 × bn_moments + {weight:g} × pretext{added}",
                    density(
                        components,
                        fitting,
                        list(range(count + 2)),
                        moments,
                        {count: weight, features: distance},
                    ),
                )
    all_members = list(range(count + 1))
    sums: dict[str, Rule] = {
        "all": lambda g: g[:, all_members].sum(axis=1),
        "bn_moments": lambda g: g[:, moments].sum(axis=1),
        "positive parts": lambda g: np.maximum(g[:, all_members], 0).sum(axis=1),
        "positive parts squared": lambda g: np.square(np.maximum(g[:, all_members], 0)).sum(axis=1),
        "absolute values": lambda g: np.abs(g[:, all_members]).sum(axis=1),
        "squares": lambda g: np.square(g[:, all_members]).sum(axis=1),
    }
    for label, total in sums.items():
        yield f"sum of {label}", total
    yield "largest", lambda g: g[:, all_members].max(axis=1)
    for components in (1, 3, 10, 20, 40):
        surprise = density(components, fitting, all_members, [])
        yield f"density of {components}", surprise
        if components != 10:
            yield (
                f"density of {components} + 1.5 × bn_moments + 1.5 × pretext",
                density(components, fitting, all_members, moments, {count: 1.5}),
            )
            continue
        for label in ("all", "bn_moments", "positive parts"):
            for weight in (0.25, 0.5, 1.0, 1.5, 2.0, 3.0):
                yield (
                    f"density of 10 + {weight:g} × {label}",
                    lambda g, of=surprise, weight=weight, total=sums[label]: (
                        of(g) + weight * total(g)
                    ),
                )
    unusual = density(10, fitting, all_members, moments)
    likelihoods = [
        index for index, one in enumerate(members) if one.name in ("log_prob", "complexity")
    ]
    yield from joined(
        "(density of 10 + 1.5 × bn_moments, log_prob + complexity)",
        unusual,
        lambda g: g[:, likelihoods].sum(axis=1),
        fitting,
    )
    yield from joined("(without pretext, pretext)", others, lambda g: g[:, count], fitting)


def density(
    components: int,
    fitting: np.ndarray,
    columns: list[int],
    moments: list[int],
    weights: dict[int, float] | None = None,
) -> Rule:
    """The rarity of these members' joint scores, plus 1.5 times those of `bn_moments`, plus others by weight."""
    mixture = GaussianMixture(components, reg_covar=1e-2, random_state=0).fit(fitting[:, columns])
    weights = dict.fromkeys(moments, 1.5) | (weights or {})
    return lambda g: (
        sum(weight * g[:, index] for index, weight in weights.items())
        - mixture.score_samples(g[:, columns])
    )


def joined(
    label: str, first: Rule, second: Rule, fitting: np.ndarray
) -> Iterator[tuple[str, Rule]]:
    """Combines two rules, each as normal scores, in several ways."""

    def summaries(g):
        return np.stack([first(g), second(g)], axis=1)

    fitted = tables(summaries(fitting))

    def both(g):
        return _normal(summaries(g), fitted).T

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
