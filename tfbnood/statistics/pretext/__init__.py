"""`pretext`: small networks that learn what was done to an image."""
