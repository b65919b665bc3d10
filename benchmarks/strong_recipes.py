"""Recipes that may be stronger than finetune-mixed if there are many epochs; short_trainings.py compares them.

python benchmarks/short_trainings.py ... --recipe finetune-mixed strong_recipes:DECAYED strong_recipes:AVERAGED
"""

from __future__ import annotations

from dataclasses import replace

from aacp.train.recipe import FINETUNE_MIXED

DECAYED = replace(FINETUNE_MIXED, weight_decay=5e-3)  # the weight decay of CORING
AVERAGED = replace(FINETUNE_MIXED, average=0.999)
