"""How good a structure is, without training it: importance, inheritance, recalibration, PSAE."""
