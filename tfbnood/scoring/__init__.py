"""How a model is asked: moments, companions, and one compiled pass."""
