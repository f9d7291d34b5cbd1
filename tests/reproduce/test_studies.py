"""Studies, stages and the paper's numbers fit together."""

from tfbnood.reproduce import paper
from tfbnood.reproduce.measure import MEASURES
from tfbnood.reproduce.studies import NEEDS, SCALES


def test_the_papers_numbers_fit_its_studies():
    studies = {study.name: study for study in SCALES["paper"]}
    for table in (paper.TABLE2, paper.TABLE3):
        for name, sets in table.items():
            assert list(sets) == list(studies[name].outliers)
    assert list(studies) == [study.name for study in SCALES["cpu"]]
    difference = {name: [b - a for a, b in sets.values()] for name, sets in paper.TABLE1.items()}
    assert all(inliers < 0.2 and outliers > 1 for inliers, outliers in difference.values())
    assert abs(difference["cifar10_realnvp"][1] - 8.66) < 1e-9  # not the 8.56 that is printed


def test_every_stage_has_a_function_and_is_needed_by_something():
    needed = {stage for stages in NEEDS.values() for stage in stages}
    assert set(MEASURES) == {"training", *needed}
    for studies in SCALES.values():
        assert {stage for study in studies for stage in study.stages} == needed
