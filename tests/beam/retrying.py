"""A runner that does what Flink, Spark and Dataflow do when a worker dies: it runs the lost bundle again elsewhere.

Beam's local FnApiRunner starts real worker processes and speaks the protocol of all portable runners with them, but
fails when one dies. Here a bundle's outputs are held back until it has succeeded, and a bundle whose worker is gone is
given to another one.
"""

import collections
import contextlib
import threading

import grpc
from apache_beam.runners.portability.fn_api_runner import fn_runner, worker_handlers

_LOCK = threading.Lock()


class _Held:
    """A bundle's surroundings, with buffers of its own for what it puts out."""

    def __init__(self, context):
        self._context = context
        self._buffers = collections.defaultdict(list)

    def __getattr__(self, name):
        return getattr(self._context, name)

    def get_buffer(self, buffer_id, transform_id):
        return self._buffers[buffer_id, transform_id]

    def commit(self):
        for (buffer_id, transform_id), parts in self._buffers.items():
            buffer = self._context.get_buffer(buffer_id, transform_id)
            for part in parts:
                buffer.append(part)


@contextlib.contextmanager
def retried_bundles():
    """Makes FnApiRunner run lost bundles again, for the rest of the process; gives a list of the workers lost."""
    run_once = fn_runner.BundleManager.process_bundle
    read = worker_handlers.ControlConnection._read
    lost = []

    def process_bundle(self, *arguments, **options):
        context = self.bundle_context_manager
        while True:
            with _LOCK:
                _remove(context, lost)
            held = self.bundle_context_manager = _Held(context)
            try:
                result = run_once(self, *arguments, **options)
            except RuntimeError as error:
                if "Channel closed" not in str(error):
                    raise
                with _LOCK:
                    lost.append(self._worker_handler)
                continue
            with _LOCK:
                held.commit()
            return result

    def noticing_read(self):
        try:
            read(self)
        except grpc.RpcError:
            self.abort(RuntimeError("Channel closed"))  # or else the runner waits for ever

    fn_runner.BundleManager.process_bundle = process_bundle
    worker_handlers.ControlConnection._read = noticing_read
    yield lost


def _remove(context, lost):
    """Takes dead workers off the lists; the next stage starts others in their place."""
    manager = context.execution_context.worker_handler_manager
    for handlers in [*manager._cached_handlers.values(), context.worker_handlers]:
        handlers[:] = [handler for handler in handlers if handler not in lost]
