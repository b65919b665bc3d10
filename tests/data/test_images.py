"""Images: their content, their normalisation, and the rejection of invalid data."""

from __future__ import annotations

import pytest
import torch

from aacp import Images, InvalidData

PIXELS = torch.randint(0, 256, (6, 3, 4, 5), dtype=torch.uint8)
LABELS = torch.arange(6)
SCALE = ((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))


def test_an_item_is_normalised_channel_by_channel() -> None:
    image, label = Images(PIXELS, LABELS, *SCALE)[2]
    assert label == 2
    for channel, (mean, std) in enumerate(zip(*SCALE, strict=True)):
        expected = (PIXELS[2, channel].numpy() / 255 - mean) / std
        assert abs(image[channel].numpy() - expected).max() < 1e-5


def test_a_subset_keeps_order_and_settings() -> None:
    part = Images(PIXELS, LABELS, *SCALE, padding=4, flip=True).subset([5, 1])
    assert part.labels.tolist() == [5, 1]
    assert torch.equal(part.pixels, PIXELS[[5, 1]])
    assert (part.padding, part.flip) == (4, True)


@pytest.mark.parametrize(
    ("pixels", "labels", "mean", "words"),
    [
        (PIXELS.float(), LABELS, (0.5, 0.5, 0.5), "torch.float32 of shape"),
        (PIXELS[0], LABELS, (0.5, 0.5, 0.5), r"\(3, 4, 5\)"),
        (PIXELS, LABELS[:4], (0.5, 0.5, 0.5), "6 images"),
        (PIXELS, LABELS.float(), (0.5, 0.5, 0.5), "int64 label"),
        (PIXELS, LABELS, (0.5,), "3 channels"),
    ],
)
def test_what_is_no_set_of_images_is_refused(pixels, labels, mean, words) -> None:
    with pytest.raises(InvalidData, match=words):
        Images(pixels, labels, mean, (0.5, 0.5, 0.5))
