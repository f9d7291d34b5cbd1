"""Scores of images as a table, JSON or CSV; the same for a detector here and for one behind a server."""

import csv
import json
import sys
from collections.abc import Sequence
from typing import Any

__all__ = ["print_listing"]


def print_listing(
    names: Sequence[str], scored: Any, style: str, *, about: dict[str, Any], sentence: str
) -> None:
    """Prints all images as JSON or CSV, or a table of the flagged ones, most out-of-distribution first.

    Args:
        names: of the images.
        scored: has arrays `score`, `p_value`, `is_ood` and `bits_per_dim` with one entry per image, as `Detection` and
            a server's answer; maybe also `valid`.
        style: "table", "json" or "csv".
        about: what the JSON says beside the images.
        sentence: below the table.
    """
    rows = _rows(names, scored)
    if style == "json":
        print(json.dumps({**about, "images": rows}, indent=2))
    elif style == "csv":
        writer = csv.DictWriter(sys.stdout, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    else:
        print("\n".join([*_table(rows), sentence]))


def _rows(names: Sequence[str], scored: Any) -> list[dict[str, Any]]:
    bits, valid = scored.bits_per_dim, getattr(scored, "valid", None)
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


def _table(rows: list[dict[str, Any]]) -> list[str]:
    flagged = sorted((row for row in rows if row["is_ood"]), key=lambda row: -row["score"])
    if not flagged:
        return []
    width = max(len(row["image"]) for row in flagged)
    lines = [f"{'image':{width}}  {'score':>10}  {'p-value':>8}  {'bits/dim':>8}"]
    for row in flagged:
        bits = "" if row["bits_per_dim"] is None else f"{row['bits_per_dim']:.2f}"
        note = "" if row.get("valid", True) else "  no valid image"
        lines.append(
            f"{row['image']:{width}}  {row['score']:10.4g}  {row['p_value']:8.2g}  {bits:>8}{note}"
        )
    return lines
