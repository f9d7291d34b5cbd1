"""A development server that answers like TF Serving's REST API."""

__all__ = ["BATCH_TIMEOUT_MICROS", "MAX_BATCH_SIZE", "MAX_ROWS"]

# Rows of a merged call: the real server's default, without a file of batching parameters.
MAX_BATCH_SIZE = 1000
# How long a call waits for other requests. The real server does not wait by default, but has few threads.
BATCH_TIMEOUT_MICROS = 4000
# Rows of a request.
MAX_ROWS = 10_000
