"""Estimates of the score of a structure without training: importance, inheritance, recalibration, PSAE."""
