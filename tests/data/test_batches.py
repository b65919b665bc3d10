"""Batches hold the same examples in the same order for every kind of source."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from aacp import Batches, Images, InvalidData
from aacp.data import batches as module
from aacp.data import memory, streams
from aacp.data.examples import call

INPUTS, LABELS = torch.arange(7 * 3.0).reshape(7, 3), torch.arange(7)


def joined(batches: Batches) -> tuple[torch.Tensor, torch.Tensor]:
    inputs, targets = zip(*batches, strict=True)
    return torch.cat(inputs), torch.cat(targets)


@pytest.mark.parametrize(
    "source",
    [
        (INPUTS, LABELS),
        TensorDataset(INPUTS, LABELS),
        DataLoader(TensorDataset(INPUTS, LABELS), batch_size=2),
        [(INPUTS[:4], LABELS[:4]), (INPUTS[4:], LABELS[4:])],
        Batches.of((INPUTS, LABELS), batch_size=5),
    ],
    ids=["tensors", "dataset", "loader", "list", "batches"],
)
def test_every_kind_of_source_gives_the_same_batches(source) -> None:
    batches = Batches.of(source, batch_size=3)
    assert [len(targets) for _, targets in batches] == [3, 3, 1]
    assert batches.images == 7
    for _ in range(2):  # again and again
        inputs, targets = joined(batches)
        assert torch.equal(inputs, INPUTS)
        assert torch.equal(targets, LABELS)


def test_a_generator_and_a_shuffling_loader_are_read_once() -> None:
    one_shot = Batches.of((pair for pair in [(INPUTS, LABELS)]), batch_size=2)
    assert torch.equal(joined(one_shot)[0], joined(one_shot)[0])
    shuffled = Batches.of(DataLoader(TensorDataset(INPUTS, LABELS), batch_size=2, shuffle=True))
    assert torch.equal(joined(shuffled)[1], joined(shuffled)[1])


@pytest.mark.parametrize("keep", [True, False])
def test_a_loader_may_write_every_batch_into_the_same_memory(keep: bool) -> None:
    class Loader:
        def __len__(self) -> int:
            return 7

        def __iter__(self):
            inputs, labels = torch.empty(1, 3), torch.empty(1, dtype=torch.int64)
            for place in range(7):
                yield inputs.copy_(INPUTS[place]), labels.fill_(place)

    inputs, targets = joined(Batches.of(Loader(), batch_size=3, keep=keep))
    assert torch.equal(inputs, INPUTS)
    assert torch.equal(targets, LABELS)


def test_images_are_normalised_on_the_way() -> None:
    images = Images(torch.randint(0, 256, (5, 1, 2, 2), dtype=torch.uint8), torch.arange(5), (0.5,), (0.25,))
    inputs, targets = joined(Batches.of(images, batch_size=2))
    assert torch.allclose(inputs, (images.pixels / 255 - 0.5) / 0.25)
    assert targets.tolist() == [0, 1, 2, 3, 4]


def test_no_more_images_than_requested_are_read() -> None:
    read = []

    def loader():
        for start in range(0, 7, 2):
            read.append(start)
            yield INPUTS[start : start + 2], LABELS[start : start + 2]

    assert Batches.of(loader(), images=3).images == 3
    assert read == [0, 2]


def test_inputs_alone_and_several_inputs_are_batches_too() -> None:
    assert torch.equal(next(Batches.of(INPUTS).inputs()), INPUTS)
    two = Batches.of(((INPUTS, INPUTS + 1), LABELS), batch_size=4)
    assert [len(inputs) for inputs in two.inputs()] == [2, 2]
    named = Batches.of([{"x": INPUTS}])
    assert call(lambda x: x.sum(), next(named.inputs())) == INPUTS.sum()


def test_several_inputs_that_a_loader_made_a_list_of_are_a_tuple() -> None:
    class Two(Dataset):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> object:
            return (torch.full((2,), float(index)), torch.ones(2)), index % 2

    (inputs, *_) = Batches.of(DataLoader(Two(), 3)).inputs()
    assert isinstance(inputs, tuple)
    assert [part.tolist() for part in inputs] == [[[float(i)] * 2 for i in range(6)], [[1.0] * 2] * 6]


def test_batches_of_several_shapes_stay_as_they_are() -> None:
    batches = Batches.of([torch.zeros(2, 3, 8, 8), torch.zeros(4, 3, 16, 16)], batch_size=1)
    assert [len(inputs) for inputs in batches.inputs()] == [2, 4]
    assert batches.images == 6


BOXES = [torch.full((count, 4), float(place)) for place, count in enumerate([1, 0, 2, 3])]
FOUR, NAMES = torch.arange(4 * 3.0).reshape(4, 3), ["a", "b", "c", "d"]


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize(
    ("targets", "of_three"),
    [
        (BOXES, BOXES[:3]),
        (tuple(NAMES), tuple(NAMES[:3])),
        ([[], [7], [], []], [[], [7], []]),
        ({"name": NAMES, "scale": 2.0}, {"name": NAMES[:3], "scale": 2.0}),
        ([FOUR, {"name": NAMES}, [FOUR], FOUR], [FOUR[:3], {"name": NAMES[:3]}, [FOUR[:3]], FOUR[:3]]),
    ],
    ids=["one tensor each", "one text each", "one list each", "one list in a dictionary", "as many tensors of all"],
)
def test_targets_in_lists_are_cut_with_their_inputs(keep: bool, targets, of_three) -> None:
    ((inputs, found),) = Batches.of([(FOUR, targets)], images=3, keep=keep)
    assert torch.equal(inputs, FOUR[:3])
    assert str(found) == str(of_three)


def test_dictionaries_of_single_objects_are_neither_cut_nor_joined() -> None:
    """Each image has as many objects as there are images in a batch, so that their tensors look like those of all."""
    for count in (1, 2):
        objects = [{"boxes": torch.full((count, 4), float(place))} for place in range(4)]
        loader = [(FOUR[start : start + count], objects[start : start + count]) for start in range(0, 4, count)]
        batches = Batches.of(loader, images=3, batch_size=4)
        assert [len(inputs) for inputs, _ in batches] == [len(targets) for _, targets in batches]
        found = [target["boxes"] for _, targets in batches for target in targets]
        assert torch.equal(torch.stack(found), torch.stack([target["boxes"] for target in objects[:3]]))


def test_a_batch_whose_targets_cannot_be_cut_stays_whole() -> None:
    """As of YOLO: one row for each object of all images, with the number of its image."""
    rows = torch.tensor([[0.0, 5], [0, 6], [3, 7]])
    batches = Batches.of([(FOUR, rows), (FOUR, rows)], images=5)
    assert [(len(inputs), len(targets)) for inputs, targets in batches] == [(4, 3), (4, 3)]
    assert len(batches.example()) == 1
    assert batches.images == 8


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ([], "no examples"),
        (TensorDataset(INPUTS[:0], LABELS[:0]), "no examples"),
        ((INPUTS[:0], LABELS[:0]), "no examples"),
        (None, "NoneType is not data"),
        (["a", "b"], "without a tensor of inputs"),
        ([INPUTS.numpy()], "torch.from_numpy"),
    ],
)
def test_what_is_no_data_is_rejected(source, words) -> None:
    with pytest.raises(InvalidData, match=words):
        Batches.of(source)


def room(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(module, "room_for_data", lambda device: size)


class Counted(TensorDataset):
    """A data set that counts its reads."""

    reads = 0

    def __getitem__(self, index: int) -> object:
        Counted.reads += 1
        return super().__getitem__(index)


@pytest.mark.parametrize("kind", ["data set", "loader", "list", "tensors", "no length"])
def test_what_does_not_fit_is_streamed_and_gives_the_same_batches_in_every_pass(kind: str, monkeypatch) -> None:
    class Endless:
        def __iter__(self):
            return iter(DataLoader(TensorDataset(INPUTS, LABELS), 2))

    sources = {
        "data set": TensorDataset(INPUTS, LABELS),
        "loader": DataLoader(TensorDataset(INPUTS, LABELS), 2),
        "list": [(INPUTS[:4], LABELS[:4]), (INPUTS[4:], LABELS[4:])],
        "tensors": (INPUTS, LABELS),
        "no length": Endless(),
    }
    room(monkeypatch, 50)  # bytes; an example takes 20
    batches = Batches.of(sources[kind], batch_size=3)
    assert batches.is_streamed
    assert [len(targets) for _, targets in batches] == [3, 3, 1]
    assert (len(batches), batches.images) == (3, 7)
    for _ in range(2):
        assert torch.equal(joined(batches)[0], INPUTS)
        assert torch.equal(joined(batches)[1], LABELS)
    again = Batches.of(batches, batch_size=2, images=5)
    assert [targets.tolist() for _, targets in again] == [[0, 1], [2, 3], [4]]


def test_no_more_than_one_batch_is_read_to_find_out_that_data_does_not_fit(monkeypatch) -> None:
    room(monkeypatch, 50)
    Counted.reads = 0
    Batches.of(DataLoader(Counted(INPUTS, LABELS), 2), batch_size=3)
    assert Counted.reads == 2
    Batches.of(Counted(INPUTS, LABELS), batch_size=3)
    assert Counted.reads == 3  # the first example


def test_data_that_is_read_once_is_not_kept() -> None:
    Counted.reads = 0
    batches = Batches.of(Counted(INPUTS, LABELS), batch_size=3, keep=False)
    assert Counted.reads == 0
    assert torch.equal(joined(batches)[0], INPUTS)
    assert Counted.reads == 7


def test_an_iterator_that_does_not_fit_is_rejected(monkeypatch) -> None:
    room(monkeypatch, 50)
    with pytest.raises(InvalidData, match=r"an iterator cannot be read twice\. Give a loader"):
        Batches.of(iter([(INPUTS[:2], LABELS[:2])] * 3))
    assert Batches.of(iter([(INPUTS[:2], LABELS[:2])])).images == 2


def test_a_shuffling_stream_has_one_order_and_leaves_other_random_numbers_alone(monkeypatch) -> None:
    room(monkeypatch, 50)
    for generator in (None, torch.Generator()):
        loader = DataLoader(TensorDataset(INPUTS, LABELS), 2, shuffle=True, generator=generator)
        batches = Batches.of(loader, batch_size=3)
        torch.manual_seed(5)
        expected = torch.rand(3)
        torch.manual_seed(5)
        orders, drawn = [], []
        for _ in range(2):
            orders.append([targets.tolist() for _, targets in batches])
        torch.manual_seed(5)
        for _ in batches:
            drawn.append(torch.rand(()))  # a network with dropout draws between two batches
        assert orders[0] == orders[1] != [[0, 1, 2], [3, 4, 5], [6]]
        assert torch.equal(torch.stack(drawn), expected)


def test_images_that_are_not_few_are_kept_as_bytes(monkeypatch) -> None:
    images = Images(torch.randint(0, 256, (5, 1, 2, 2), dtype=torch.uint8), torch.arange(5), (0.5,), (0.25,))
    assert not Batches.of(images, batch_size=2).are_bytes
    monkeypatch.setattr(module, "MAX_PREPARED", 79)  # bytes of inputs; these take 80
    batches = Batches.of(images, batch_size=2)
    assert batches.are_bytes
    assert not batches.is_streamed
    assert batches.input_bytes == 80
    inputs, targets = joined(batches)
    assert torch.allclose(inputs, (images.pixels / 255 - 0.5) / 0.25)
    assert targets.tolist() == [0, 1, 2, 3, 4]
    assert [len(labels) for _, labels in Batches.of(batches, batch_size=3)] == [3, 2]


@pytest.mark.parametrize("keep", [True, False])
def test_an_empty_source_is_rejected_whether_kept_or_not(keep: bool) -> None:
    with pytest.raises(InvalidData, match="no examples"):
        list(Batches.of([], keep=keep))


def test_batches_of_batches_share_their_memory_where_nothing_changes() -> None:
    batches = Batches.of((INPUTS, LABELS), batch_size=3)
    again = Batches.of(batches, batch_size=3)
    assert [inputs.data_ptr() for inputs in again.inputs()] == [inputs.data_ptr() for inputs in batches.inputs()]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; run on the GPU machine")
def test_what_goes_to_a_gpu_and_is_split_anew_arrives_whole() -> None:
    inputs = torch.randn(4096, 3, 32, 32)
    there = Batches.of((inputs, torch.arange(4096)), batch_size=100, device="cuda")
    for device in ("cuda", "cpu"):
        again = Batches.of(there, batch_size=4096, device=device)
        assert torch.equal(next(again.inputs()).cpu(), inputs)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("kind", ["data set", "loader", "tensors", "images"])
def test_large_examples_come_in_smaller_batches_unless_a_size_is_given(kind: str, keep: bool, monkeypatch) -> None:
    sources = {
        "data set": TensorDataset(INPUTS, LABELS),
        "loader": DataLoader(TensorDataset(INPUTS, LABELS), 5),
        "tensors": (INPUTS, LABELS),
        "images": Images(torch.zeros(7, 3, 1, 1, dtype=torch.uint8), LABELS, (0.0,) * 3, (1.0,) * 3),
    }
    monkeypatch.setitem(memory.MAX_BATCH_BYTES, "cpu", 25)  # inputs take 12 bytes each
    assert [len(targets) for _, targets in Batches.of(sources[kind], keep=keep)] == [2, 2, 2, 1]
    assert len(Batches.of(sources[kind], keep=keep)) == 4
    assert [len(targets) for _, targets in Batches.of(sources[kind], batch_size=6, keep=keep)] == [6, 1]
    monkeypatch.undo()
    assert [len(targets) for _, targets in Batches.of(sources[kind], keep=keep)] == [7]


@pytest.mark.parametrize(
    ("pixels", "widest"),
    [(32, 64 * 32**2), (224, 96 * 112**2), (224, 64 * 112**2)],
    ids=["VGG16 for CIFAR-10", "MobileNetV2", "ResNet50"],
)
def test_activations_on_a_cpu_take_too_little_for_the_system_to_map_them_anew(pixels: int, widest: int) -> None:
    batches = Batches.of(torch.zeros(256, 3, pixels, pixels, dtype=torch.float32))
    images = max(map(len, batches.inputs()))
    assert 8 << 20 < 4 * images * widest < 32 << 20  # not far below either: small batches keep few cores busy


def test_a_shuffled_pass_has_every_example_once_in_an_order_of_its_own() -> None:
    batches = Batches.of((torch.arange(10.0).reshape(10, 1), torch.arange(10)), batch_size=4)
    first, again, other = (
        [inputs.flatten().tolist() for inputs in batches.shuffled(torch.Generator().manual_seed(seed))]
        for seed in (0, 0, 1)
    )
    assert [len(batch) for batch in first] == [4, 4, 2]
    assert sorted(value for batch in first for value in batch) == list(range(10))
    assert first == again
    assert first != other
    assert first != [inputs.flatten().tolist() for inputs in batches.inputs()]


@pytest.mark.parametrize("there", ["cpu", "meta"])  # the device "meta" stands for a GPU
def test_large_data_come_from_workers_unless_they_are_on_a_gpu(there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_PREPARED", 0)
    data = TensorDataset(torch.zeros(640, 4, device=there), torch.zeros(640, dtype=torch.long, device=there))
    loader = streams.Stream(data, None, None, torch.device("cuda"))._loader()
    assert loader.pin_memory == (loader.num_workers > 0) == (there == "cpu")


def test_a_shuffled_pass_normalises_bytes_and_keeps_streams_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = torch.arange(12, dtype=torch.uint8).reshape(12, 1, 1, 1)
    images = Images(pixels, torch.zeros(12, dtype=torch.int64), (0.0,), (1 / 255,))
    monkeypatch.setattr("aacp.data.batches.MAX_PREPARED", 0)
    kept = Batches.of(images, batch_size=5)
    assert kept.are_bytes
    drawn = torch.cat(list(kept.shuffled(torch.Generator().manual_seed(0)))).flatten()
    assert drawn.sort().values.tolist() == pytest.approx(list(range(12)))
    streamed = Batches.of(images, batch_size=5, keep=False)
    order = torch.cat(list(streamed.shuffled(torch.Generator().manual_seed(0)))).flatten()
    assert order.tolist() == pytest.approx(list(range(12)))
