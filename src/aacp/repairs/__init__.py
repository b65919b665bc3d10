"""Repair: closed forms that give a cut network back what its remaining weights can still compute."""
