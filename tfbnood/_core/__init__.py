"""Private parts that every layer above may use; nothing here knows of models or statistics."""
