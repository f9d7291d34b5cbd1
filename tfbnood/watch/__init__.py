"""`tfbnood watch`: follows a folder, lines of text or a served model, and raises an alarm when images change.

| module | what it does |
| --- | --- |
| `items` | one image as a source yields it |
| `folder`, `lines`, `proxy` | sources: new files, standard input, answers of a server |
| `journal` | `events.jsonl`, the write-ahead log: only its lines count |
| `tally` | what pages and metrics need, as a function of the lines |
| `session` | monitor, journal and tally together, which resume after a kill |
| `page`, `timeline`, `words`, `metrics` | what people and Prometheus see |
| `run` | the loop |

Only the detector that scores files imports TensorFlow; the proxy and lines of scores do not need it.
"""

from tfbnood.watch.held_out import HeldOut, read_held_out
from tfbnood.watch.items import Item, Source
from tfbnood.watch.session import Session

__all__ = ["HeldOut", "Item", "Session", "Source", "read_held_out"]
