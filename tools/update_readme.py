"""Writes the result tables of README.md from the files under results/, so that no number is typed by hand.

.venv/bin/python tools/update_readme.py
"""

import json
import pathlib

from tfbnood.files import atomic_path

ROOT = pathlib.Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- results: made by tools/update_readme.py -->", "<!-- end of results -->"
# Which files give the columns; a statistic of another model stands beside those of the RealNVP.
SOURCES = ("fashion_mnist_realnvp", "fashion_mnist_realnvp_waic", "fashion_mnist_vae")


def results_text() -> str:
    """The tables in Markdown."""
    evaluations = {
        name: json.loads((ROOT / "results" / name / "evaluation.json").read_text())
        for name in SOURCES
        if (ROOT / "results" / name / "evaluation.json").is_file()
    }
    false_alarms = sorted((ROOT / "results").glob("*/false_alarms.json"))
    parts = [_auroc_table(evaluations), _more_draws_line(), _bits_table(evaluations)]
    parts += [_false_alarm_line(json.loads(path.read_text())) for path in false_alarms]
    return "\n\n".join(parts)


def _auroc_table(evaluations: dict) -> str:
    columns: dict[str, dict] = {}
    for evaluation in evaluations.values():
        for row in evaluation["rows"]:
            cells = columns.setdefault(row["statistic"], {})
            cells[row["set"], row["contamination"]] = f"{row['auroc']['value']:.2f}"
    keys = list(dict.fromkeys(key for cells in columns.values() for key in cells))
    keys.sort(key=lambda key: -key[1])
    lines = [["outliers", "share of the pool", *(f"`{name}`" for name in columns)]]
    for name, share in keys:
        cells = (column.get((name, share), "") for column in columns.values())
        lines.append([name, f"{share:.0%}", *cells])
    return _markdown(lines)


def _more_draws_line() -> str:
    path = ROOT / "results" / "fashion_mnist_realnvp_more_draws" / "evaluation.json"
    (row,) = json.loads(path.read_text())["rows"]
    return (
        f"`bn_delta` averages over few random batches by default. With `draws=(2, 8)`, twice the work, its AUROC on "
        f"{row['set']} is {row['auroc']['value']:.2f}. Both settings, and that all groups of a draw share "
        f"their reference images, were compared on these rotations before: the {row['set']} values of `bn_delta` are "
        "not an untouched test."
    )


def _bits_table(evaluations: dict) -> str:
    lines = [["bits per dimension", "set", "evaluation mode", "training mode", "difference"]]
    for evaluation in evaluations.values():
        for bits in evaluation["bits_per_dim"]:
            numbers = (bits["evaluation"], bits["training"], bits["difference"])
            name = evaluation["provenance"]["model"]
            lines.append([name, bits["set"], *(f"{number:.2f}" for number in numbers)])
    return _markdown(lines)


def _false_alarm_line(result: dict) -> str:
    fresh, skewed = result["fresh"], result["one_class_only"]
    return (
        f"False alarms of `{result['detector']}` at a nominal {result['nominal_rate']:.0%}, in requests of "
        f"{result['images_a_request']}: {fresh['images']:.1%} of {result['fresh_images']} fresh test images and "
        f"{fresh['whole_batches']:.1%} of {fresh['requests']} whole batches; of batches with one class only "
        f"{skewed['images']:.1%} of the images and {skewed['whole_batches']:.1%} of {skewed['requests']} batches."
    )


def _markdown(lines: list[list[str]]) -> str:
    header, *rows = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([header, "|" + " --- |" * len(lines[0]), *rows])


def main() -> None:
    readme = ROOT / "README.md"
    before, rest = readme.read_text().split(BEGIN)
    _, after = rest.split(END)
    with atomic_path(readme) as temporary:
        temporary.write_text(f"{before}{BEGIN}\n\n{results_text()}\n\n{END}{after}")


if __name__ == "__main__":
    main()
