"""Without Apache Beam there is one sentence."""

import faults


def test_a_missing_beam_is_one_sentence_with_the_cure():
    code = (
        "import sys; sys.modules['apache_beam'] = None\n"
        "from tfbnood.errors import TfbnoodError\n"
        "try:\n    import tfbnood.beam\n"
        "except TfbnoodError as error:\n    assert isinstance(error, ImportError); print(error)"
    )
    done = faults.run_python(code)
    assert 'run pip install "tfbnood[beam]"' in done.stdout, done.stderr
    assert len(done.stdout.splitlines()) == 1
