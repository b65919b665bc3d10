"""Pace: a sentence that states both speeds if the device waits for data, and nothing otherwise."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from aacp.train.loop import fit
from aacp.train.pace import Pace
from aacp.train.recipe import Recipe

CPU = torch.device("cpu")


@dataclass
class Clock:
    """A clock that stands still between waits, in place of the one that other programs on the machine disturb."""

    seconds: float = 0.0

    def perf_counter(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> None:
        self.seconds += seconds


def run(wait: float, compute: float, workers: int | None = 2, steps: int = 12) -> str:
    """What is said of an epoch whose batches of 10 images take these seconds each."""
    clock = Clock()

    def batches() -> Iterator[int]:
        for number in range(steps):
            clock.wait(wait)
            yield number

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aacp.train.pace.time", clock)
        pace = Pace(CPU, workers)
        for _ in pace.waiting(batches()):
            with pace.computing():
                clock.wait(compute)
    return pace.limit(10)


def test_a_device_that_waits_is_reported_with_both_speeds() -> None:
    """Batches of 10 images take 25 ms, of which the device computes for 5 ms."""
    expected = "the data limits the speed: decoding 400 examples/s with 2 workers; the device could do 2,000"
    assert run(wait=0.02, compute=0.005) == expected


@pytest.mark.parametrize("wait", [0.0, 0.001])
def test_a_device_that_computes_most_of_the_time_is_not(wait: float) -> None:
    assert run(wait=wait, compute=0.01) == ""


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_too_few_steps_say_nothing(steps: int) -> None:
    assert run(wait=0.01, compute=0.001, steps=steps) == ""


def test_data_on_the_device_is_not_timed() -> None:
    assert run(wait=0.01, compute=0.001, workers=None) == ""


class Slow(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.004)
        return torch.zeros(3), index % 2


@pytest.mark.parametrize("source", [Slow(), DataLoader(Slow(), 4)], ids=["data set", "loader"])
def test_the_log_of_a_training_states_the_limit(source: object) -> None:
    trained = fit(nn.Linear(3, 2), source, Recipe(epochs=1, batch_size=4, lr=0.1), device="cpu")
    assert "with no workers; the device could do" in trained.last.limit
