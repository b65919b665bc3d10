"""What docs/devices.md assumes: the folder of a run for another device, and the results of its check."""

import shutil
from pathlib import Path

from latency.device_process import run_on_device
from pipeline.device_run import SPEED, TRAINING, device_plan, device_table, pruned_for_device

Path("table").mkdir()
pruned_for_device(Path("run"), device_plan(device_table(Path("table"))))
check = Path("run") / TRAINING / "check"
assert run_on_device(check, **SPEED).returncode == 0
shutil.move(check / "results.json", "results.json")
