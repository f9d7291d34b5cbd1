"""The elements of a PCollection in the hands of a test."""

import itertools

import apache_beam as beam

_FOUND = {}
_NUMBERS = itertools.count()


class Collect(beam.PTransform):
    """Keeps every element in `found`, for runners that work in this process."""

    def __init__(self):
        super().__init__()
        self.number = next(_NUMBERS)
        self.found = _FOUND[self.number] = []

    def expand(self, elements):
        """Keeps and gives the elements."""
        return elements | beam.Map(_keep, self.number)


def _keep(element, number):
    # Beam pickles what it is given, a list by its value; a function of a module goes by name.
    _FOUND[number].append(element)
    return element


def run(pipeline):
    """Runs a pipeline; gives its counters, and its distributions, by name."""
    result = pipeline.run()
    result.wait_until_finish()
    found = result.metrics().query()
    values = [*found["counters"], *found["distributions"]]
    return {one.key.metric.name: one.committed for one in values}
