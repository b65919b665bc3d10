"""Batches: examples for one device that are iterated over many times, in the same order.

What fits is read once and kept: on the device if there is room, otherwise in the host's memory. Images are kept as
bytes and normalised on the device when they are used, unless they are few. What does not fit is read in every pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from aacp.data.examples import batch_size_of, bytes_of, inputs_of, moved, narrowed, shuffled_batches, split_evenly
from aacp.data.memory import BATCH_SIZE, MAX_PREPARED, fitting_batch_size, room_for_data
from aacp.data.streams import Prepare, Stream, limited
from aacp.errors import InvalidData

CPU = torch.device("cpu")


class Batches:
    """Examples in batches for one device.

    Args:
        batches: a list of batches that is kept, or a Stream.
        device: where the network reads them.
        prepare: what makes inputs of the bytes of a batch on the device; None if they are inputs.
    """

    def __init__(
        self, batches: list[Any] | Stream, device: torch.device | str = "cpu", prepare: Prepare | None = None
    ) -> None:
        if isinstance(batches, list) and not sum(map(batch_size_of, batches)):
            raise InvalidData("The data has no examples. Give at least one batch.")
        self.device = torch.device(device)
        self._batches = batches
        self._prepare = prepare

    @classmethod
    def of(
        cls,
        source: Any,
        *,
        batch_size: int | None = None,
        images: int | None = None,
        device: torch.device | str = "cpu",
        keep: bool = True,
    ) -> Batches:
        """Batches of data: read once and kept if they fit, otherwise read in every pass.

        Args:
            source: a loader, a data set, tensors (inputs, targets), inputs alone, or Batches.
            batch_size: examples per batch; None chooses by the device and the size of an example. If the examples
                differ in shape, the batches of the loader are kept.
            images: use only the first `images` examples.
            device: where the network will read them.
            keep: False reads the data in every pass even if it fits, for data that is read once.
        """
        for name, value in (("batch_size", batch_size), ("images", images)):
            if value is not None and value < 1:
                raise InvalidData(f"{name} is {value}, but at least one is needed. Give a positive number.")
        place = torch.device(device)
        if isinstance(source, Batches):
            return source._rebatched(batch_size or source.fitting_size(), images, place)
        stream = Stream(source, batch_size, images, place)
        if stream.is_repeatable and not keep:
            return cls(stream, place, stream.prepare)
        return cls._kept(stream, place)

    @classmethod
    def _kept(cls, stream: Stream, device: torch.device) -> Batches:
        """The batches of a stream, read now if they fit."""
        kept = _read(stream, device)
        if kept is None:
            return cls(stream, device, stream.prepare)
        return cls(split_evenly(kept, stream.size_for(kept[0])), device, stream.prepare)._prepared_if_small()

    def _prepared_if_small(self) -> Batches:
        if self._prepare is None or self.input_bytes > MAX_PREPARED:
            return self
        return Batches(list(self), self.device)

    def _rebatched(self, batch_size: int, images: int | None, device: torch.device) -> Batches:
        """The same examples in batches of another size."""
        if isinstance(self._batches, Stream):
            return Batches(self._batches.of_size(batch_size, images), device, self._prepare)
        taken = list(limited(self._batches, images))
        if device != self.device:
            taken = _in_one_place(taken, device)
        return Batches(split_evenly(taken, batch_size), device, self._prepare)

    def __iter__(self) -> Iterator[Any]:
        in_background = self.is_streamed and self.are_bytes and self.device.type == "cuda"
        for batch in self._batches:
            here = moved(batch, self.device, in_background)  # nothing is copied if it is there already
            yield here if self._prepare is None else self._prepare(here)

    def __len__(self) -> int:
        return self._batches.count_batches() if isinstance(self._batches, Stream) else len(self._batches)

    @property
    def is_streamed(self) -> bool:
        """Whether every pass reads the data again."""
        return isinstance(self._batches, Stream)

    @property
    def are_bytes(self) -> bool:
        """Whether the examples are kept or read as bytes."""
        return self._prepare is not None

    @property
    def images(self) -> int:
        """The number of examples in all batches."""
        if isinstance(self._batches, Stream):
            return self._batches.count_examples()
        return sum(map(batch_size_of, self._batches))

    @property
    def input_bytes(self) -> int:
        """The memory that the inputs of all batches would take at once; that of a stream is unknown and very large."""
        if isinstance(self._batches, Stream):
            return 1 << 62
        if self._prepare is None:
            return bytes_of([inputs_of(batch) for batch in self._batches])
        return 4 * bytes_of([inputs_of(batch) for batch in self._batches])  # a byte becomes a number of four bytes

    def fitting_size(self, most: int | None = None) -> int:
        """The number of examples that a network should read at once: at most `most`, fewer if they are large."""
        most = most or BATCH_SIZE.get(self.device.type, BATCH_SIZE["cpu"])
        return fitting_batch_size(most, bytes_of(self.example()), self.device)

    def example(self) -> Any:
        """The inputs of the first example, as a batch of one."""
        inputs = next(self._rebatched(1, 1, self.device).inputs())
        return narrowed(inputs, 0, 1, batch_size_of((inputs, None)))

    def inputs(self) -> Iterator[Any]:
        """The inputs of each batch."""
        return map(inputs_of, self)

    def shuffled(self, order: torch.Generator) -> Iterator[Any]:
        """The inputs in batches of the same size and a random order; data that are read in every pass keep theirs."""
        if isinstance(self._batches, Stream):
            yield from self.inputs()
            return
        for batch in shuffled_batches([inputs_of(batch) for batch in self._batches], order):
            here = moved(batch, self.device)
            yield here if self._prepare is None else inputs_of(self._prepare((here, None)))


def _read(stream: Stream, device: torch.device) -> list[Any] | None:
    """All batches, on the device or else in the host's memory; None if they do not fit and can be read again."""
    rooms = {place: room_for_data(place) for place in dict.fromkeys((device, CPU))}
    expected = stream.expected_bytes
    kept: list[Any] = []
    size = 0
    place = device
    for batch in () if _is_too_much(expected, rooms, stream) else stream.read():
        size += bytes_of(batch)
        expected = expected or stream.bytes_like(batch) or size
        if place != CPU and max(expected, size) > rooms[place]:
            kept = [moved(earlier, CPU) for earlier in kept]
            place = CPU
        if max(expected, size) > rooms[place] and (stream.is_repeatable or size > rooms[place]):
            kept = []
            break
        kept.append(moved(batch, place))
    if kept or stream.is_repeatable:
        return kept or None
    raise InvalidData(
        f"The data takes more than {rooms[CPU] / 2**30:.1f} GiB, and an iterator cannot be read twice. Give a loader "
        "or a data set, or fewer images: Batches.of(iterator, images=4096) reads the first 4,096."
    )


def _is_too_much(expected: int | None, rooms: dict[torch.device, int], stream: Stream) -> bool:
    return expected is not None and expected > max(rooms.values()) and stream.is_repeatable


def _in_one_place(batches: list[Any], device: torch.device) -> list[Any]:
    """Batches for another device: moved there if they fit, otherwise in the host's memory."""
    place = device if bytes_of(batches) <= room_for_data(device) else CPU
    return [moved(batch, place) for batch in batches]
