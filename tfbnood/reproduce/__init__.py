"""Reproduces tables and figures with one command, `tfbnood reproduce WHAT`, stage by stage."""
