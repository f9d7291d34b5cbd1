"""Private helpers for every layer above; nothing here depends on models or statistics."""
