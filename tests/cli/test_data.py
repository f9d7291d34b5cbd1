"""`tfbnood data`, as typed."""

import json

from tfbnood.cli import main


def test_data_as_json(capsys):
    assert main(["data", "digits", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {
            "name": "digits",
            "shape": [8, 8, 1],
            "train": 1100,
            "calibration": 300,
            "test": 397,
            "source": "scikit-learn's load_digits",
        }
    ]
