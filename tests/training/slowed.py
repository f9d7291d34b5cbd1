"""Run by test_training.py: `tfbnood` that slows down after its first checkpoint, so that a test can end it in time.

`python slowed.py SECONDS train …` waits SECONDS after every step from then on.
"""

import sys
import time

from tfbnood._core.quiet import quiet_tensorflow
from tfbnood.cli import main

with quiet_tensorflow():
    from tfbnood.training import run

seconds = float(sys.argv[1])


class Slowed(run.Reporter):
    checkpoints = 0

    def on_train_batch_end(self, batch, logs=None):
        super().on_train_batch_end(batch, logs)
        time.sleep(seconds if self.checkpoints else 0)

    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)
        self.checkpoints += 1


run.Reporter = Slowed
sys.exit(main(sys.argv[2:]))
