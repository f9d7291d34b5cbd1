"""Run by test_distributed.py, once per machine: `tfbnood` with a quick model, which keeps the weights it ends with.

`python on_two_machines.py WEIGHTS STEP train …` ends itself after STEP as a kill would; 0 for never.
"""

import os
import signal
import sys

from tfbnood._core.quiet import quiet_tensorflow
from tfbnood.cli import main

with quiet_tensorflow():
    import numpy as np
    from toys import Toy

    from tfbnood.models import registry
    from tfbnood.training import distributed, run

weights, last_step = sys.argv[1], int(sys.argv[2])
registry.MODELS["vae"] = Toy
train = run.train


class Dying(distributed.StopWhenDiverged):
    def on_train_batch_end(self, batch, logs=None):
        super().on_train_batch_end(batch, logs)
        if int(self.model.optimizer.iterations.numpy()) == last_step:
            os.kill(os.getpid(), signal.SIGKILL)


def kept(*args, **kwargs):
    network = train(*args, **kwargs)
    np.savez(weights, *network.get_weights())
    return network


distributed.StopWhenDiverged = Dying
run.train = kept
sys.exit(main(sys.argv[3:]))
