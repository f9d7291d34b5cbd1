"""Reports the progress of training."""

import pathlib
import shutil
import sys
import time

import keras
import tensorflow as tf
from tqdm import tqdm

__all__ = []


class Reporter(keras.callbacks.Callback):
    """Reports progress to TensorBoard and to the user: by a bar, or without a terminal by a line per checkpoint."""

    def __init__(self, step: int, steps: int, logs: pathlib.Path, progress: bool):
        super().__init__()
        terminal = progress and sys.stderr.isatty()
        self._lines = progress and not terminal
        self._steps = steps
        self._first, self._began = step, time.monotonic()
        columns, lines = shutil.get_terminal_size()
        self._bar = tqdm(
            total=steps,
            initial=step,
            unit="step",
            # Not left to tqdm, which draws nothing on a terminal of unknown size.
            ncols=min(columns - 1, 100),
            nrows=lines,
            disable=not terminal,
            postfix="compiling",
        )
        self._writer = tf.summary.create_file_writer(str(logs))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._bar.close()
        self._writer.close()

    def on_train_batch_end(self, batch, logs=None):
        self._bar.set_postfix_str(f"{logs['bits_per_dim']:.3f} bits/dim", refresh=False)
        self._bar.update()

    def on_epoch_end(self, epoch, logs=None):
        step = int(self.model.optimizer.iterations.numpy())
        with self._writer.as_default(step=step):
            for name, value in logs.items():
                tf.summary.scalar(name, value)
        self._writer.flush()
        if self._lines:
            seconds = (time.monotonic() - self._began) / (step - self._first)
            left = tqdm.format_interval((self._steps - step) * seconds)
            print(
                f"step {step}/{self._steps}: {logs['bits_per_dim']:.3f} bits/dim, "
                f"{seconds:.2f} s/step, {left} left",
                file=sys.stderr,
                flush=True,
            )
