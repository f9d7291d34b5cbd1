"""Run by test_parallel.py, once per process of a search: `tfbnood` with a quick model.

`python one_process.py MEETING TRIALS tune …` waits before its first trial until another process has come to the folder
MEETING, and ends itself as a kill would when it is asked for more than TRIALS trials; 0 for never.
"""

import os
import pathlib
import signal
import sys
import time

from tfbnood._core.quiet import quiet_tensorflow
from tfbnood.cli import main

with quiet_tensorflow():
    from toys import EagerToy

    from tfbnood.models import registry
    from tfbnood.tuning import parallel

meeting, most = pathlib.Path(sys.argv[1]), int(sys.argv[2])
registry.MODELS["vae"] = EagerToy
run_trial, asked = parallel.run_trial, []


def run(study, number, *args, **kwargs):
    asked.append(number)
    (meeting / os.environ["KERASTUNER_TUNER_ID"]).touch()
    while len(list(meeting.iterdir())) < 2:
        time.sleep(0.05)
    if most and len(asked) > most:
        os.kill(os.getpid(), signal.SIGKILL)
    return run_trial(study, number, *args, **kwargs)


parallel.run_trial = run
sys.exit(main(sys.argv[3:]))
