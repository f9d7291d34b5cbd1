"""`tfbnood watch`: follows a folder, lines of text or a served model, and raises an alarm when images change.

| module | what it does |
| --- | --- |
| `items` | one image as a source hands it on |
| `folder`, `lines`, `proxy` | sources: new files, standard input, answers of a server |
| `journal` | `events.jsonl`, the write-ahead log: a line that is in it counts, and nothing else does |
| `tally` | what pages and metrics need, as a function of the lines |
| `session` | monitor, journal and tally as one, which resume after a kill |
| `page`, `timeline`, `words`, `metrics` | what people and Prometheus see |
| `run` | the loop |

TensorFlow is imported by the detector that scores files; the proxy and lines of scores do without.
"""

from tfbnood.watch.held_out import HeldOut, read_held_out
from tfbnood.watch.items import Item, Source
from tfbnood.watch.session import Session

__all__ = ["HeldOut", "Item", "Session", "Source", "read_held_out"]
