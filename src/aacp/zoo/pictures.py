"""Pictures: files decoded by Pillow and cropped to one size, as bytes.

Pillow comes with torchvision and decodes with libjpeg-turbo. Cutting and resizing are one operation on bytes, and a
JPEG file that is much larger than needed is decoded at 1/2, 1/4 or 1/8 of its size. A file may come from anybody: only
the decoders of two formats are used, and the size of a picture is checked before it is decoded.
"""

from __future__ import annotations

import math
import random
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aacp.disk.reading import read_bytes
from aacp.errors import CorruptImage
from aacp.zoo.imports import require_package

FORMATS = ("JPEG", "PNG")  # decoders by Pillow's names; those of other formats may start programs such as Ghostscript
MAX_FILE_BYTES = 1 << 28  # 256 MiB: of the file of one picture
MAX_PIXELS = 89_478_485  # of one picture, decoded to 256 MiB; Pillow warns of larger ones
REMEDY = "Replace or delete it, or choose on_corrupt='skip'."
AREAS = (0.08, 1.0)  # share of the picture's area that a random crop has, at least and at most
RATIOS = (3 / 4, 4 / 3)  # width over height of a random crop, at least and at most
ATTEMPTS = 10  # crops that are drawn before the largest centred one is used
MARGIN = 2  # a JPEG file is decoded at no less than this multiple of the size that it is resized to

Box = tuple[float, float, float, float]  # left, top, right, bottom


def centred_crop(file: Path, size: int) -> torch.Tensor:
    """The middle of a picture whose shorter side is resized to `size` x 8 / 7 (256 for 224): (size, size, 3) bytes."""
    return _cropped(file, size, lambda width, height: (centred_box(width, height, size), False))


def random_crop(file: Path, size: int, seed: int) -> torch.Tensor:
    """A random part of a picture resized to `size`, flipped with probability 1/2, as (size, size, 3) bytes."""
    drawn = random.Random(seed)
    return _cropped(file, size, lambda width, height: (random_box(width, height, drawn), drawn.random() < 0.5))


def centred_box(width: int, height: int, size: int) -> Box:
    """The part of a picture that its centred crop shows."""
    short = round(size * 8 / 7)
    # The whole sizes that the sides would be resized to: torchvision's Resize and CenterCrop round alike.
    resized = [
        short if side == min(width, height) else int(short * side / min(width, height)) for side in (width, height)
    ]
    left, top = (round((side - size) / 2) for side in resized)
    across, down = width / resized[0], height / resized[1]
    return left * across, top * down, (left + size) * across, (top + size) * down


def random_box(width: int, height: int, drawn: random.Random) -> Box:
    """A random part of a picture: its area and the logarithm of its ratio of sides are uniform."""
    for _ in range(ATTEMPTS):
        area = width * height * (AREAS[0] + (AREAS[1] - AREAS[0]) * drawn.random())
        low, high = map(math.log, RATIOS)
        ratio = math.exp(low + (high - low) * drawn.random())
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            left = int(drawn.random() * (width - across + 1))
            top = int(drawn.random() * (height - down + 1))
            return left, top, left + across, top + down
    across = min(width, round(height * RATIOS[1]))
    down = min(height, round(width / RATIOS[0]))
    left, top = (width - across) // 2, (height - down) // 2
    return left, top, left + across, top + down


def _cropped(file: Path, size: int, choose: Any) -> torch.Tensor:
    """A part of a picture, chosen by a function of its width and height that returns a box and whether to flip it."""
    images = require_package("PIL.Image", "pip install 'aacp[vision]'")
    try:
        content = BytesIO(read_bytes(file, REMEDY, MAX_FILE_BYTES))
        with images.open(content, formats=FORMATS) as picture:
            _require_fitting(picture)
            box, is_flipped = choose(*picture.size)
            box = _reduced(picture, box, size)
            colours = picture if picture.mode == "RGB" else picture.convert("RGB")
            part = colours.resize((size, size), images.Resampling.BILINEAR, box)
    except Exception as error:  # the decoder of each format raises its own exceptions
        raise CorruptImage(f"{file} cannot be read as an image ({_reason(error)}). {REMEDY}") from error
    pixels = np.array(part)
    return torch.from_numpy(np.ascontiguousarray(pixels[:, ::-1]) if is_flipped else pixels)


def _require_fitting(picture: Any) -> None:
    """Reject a picture that would take too much memory once it is decoded."""
    width, height = picture.size
    if width * height > MAX_PIXELS:
        raise ValueError(f"it has {width:,} x {height:,} pixels, but at most {MAX_PIXELS:,} are decoded")


def _reason(error: Exception) -> str:
    """Why a picture was rejected, for a message that names the file and the remedy itself."""
    if type(error).__name__ == "UnidentifiedImageError":  # Pillow's own message names an object in memory
        return f"it is not a {' or '.join(FORMATS)} file"
    return str(error).removesuffix(REMEDY).strip().rstrip(".") or type(error).__name__


def _reduced(picture: Any, box: Box, size: int) -> Box:
    """Let a JPEG decoder reduce a picture that is much larger than needed; returns the box in the reduced picture."""
    width, height = picture.size
    factor = int(min(box[2] - box[0], box[3] - box[1]) / (MARGIN * size))
    if factor < 2 or picture.format != "JPEG":
        return box
    picture.draft("RGB", (width // factor, height // factor))
    across, down = picture.size[0] / width, picture.size[1] / height
    return box[0] * across, box[1] * down, box[2] * across, box[3] * down
