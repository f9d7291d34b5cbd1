"""Studies, stages and the paper's numbers fit together."""

import dataclasses
import json

from tfbnood.reproduce import paper
from tfbnood.reproduce.measure import MEASURES
from tfbnood.reproduce.studies import NEEDS, SCALES


def test_the_papers_numbers_fit_its_studies():
    studies = {study.name: study for study in SCALES["paper"]}
    for table in (paper.TABLE2, paper.TABLE3):
        for name, sets in table.items():
            assert [*sets, "rotation-bilinear"] == list(studies[name].outliers)
    assert list(studies) == [study.name for study in SCALES["cpu"]]
    difference = {name: [b - a for a, b in sets.values()] for name, sets in paper.TABLE1.items()}
    assert all(inliers < 0.2 and outliers > 1 for inliers, outliers in difference.values())
    assert abs(difference["cifar10_realnvp"][1] - 8.66) < 1e-9  # not the 8.56 that is printed


def test_a_stage_depends_on_its_training_and_waic_on_trainings_of_its_own():
    study = next(one for one in SCALES["cpu"] if one.name == "fashion_mnist_realnvp")
    assert (study.steps, study.waic_steps) == (15_000, 2000)
    longer = dataclasses.replace(study, steps=20_000)
    for stage in ("training", *study.stages):
        same = longer.settings_of(stage) == study.settings_of(stage)
        assert same == (stage == "waic")
    assert study.settings_of("waic")["waic_models"] == 5
    assert study.settings_of("waic", 2) != study.settings_of("waic")
    assert all(one.waic_steps == 800 for one in SCALES["cpu"] if one.model == "pixelcnn")
    json.dumps([one.settings_of(stage) for one in SCALES["cpu"] for stage in one.stages])


def test_every_stage_has_a_function_and_is_needed_by_something():
    needed = {stage for stages in NEEDS.values() for stage in stages}
    assert set(MEASURES) == {"training", *needed}
    for studies in SCALES.values():
        assert {stage for study in studies for stage in study.stages} == needed
