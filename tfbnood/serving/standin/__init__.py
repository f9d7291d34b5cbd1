"""A development server that answers as TF Serving's REST API does."""

__all__ = ["BATCH_TIMEOUT_MICROS", "MAX_BATCH_SIZE", "MAX_ROWS"]

# Rows of a merged call: the real server's own default, where no file of batching parameters says otherwise.
MAX_BATCH_SIZE = 1000
# How long a call waits for the rows of others. The real server does not wait by default, but its threads are few.
BATCH_TIMEOUT_MICROS = 4000
# Rows of a request.
MAX_ROWS = 10_000
