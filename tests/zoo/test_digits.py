import hashlib

import numpy as np
import torch

from aacp import load_data
from aacp.zoo.digits import FILE, digits


def test_the_digits_are_those_of_the_repository() -> None:
    # Images per digit according to the documentation, and the first image, which is a zero.
    with np.load(FILE, allow_pickle=False) as file:
        pixels, labels = file["pixels"], file["labels"]
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert pixels[0, :3].tolist() == [
        [0, 0, 5, 13, 9, 1, 0, 0],
        [0, 0, 13, 15, 10, 15, 5, 0],
        [0, 3, 15, 2, 0, 11, 8, 0],
    ]
    assert pixels.max() == 16
    assert FILE.stat().st_size < 60_000
    assert "CC BY 4.0" in FILE.with_name("DIGITS.md").read_text()


def test_the_last_360_images_are_for_testing_whatever_the_seed() -> None:
    with np.load(FILE, allow_pickle=False) as file:
        labels = file["labels"]
    for seed in (0, 7):
        data = digits(seed=seed)
        assert data.test.labels.tolist() == labels[-360:].tolist()  # type: ignore[attr-defined]


def test_no_image_is_in_two_parts() -> None:
    data = load_data("digits", holdout=0.2, seed=5)
    parts = [data.train, data.holdout, data.test]
    assert [len(part) for part in parts] == [1150, 287, 360]  # type: ignore[arg-type]
    seen = [{hashlib.sha256(p.numpy().tobytes()).digest() for p in part.pixels} for part in parts]  # type: ignore[union-attr]
    assert not seen[0] & seen[1] | seen[0] & seen[2] | seen[1] & seen[2]


def test_training_images_are_normalised_by_their_own_statistics() -> None:
    train = digits(holdout=0).train
    values = torch.stack([train[i][0] for i in range(len(train))])  # type: ignore[arg-type, index]
    assert values.shape == (1437, 1, 8, 8)
    assert abs(values.mean()) < 1e-3
    assert abs(values.std() - 1) < 1e-3
