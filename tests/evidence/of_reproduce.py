"""docs/reproduce.md, docs/paper_map.md: settings of the paper; test_gpu_plans.py compares the minutes with plans."""

from __future__ import annotations

from evidence.claims import Origin, not_measured

not_measured(
    "docs/reproduce.md",
    Origin.SETTING,
    "VGG16, R_f = 0.5 and 0.7.",
    "ResNet56, R_f = 0.5:",
    "ResNet110, R_f = 0.4 and 0.65:",
    "MobileNetV2, R_f = 0.3:",
    "the schedule of 90 epochs, R_f = 0.5",
    "draws each block at R_f = 0.4 and 0.5",
    "VGG16 with R_f = 0.5 and R_p from 0 to 0.8",
    "VGG16 at -50 and -70 %",
    "ResNet110 at -40 and -65 %",
    "at -30, -50 and -70 %",
    "at -30 and -50 %",
    "MobileNetV2 at -42 and -60 %",
    "MobileNetV2 on Imagenette at -50 %",
    "the same at -70 %",
)
not_measured(
    "docs/paper_map.md",
    Origin.PUBLISHED,
    "what each block of ResNet50 keeps at R_f 0.4 and 0.5",
    "accuracy over R_p at R_f 0.5, and over R_f at R_p 0.5",
    "F = 0.5",
    "CR = 0.8",
    "160 epochs, rate 0.1, divided by 10 at epochs 80 and 120",
    "160 epochs, rate 0.01",
    "90 epochs, rate 0.1, divided by 10 every 30 epochs",
    "90 epochs, rate 0.01",
    "150 epochs, cosine, rate 0.05, weight decay 0.00004",
)
