"""A search in several processes: keras-tuner's chief, which serves its oracle, and workers, which run trials.

The protocol is keras-tuner's own. It rounds numbers to float32 and cannot hold all results of a trial, so workers write
these into the folder of the search, which all processes share. Only the chief writes the final results. It records the
order in which trials start and end, and replays it to a new oracle after a kill, which restores the old state.
"""

import dataclasses
import json
import pathlib
import threading
import time
from concurrent import futures
from typing import Any

import grpc
from keras_tuner.src import protos
from keras_tuner.src.distribute.oracle_chief import OracleServicer
from keras_tuner.src.distribute.oracle_client import OracleClient
from keras_tuner.src.engine.trial import Trial as AskedTrial
from keras_tuner.src.engine.trial import TrialStatus
from threadpoolctl import threadpool_limits

from tfbnood._core.files import write_json
from tfbnood._core.runs import RunFolder
from tfbnood._core.tuner_process import TunerProcess
from tfbnood.errors import TfbnoodError
from tfbnood.tuning.search import Search, budget, quiet, tell
from tfbnood.tuning.trials import Study, Trial, run_trial

__all__ = ["assist", "lead", "read_events"]

_IDLE_SECONDS = 1.0  # between two requests of a waiting worker
_GRACE_SECONDS = 30.0  # for workers to learn that the search is over
_NOBODY = "nobody-"


def lead(search: Search, oracle: Any, process: TunerProcess) -> bool:
    """Serves trials to workers until there are enough trials or the time limit is reached.

    After the limit no new trial is started; running ones are awaited.

    Args:
        search: in its folder.
        oracle: keras-tuner's, new.
        process: the chief's.

    Returns:
        Whether there are enough trials.
    """
    if len(search.done) == search.settings["trials"]:
        return True
    _repeat(search, oracle)
    chief = _Chief(search, oracle)
    # One thread: the oracle's choices depend on the order of requests and answers.
    # By default gRPC lets two chiefs share a port and divides the workers among them.
    server = grpc.server(
        futures.ThreadPoolExecutor(max_workers=1), options=[("grpc.so_reuseport", 0)]
    )
    protos.get_service_grpc().add_OracleServicer_to_server(chief, server)
    try:
        server.add_insecure_port(process.address)
    except RuntimeError:
        raise TfbnoodError(
            "KERASTUNER_ORACLE_IP and KERASTUNER_ORACLE_PORT must be an address of this machine with a free port. "
            f"Received: {process.address}"
        ) from None
    server.start()
    search.say(f"{process.tuner_id} is serving trials at {process.address}")
    try:
        chief.wait()
    finally:
        server.stop(grace=1.0).wait()
    return len(search.done) == search.settings["trials"] or not search.out_of_time()


def assist(
    study: Study,
    settings: dict[str, Any],
    place: RunFolder,
    process: TunerProcess,
    *,
    progress: bool,
) -> tuple[list[Trial], dict[str, Any]]:
    """Runs trials for the chief until it has no more.

    Args:
        study: what the trials share.
        settings: those of the search, which must be the chief's.
        place: its folder, which the chief has created.
        process: this worker.
        progress: show a bar on a terminal.

    Returns:
        The trials that this worker ran, and the content of `tuning.json`.

    Raises:
        TfbnoodError: if the chief has other settings or another folder, or has ended.
    """
    client = OracleClient(None)
    own: list[Trial] = []
    try:
        with quiet():
            if place.earlier(settings).get("finished"):
                return own, place.earlier(settings)
            client.get_space()  # Waits for the chief.
            if not place.earlier(settings):
                raise TfbnoodError(
                    f"out must be a folder that this process shares with the chief. Received: {place.folder}, "
                    f"without {place.file}"
                )
            while (asked := client.create_trial(process.tuner_id)).status != TrialStatus.STOPPED:
                if asked.status == TrialStatus.IDLE:
                    time.sleep(_IDLE_SECONDS)
                    continue
                own.append(_run(study, asked, progress))
                client.end_trial(asked)
    except grpc.RpcError as error:
        raise TfbnoodError(
            f"{process.tuner_id} lost the chief at {process.address} ({_find_reason(error)}); start the chief and this "
            "worker again with the same commands: the search resumes"
        ) from error
    return own, place.earlier(settings)


def _run(study: Study, asked: Any, progress: bool) -> Trial:
    number, hp = int(asked.trial_id) + 1, asked.hyperparameters
    trial = run_trial(
        study, number, hp, out_of_time=lambda: False, progress=progress, **budget(hp.values)
    )
    assert trial is not None, "a trial without a time limit ends"
    write_json(_report(study, number), dataclasses.asdict(trial))
    asked.status = trial.status.upper()
    return trial


def _report(study: Study, number: int) -> pathlib.Path:
    """The file for a worker's results of a trial."""
    return study.checkpoint(number).with_suffix(".json")


class _Chief(OracleServicer):
    """keras-tuner's server, which also records what happens."""

    def __init__(self, search: Search, oracle: Any):
        super().__init__(oracle)
        self._search = search
        self._problem: Exception | None = None
        self._over: float | None = None
        self._news = threading.Event()

    def wait(self) -> None:
        """Returns when all trials are done and all workers know it, or raises the first error."""
        said = False
        while True:
            self._news.wait(0.2)
            self._news.clear()
            if self._problem is not None:
                raise self._problem
            if self._over is None:
                continue
            if self.oracle.ongoing_trials:
                if not said and time.monotonic() > self._over + _GRACE_SECONDS:
                    said = True
                    self._search.say(
                        f"waiting for {_list_running(self.oracle)}; start a worker again if it has ended"
                    )
            elif not self.oracle.tuner_ids or time.monotonic() > self._over + _GRACE_SECONDS:
                return

    def CreateTrial(self, request, context):
        return self._guard(context, self._create, request.tuner_id)

    def EndTrial(self, request, context):
        return self._guard(context, self._end, request.trial.trial_id)

    def _guard(self, context: Any, action: Any, argument: str) -> Any:
        try:
            with quiet(), threadpool_limits(1):
                return action(argument)
        except Exception as error:
            self._problem = error
            self._news.set()
            context.abort(grpc.StatusCode.INTERNAL, str(error).partition("\n")[0])

    def _create(self, tuner_id: str) -> Any:
        oracle, search = self.oracle, self._search
        if tuner_id not in oracle.ongoing_trials:
            for nobody in [one for one in oracle.ongoing_trials if one.startswith(_NOBODY)][:1]:
                oracle.ongoing_trials[tuner_id] = oracle.ongoing_trials.pop(nobody)
        before = len(oracle.trials)
        if tuner_id not in oracle.ongoing_trials and search.out_of_time():
            oracle.tuner_ids.discard(tuner_id)
            asked = AskedTrial(oracle.get_space(), status=TrialStatus.STOPPED)
        else:
            asked = oracle.create_trial(tuner_id)
        if len(oracle.trials) > before:
            search.events.append(["start", len(oracle.trials), tuner_id])
            search.write(finished=False)
        if asked.status == TrialStatus.STOPPED and self._over is None:
            self._over = time.monotonic()
        self._news.set()
        return protos.get_service().CreateTrialResponse(trial=asked.to_proto())

    def _end(self, trial_id: str) -> Any:
        search, number = self._search, int(trial_id) + 1
        if search.find(number) is None:
            path = _report(search.study, number)
            try:
                trial = Trial(**json.loads(path.read_text("utf-8")))
            except (OSError, ValueError, TypeError) as error:
                raise TfbnoodError(
                    f"out must be a folder that all processes share. Received: {search.out}, where {path.name} is not "
                    f"readable ({error})"
                ) from None
            tell(self.oracle, self.oracle.trials[trial_id], trial, search.study.objective)
            search.events.append(["end", number])
            search.record(trial)
            path.unlink()
        self._news.set()
        return protos.get_service().EndTrialResponse()


def read_events(earlier: dict[str, Any]) -> list[list[Any]]:
    """The events of an earlier chief; for trials of a single process, those a chief would have recorded."""
    events = earlier.get("events", [])
    done = {one["number"] for one in earlier.get("trials", [])}
    if {event[1] for event in events if event[0] == "end"} == done:
        return [list(event) for event in events]
    made: list[list[Any]] = []
    for number in range(1, max(done, default=0) + 1):
        made.append(["start", number, f"{_NOBODY}{number}"])
        made += [["end", number]] if number in done else []
    return made


def _repeat(search: Search, oracle: Any) -> None:
    """Brings a new oracle into the state of an earlier chief's."""
    asked: dict[int, Any] = {}
    for kind, number, *process in search.events:
        if kind == "start":
            with threadpool_limits(1):
                asked[number] = oracle.create_trial(process[0])
        else:
            tell(oracle, asked[number], search.find(number), search.study.objective)  # type: ignore[arg-type]
    oracle.tuner_ids.clear()


def _list_running(oracle: Any) -> str:
    ongoing = dict(oracle.ongoing_trials)  # A copy: the server's thread may change it meanwhile.
    running = {int(trial.trial_id) + 1: name for name, trial in ongoing.items()}
    return ", ".join(f"trial {number} of {name}" for number, name in sorted(running.items()))


def _find_reason(error: grpc.RpcError) -> str:
    details = error.details() if isinstance(error, grpc.Call) else None
    return (details or type(error).__name__).partition("\n")[0][:200]
