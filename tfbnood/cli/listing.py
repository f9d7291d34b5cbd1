"""Scores of images as a table, JSON, CSV or Parquet, for local and for served detectors."""

import csv
import io
import json
import pathlib
from collections.abc import Sequence
from typing import Any

from tfbnood.errors import TfbnoodError

__all__ = ["SUFFIXES", "print_listing", "write_listing"]

_LEAST, _MOST = 10, 40  # rows of a table without --top
SUFFIXES = (".html", ".csv", ".json", ".parquet")


def print_listing(
    names: Sequence[str],
    scored: Any,
    style: str,
    *,
    about: dict[str, Any],
    sentences: Sequence[str],
    top: int | None = None,
) -> None:
    """Prints all images as JSON or CSV, or sentences and a table of the most suspicious ones.

    Args:
        names: of the images.
        scored: a `Detection` or a server's answer: arrays `score`, `p_value`, `is_ood`, `bits_per_dim` and possibly
            `valid`, with one entry per image.
        style: "table", "json" or "csv".
        about: further content of the JSON.
        sentences: below the table.
        top: images in the table. Defaults to all that are flagged, but at least 10 and at most 40.
    """
    rows = _make_rows(names, scored)
    if style == "table":
        print("\n".join([*_format_table(rows, top), *sentences]))
    else:
        print(_format_text(rows, style, about).rstrip("\n"))


def write_listing(
    path: pathlib.Path, names: Sequence[str], scored: Any, *, about: dict[str, Any]
) -> None:
    """Writes all images as .json, .csv or .parquet, atomically."""
    from tfbnood._core.files import atomic_path

    rows = _make_rows(names, scored)
    with atomic_path(path) as temporary:
        if path.suffix == ".parquet":
            _write_parquet(temporary, rows)
        else:
            temporary.write_text(_format_text(rows, path.suffix[1:], about), "utf-8")


def _format_text(rows: list[dict[str, Any]], style: str, about: dict[str, Any]) -> str:
    if style == "json":
        return json.dumps({**about, "images": rows}, indent=2) + "\n"
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _write_parquet(path: pathlib.Path, rows: list[dict[str, Any]]) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise TfbnoodError("--out with .parquet needs pyarrow: pip install pyarrow") from None
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def _make_rows(names: Sequence[str], scored: Any) -> list[dict[str, Any]]:
    bits, valid = getattr(scored, "bits_per_dim", None), getattr(scored, "valid", None)
    return [
        {
            "image": name,
            "score": float(scored.score[index]),
            "p_value": float(scored.p_value[index]),
            "is_ood": bool(scored.is_ood[index]),
            "bits_per_dim": None if bits is None else round(float(bits[index]), 4),
            **({} if valid is None else {"valid": bool(valid[index])}),
        }
        for index, name in enumerate(names)
    ]


def _format_table(rows: list[dict[str, Any]], top: int | None) -> list[str]:
    """A table with the most suspicious images first, and the number of flagged ones that are left out."""
    worst = sorted(rows, key=lambda row: (not row["is_ood"], row["p_value"], -row["score"]))
    flagged = sum(row["is_ood"] for row in rows)
    shown = worst[: min(max(flagged, _LEAST), _MOST) if top is None else top]
    if not shown:
        return []
    width = max(len(row["image"]) for row in shown)
    has_bits = any(row["bits_per_dim"] is not None for row in shown)
    header = f"{'image':{width}}  {'score':>10}  {'p-value':>8}"
    lines = [header + (f"  {'bits/dim':>8}" if has_bits else "")]
    for row in shown:
        bits = f"  {row['bits_per_dim'] or 0:8.2f}" if has_bits else ""
        note = "  flagged" if row["is_ood"] else ""
        note = note if row.get("valid", True) else "  not a valid image"
        lines.append(
            f"{row['image']:{width}}  {row['score']:10.4g}  {row['p_value']:8.2g}{bits}{note}"
        )
    if flagged > len(shown):
        left = flagged - len(shown)
        lines.append(f"… and {left} more flagged: --top {flagged} or --out FILE.csv lists them")
    return lines
