"""Calibrated detectors as SavedModels for TF Serving."""
