"""How a model is evaluated: moments, companions, and one compiled pass."""
