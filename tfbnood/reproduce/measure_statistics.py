"""The stages that are evaluations: the `Evaluation.to_dict` of statistics on the sets of a study."""

from collections.abc import Sequence
from typing import Any

from tfbnood import statistics
from tfbnood.evaluation.run import evaluate
from tfbnood.protocols import Encoder, Reconstructor
from tfbnood.reproduce.context import StudyContext
from tfbnood.reproduce.studies import CONTAMINATIONS
from tfbnood.statistics.base import Statistic

__all__ = [
    "measure_deltas",
    "measure_draws",
    "measure_ensemble",
    "measure_ratio",
    "measure_statistics",
    "measure_waic",
]

MUTATION = 0.3  # Ren et al.'s for Fashion-MNIST; not tuned here


def measure_ensemble(context: StudyContext) -> dict[str, Any]:
    """The default, and the `pretext` inside it: one training of its networks for both."""
    chosen = [context.ensemble, context.ensemble.member("pretext")]
    # Both are fitted: they need neither model nor reference.
    return evaluate(
        None,
        context.dataset.test,
        context.outliers,
        statistics=chosen,
        contamination=CONTAMINATIONS,
        n=context.images_per_set,
        progress=True,
    ).to_dict()


def measure_statistics(context: StudyContext) -> dict[str, Any]:
    """All statistics that the model supports."""
    chosen: list[str | Statistic] = ["bn_moments", "log_prob", "complexity", "t_perm"]
    chosen += ["pixel_pca", "pixel_knn", "typicality", "bn_delta_grouped"]
    chosen.append(statistics.get("bn_delta", mixing="moments"))
    if isinstance(context.model, Encoder):
        chosen.append("latent_fit")
    if isinstance(context.model, Reconstructor):
        chosen.append("reconstruction")
    return _evaluate(context, context.model, chosen)


def measure_deltas(context: StudyContext) -> dict[str, Any]:
    """Δ with mixed samples, which takes long, and with mixed moments."""
    chosen = [
        statistics.get("bn_delta"),
        statistics.get("bn_delta", mixing="moments"),
        statistics.get("bn_delta", mixing="moments", r1=0.0),
    ]
    return _evaluate(context, context.model, chosen, context.study.delta_shares)


def measure_draws(context: StudyContext) -> dict[str, Any]:
    """Δ with less averaging over random batches for samples, and more for moments."""
    chosen = [
        statistics.get("bn_delta", draws=(1, 1)),
        statistics.get("bn_delta", mixing="moments", draws=(2, 8)),
    ]
    return _evaluate(context, context.model, chosen, (1.0,))


def measure_waic(context: StudyContext) -> dict[str, Any] | None:
    """WAIC of independently trained models, or None if there is only one model."""
    if context.seeds < 2:
        return None
    name, steps = context.study.name, context.study.waic_steps
    # All trained equally long; the study's own model, trained for longer, is not among them.
    members = [
        context.load_or_train(f"{name}_waic_{seed}", context.dataset, steps, seed=seed)
        for seed in range(1, context.seeds + 1)
    ]
    return _evaluate(context, members, ["waic"])


def measure_ratio(context: StudyContext) -> dict[str, Any]:
    """The likelihood ratio to a background model, trained on mutated images."""
    background = context.load_or_train(
        f"{context.study.name}_background",
        context.dataset,
        context.study.background,
        mutation=MUTATION,
    )
    return _evaluate(context, [context.model, background], ["likelihood_ratio"])


def _evaluate(
    context: StudyContext,
    model: Any,
    chosen: Sequence[str | Statistic],
    contamination: tuple[float, ...] = CONTAMINATIONS,
) -> dict[str, Any]:
    return evaluate(
        model,
        context.dataset.test,
        context.outliers,
        statistics=chosen,
        contamination=contamination,
        n=context.images_per_set,
        reference=context.dataset.train,
        progress=True,
    ).to_dict()
