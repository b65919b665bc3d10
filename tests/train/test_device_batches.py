"""Images on the device: batches compared with crops that are made one by one."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from aacp.train.device_batches import DeviceBatches
from train.small_data import small_images

CPU = torch.device("cpu")


def test_a_batch_is_what_cropping_and_flipping_one_by_one_gives() -> None:
    images = small_images(20, padding=2, flip=True)
    source = DeviceBatches(images, 8, 3, CPU)
    plan = source.plan(4)[:8]
    inputs, labels = source.batch(plan)
    for row, (position, top, left, flipped) in enumerate(plan.tolist()):
        padded = F.pad(images.pixels[position], (2, 2, 2, 2))
        crop = padded[:, top : top + 6, left : left + 6]
        expected = images.normalised(crop.flip(2) if flipped else crop)
        torch.testing.assert_close(inputs[row], expected)
        assert labels[row] == images.labels[position]


def test_an_epoch_sees_no_image_twice_and_every_crop_occurs() -> None:
    source = DeviceBatches(small_images(100, padding=1, flip=True), 8, 0, CPU)
    plan = source.plan(0)
    assert sorted(plan[:, 0].tolist()) == list(range(100))
    assert {tuple(row) for row in plan[:, 1:3].tolist()} == {(top, left) for top in range(3) for left in range(3)}
    assert 30 < int(plan[:, 3].sum()) < 70


def test_without_padding_and_flips_images_stay_as_they_are() -> None:
    images = small_images(16, padding=0)
    source = DeviceBatches(images, 16, 0, CPU)
    ((inputs, labels),) = source.epoch(0)
    order = source.plan(0)[:, 0]
    torch.testing.assert_close(inputs, images.normalised(images.pixels[order]))
    assert torch.equal(labels, images.labels[order])


def test_epochs_differ_and_can_be_had_again() -> None:
    source = DeviceBatches(small_images(50), 8, 5, CPU)
    assert not torch.equal(source.plan(0), source.plan(1))
    assert torch.equal(source.plan(1), DeviceBatches(small_images(50), 8, 5, CPU).plan(1))
    assert not torch.equal(source.plan(1), DeviceBatches(small_images(50), 8, 6, CPU).plan(1))


def test_shares_of_processes_put_together_are_the_batch_of_one() -> None:
    whole = list(DeviceBatches(small_images(50), 12, 0, CPU).epoch(2))
    parts = [list(DeviceBatches(small_images(50), 12, 0, CPU, rank, 3).epoch(2)) for rank in range(3)]
    for step, (inputs, labels) in enumerate(whole):
        assert torch.equal(torch.cat([part[step][0] for part in parts]), inputs)
        assert torch.equal(torch.cat([part[step][1] for part in parts]), labels)


def test_identity_differs_for_other_images_labels_and_settings() -> None:
    known = DeviceBatches(small_images(50), 8, 0, CPU).identity()
    assert DeviceBatches(small_images(50), 8, 1, CPU).identity() == known
    for other in (small_images(50, seed=1), small_images(50, padding=0), small_images(49)):
        assert DeviceBatches(other, 8, 0, CPU).identity() != known
