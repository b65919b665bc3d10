"""Columns times matrix is what torch's own operator computes, for every geometry."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aacp.graph.masking import MaskedRun
from aacp.graph.units import UnitProgram
from aacp.graph.unverified import trace_unverified
from aacp.repairs.products import Product, products_of, sample_rows
from sampling import sampled

GEOMETRIES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "conv1d": (lambda: nn.Conv1d(6, 8, 5, stride=2, padding=3, dilation=2), (3, 6, 23)),
    "conv2d": (lambda: nn.Conv2d(6, 8, (3, 2), stride=(1, 3), padding=(2, 1)), (3, 6, 9, 10)),
    "conv3d": (lambda: nn.Conv3d(6, 8, (1, 2, 3), stride=2, padding=1, bias=False), (2, 6, 5, 6, 7)),
    "same": (lambda: nn.Conv2d(6, 8, (4, 3), padding="same", dilation=(1, 2)), (3, 6, 9, 10)),
    "valid": (lambda: nn.Conv2d(6, 8, 3, padding="valid"), (3, 6, 9, 10)),
    "circular": (lambda: nn.Conv2d(6, 8, 3, padding=1, padding_mode="circular"), (3, 6, 9, 10)),
    "reflect": (lambda: nn.Conv2d(6, 8, 3, padding=1, padding_mode="reflect"), (3, 6, 9, 10)),
    "grouped": (lambda: nn.Conv2d(6, 8, 3, stride=2, groups=2), (3, 6, 9, 10)),
    "depthwise": (lambda: nn.Conv2d(6, 6, 5, padding=2, groups=6, bias=False), (3, 6, 9, 10)),
    "multiplier": (lambda: nn.Conv2d(6, 12, 3, groups=6), (3, 6, 9, 10)),
    "transposed1d": (lambda: nn.ConvTranspose1d(6, 8, 4, stride=3, padding=1, output_padding=2), (3, 6, 7)),
    "transposed2d": (lambda: nn.ConvTranspose2d(6, 8, 3, stride=2, dilation=2, padding=1), (3, 6, 5, 6)),
    "transposed3d": (lambda: nn.ConvTranspose3d(6, 8, 2, stride=2), (2, 6, 3, 4, 2)),
    "grouped_transposed": (
        lambda: nn.ConvTranspose2d(6, 8, (4, 3), stride=(2, 1), padding=1, output_padding=(1, 0), groups=2),
        (3, 6, 5, 6),
    ),
    "linear": (lambda: nn.Linear(6, 8), (5, 6)),
    "linear_3": (lambda: nn.Linear(6, 8, bias=False), (3, 7, 6)),
    "linear_4": (lambda: nn.Linear(6, 8), (3, 4, 5, 6)),
}


class WithStem(nn.Module):
    """A layer on inputs that a convolution makes, so that the network can be traced."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.stem = nn.Conv1d(1, 1, 1)
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.stem(x.reshape(1, 1, -1)).reshape(x.shape))


def labelled(model: nn.Module, x: Tensor) -> UnitProgram:
    """The program of a network, which need not have channels that can be removed."""
    _, assembled, arguments = trace_unverified(model, x, dtype=x.dtype)
    return UnitProgram.of(model, assembled.graph, arguments)


def product_named(products: list[Product], weight: str) -> Product:
    return next(product for product in products if product.weight == weight)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("name", sampled(GEOMETRIES, 4, pytest.mark.slow))
def test_columns_times_matrix_are_the_outputs(name: str) -> None:
    build, shape = GEOMETRIES[name]
    model = WithStem(build()).double().eval()
    x = torch.randn(shape, dtype=torch.float64)
    with torch.no_grad():
        program = labelled(model, x)
        product = product_named(products_of(program, model)[0], "layer.weight")
        run = MaskedRun(program.propagation, np.ones(len(program.unit_of_id) - 1, dtype=bool))
        run.start(model, [x])
        for call in program.program.calls():
            if call.node is product.node:
                break
            run.step(call.node)
        rows = sample_rows(product.row_count, limit=50)
        columns = product.columns(run.value(product.source), rows)
        expected = product.outputs(model(x), rows)
    matrix = product.matrix(model.layer.weight.detach())
    found = columns @ matrix.transpose(1, 2)
    if product.bias is not None:
        found = found + model.layer.bias.detach().reshape(product.groups, 1, -1)
    assert columns.shape == (product.groups, len(rows), product.column_units.shape[1])
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(product.tensor(matrix), model.layer.weight.detach())


def test_the_outputs_of_a_convolution_are_taken_at_its_rows() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1)).eval()
    x = torch.randn(2, 3, 5, 6)
    (product,), _ = products_of(labelled(model, x), model)
    y = model(x).detach()
    rows = torch.tensor([0, 29, 30, 37])  # 30 positions per image: the last two are in the second image
    expected = torch.stack([y[0, :, 0, 0], y[0, :, 4, 5], y[1, :, 0, 0], y[1, :, 1, 1]])
    torch.testing.assert_close(product.outputs(y, rows)[0], expected)


def test_an_image_without_a_batch_dimension_has_rows_too() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3)).eval()
    x = torch.randn(3, 5, 6)
    (product,), _ = products_of(labelled(model, x), model)
    rows = torch.arange(product.row_count)
    found = product.columns(x, rows) @ product.matrix(model[0].weight).transpose(1, 2) + model[0].bias
    torch.testing.assert_close(found, product.outputs(model(x), rows))


# -- units ------------------------------------------------------------------------------------------------------------


def test_each_column_and_output_knows_its_unit() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Conv2d(6, 2, 1)).eval()
    x = torch.randn(1, 3, 8, 8)
    first, second, last = products_of(labelled(model, x), model)[0]
    assert (first.column_units == -1).all()
    assert second.column_units.tolist() == [[unit for unit in range(4) for _ in range(9)]]
    assert second.output_units.tolist() == last.column_units.tolist() == [[4, 5, 6, 7, 8, 9]]
    assert last.output_units.tolist() == [[10, 11]]  # the outputs of the network: a frozen group


def test_groups_have_the_same_units_slot_by_slot_and_depthwise_layers_one_each() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1, groups=2), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 2, 1)
    ).eval()
    _, grouped, depthwise, _ = products_of(labelled(model, torch.randn(1, 3, 8, 8)), model)[0]
    assert grouped.column_units[0].tolist() == grouped.column_units[1].tolist()
    assert len(set(grouped.column_units[0].tolist())) == 4
    assert depthwise.column_units.shape == (8, 9)
    assert depthwise.column_units[:, 0].tolist() == depthwise.output_units[:, 0].tolist()


def test_rows_along_removed_channels_are_absent() -> None:
    class MixTokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv1d(3, 4, 1)
            self.mix = nn.Linear(5, 5)
            self.head = nn.Conv1d(4, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.mix(self.stem(x)))

    model = MixTokens().eval()
    x = torch.randn(2, 3, 5)
    product = product_named(products_of(labelled(model, x), model)[0], "mix.weight")
    present = torch.tensor([True, False, True, True, True])
    rows = product.present_rows(present)
    assert rows is not None
    assert rows.tolist() == [True, False, True, True] * 2
    assert product.present_rows(torch.ones(5, dtype=torch.bool)) is None


# -- rows -------------------------------------------------------------------------------------------------------------


def test_rows_are_distinct_sorted_seeded_and_spread_over_all_images() -> None:
    rows = sample_rows(10_000, 100, seed=1)
    assert len(set(rows.tolist())) == 100
    assert rows.tolist() == sorted(rows.tolist())
    assert torch.equal(rows, sample_rows(10_000, 100, seed=1))
    assert not torch.equal(rows, sample_rows(10_000, 100, seed=2))
    assert torch.bincount(rows // 100, minlength=100).tolist() == [1] * 100
    assert sample_rows(7, 100).tolist() == list(range(7))


# -- what is left alone ------------------------------------------------------------------------------------------------


class LeftAlone(nn.Module):
    """A weight that is used twice, one that is computed, a matrix product with a parameter, and a fixed filter."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 1)
        self.twice = nn.Conv2d(4, 4, 1)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 4, 1))
        self.mixing = nn.Parameter(torch.randn(4, 4))
        self.register_buffer("blur", torch.ones(4, 1, 3, 3) / 9)

    def forward(self, x: Tensor) -> Tensor:
        x = self.normed(self.twice(self.twice(self.stem(x))))
        return F.conv2d(x, self.blur, groups=4).movedim(1, -1) @ self.mixing


def test_a_note_names_each_product_that_is_left_alone() -> None:
    model = LeftAlone().eval()
    x = torch.randn(1, 3, 6, 6)
    products, notes = products_of(labelled(model, x), model)
    assert [product.weight for product in products] == ["stem.weight"]
    assert len(notes) == 3
    for words in ("twice.weight is used several times", "normed is left", "matmul in the network is left"):
        assert any(words in note for note in notes), words
