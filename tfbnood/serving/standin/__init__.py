"""A development server that answers as TF Serving's REST API does."""
