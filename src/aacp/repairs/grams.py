"""Grams: means and covariances of what every product of the original network reads, from one pass over images.

They serve every structure: the parallel form of repair (`parallel.py`) and the orders of channels (`obs.py`) need
nothing else. A product that reads many channels through many taps has a covariance over channels instead of columns
(the *channel form*): one linear map of channels then serves all taps, and the matrix is smaller by the square of taps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from aacp.channels.graph import ChannelGraph
from aacp.data.batches import Batches
from aacp.data.examples import batch_size_of, tensors_in
from aacp.errors import InvalidData, first_line
from aacp.graph.masking import MaskedRun
from aacp.graph.program import Call
from aacp.pytorch.modules import named_tensors, positional
from aacp.repairs.branches import is_running_norm
from aacp.repairs.products import Product, Programs, sample_rows
from aacp.repairs.sensitivity import Sensitivities, sensitivities

MAX_ROWS = 16384  # sampled rows of a product, over all images
ROWS_PER_COLUMN = 8  # a product with many columns has more rows: this many for each column
MAX_COLUMNS = 2304  # a product with more columns has the channel form
MAX_BYTES = 1 << 30  # of all covariances together; beyond it, the widest products have the channel form
BATCH_SIZE = {"cpu": 128, "cuda": 512}  # images per forward pass, by device


@dataclass(eq=False)
class Gram:
    """Mean and covariance of the columns of one product, in its full form or in its channel form.

    Args:
        product: the product.
        taps: the number of columns that share one linear map: 1 in the full form.
        is_centred: whether the covariance is centred. It is not where nothing can take a constant: no bias and no batch
            norm after the product.
        count: the number of rows seen.
        mean: (groups, columns).
        covariance: (groups, columns, columns), in the channel form (groups, channels, channels), summed over taps.
    """

    product: Product
    taps: int
    is_centred: bool
    count: int
    mean: torch.Tensor
    covariance: torch.Tensor

    @property
    def units(self) -> torch.Tensor:
        """The unit of each row and column of the covariance, as (groups, columns); -1: always present."""
        return self.product.column_units[:, :: self.taps]

    def folded(self, matrix: torch.Tensor) -> torch.Tensor:
        """The matrix of a weight, as (groups, outputs * taps, columns of the covariance)."""
        return _taps_as_rows(matrix, self.taps)

    def unfolded(self, folded: torch.Tensor) -> torch.Tensor:
        """The inverse of `folded`."""
        groups, rows, channels = folded.shape
        split = folded.reshape(groups, rows // self.taps, self.taps, channels)
        return split.transpose(2, 3).flatten(2)

    @property
    def bytes(self) -> int:
        return self.covariance.numel() * self.covariance.element_size()


@dataclass(eq=False)
class Grams:
    """The Gram matrices of a network, by the name of the product's weight, in the order of execution."""

    model: nn.Module
    graph: ChannelGraph
    images: Batches
    grams: dict[str, Gram]
    notes: list[str]

    @cached_property
    def weights(self) -> dict[str, torch.Tensor]:
        """The tensors of the network, by name."""
        return {name: value.detach() for name, value in named_tensors(self.model)}

    @cached_property
    def sensitivities(self) -> Sensitivities:
        """How much an error in each output of each product changes the network's outputs; empty if that is unknown."""
        try:
            return sensitivities(self.model, self.graph, self.images)
        except (RuntimeError, NotImplementedError) as error:  # an operator that has no gradient; out of memory
            self.note(f"Errors are relative to the output of each layer: no gradients, {first_line(error)}.")
            return {}

    @classmethod
    def of(cls, model: nn.Module, graph: ChannelGraph, images: Batches, seed: int = 0) -> Grams:
        """The Gram matrices of a network on images.

        Args:
            model: the original network, in evaluation mode; it is not changed.
            graph: its channel graph.
            images: what it is run on.
            seed: the seed of the sampled rows.
        """
        collector = _Collector(model, graph, images, seed)
        with torch.no_grad():
            collector.run()
        return cls(model, graph, images, collector.finished(), collector.notes)

    def __iter__(self) -> Iterator[Gram]:
        return iter(self.grams.values())

    def note(self, sentence: str) -> None:
        """Add a note, unless it is there already."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def matrix(self, gram: Gram) -> torch.Tensor:
        """The weight of a product in double precision, folded like its covariance."""
        return gram.folded(gram.product.matrix(self.weights[gram.product.weight]).double())


@dataclass(eq=False)
class _Sums:
    """Sums over the rows of one product seen so far; they are shifted by the mean of the first rows for precision."""

    product: Product
    taps: int
    count: int = 0
    shift: torch.Tensor | None = None
    total: torch.Tensor | None = None
    squares: torch.Tensor | None = None

    def add(self, product: Product, x: torch.Tensor, rows: torch.Tensor) -> None:
        """Add the rows of one batch; `product` is that of its program, since images of another size have their own."""
        columns = product.columns(x, rows.to(x.device))
        # Consumer GPUs are slow in double precision, but fast enough for this; single precision may be TF32 there.
        columns = columns.double() if x.device.type == "cuda" else columns.float()
        if self.shift is None:
            self.shift = columns.mean(dim=1, keepdim=True)
        columns = columns - self.shift
        total = columns.sum(dim=1).double()
        squares = _products_of_columns(columns, self.taps)
        self.total = total if self.total is None else self.total + total
        self.squares = squares if self.squares is None else self.squares.add_(squares)
        self.count += len(rows)

    def gram(self, is_centred: bool) -> Gram:
        assert self.shift is not None
        assert self.total is not None
        assert self.squares is not None
        moved = self.total / self.count  # the mean, relative to the shift
        covariance = self.squares.div_(self.count) - _products_of_columns(moved[:, None], self.taps)
        mean = moved + self.shift[:, 0].double()
        if not is_centred:
            covariance += _products_of_columns(mean[:, None], self.taps)
        return Gram(self.product, self.taps, is_centred, self.count, mean, covariance)


def _products_of_columns(columns: torch.Tensor, taps: int) -> torch.Tensor:
    """The sum over rows of the products of any two columns; in the channel form summed over taps too."""
    columns = _taps_as_rows(columns, taps)
    return (columns.mT @ columns).double()


def _taps_as_rows(columns: torch.Tensor, taps: int) -> torch.Tensor:
    """(groups, rows, channels * taps) as (groups, rows * taps, channels)."""
    groups, rows, width = columns.shape
    return columns.reshape(groups, rows, width // taps, taps).transpose(2, 3).flatten(1, 2)


class _Collector:
    """One pass over images that collects the sums of all products that may lose inputs."""

    def __init__(self, model: nn.Module, graph: ChannelGraph, images: Batches, seed: int) -> None:
        self.notes: list[str] = []
        self._model = model
        self._graph = graph
        self._seed = seed
        most = BATCH_SIZE.get(images.device.type, BATCH_SIZE["cpu"])
        size = _even_size(images.images, images.fitting_size(most))
        self._batches = Batches.of(images, batch_size=size, device=images.device)
        self._total = images.images
        self._programs = Programs(model, graph)
        self._sums: dict[str, _Sums] = {}
        self._centred: dict[str, bool] = {}

    def run(self) -> None:
        start = 0
        for inputs in self._batches.inputs():
            size = batch_size_of(inputs)
            self._add_batch(inputs, start, size)
            start += size

    def finished(self) -> dict[str, Gram]:
        """The Gram of each product."""
        for name, sums in self._sums.items():
            if sums.total is not None and not bool(torch.isfinite(sums.total).all()):
                raise InvalidData(
                    f"What {name} is multiplied by is not finite. Look for NaN in the images and in the weights."
                )
        return {name: sums.gram(self._centred[name]) for name, sums in self._sums.items() if sums.count}

    def _add_batch(self, inputs: Any, start: int, size: int) -> None:
        """Run the network on one batch, whose first image has the number `start`."""
        labelled, products, notes = self._programs.of(inputs)
        if start == 0:
            self.notes += notes
            self._choose_forms(product for product in products if _mixes(product, self._graph))
        by_node = {product.node: product for product in products if product.weight in self._sums}
        run = MaskedRun(labelled.propagation, labelled.all_ids)
        run.start(self._model, [tensor.clone() for tensor in tensors_in(positional(self._model, inputs))])
        for call in labelled.program.calls():
            product = by_node.get(call.node)
            if product is not None:
                rows = self._rows(product, start, size)
                if len(rows):
                    self._sums[product.weight].add(product, run.value(product.source), rows)
            run.step(call.node)

    def _rows(self, product: Product, start: int, size: int) -> torch.Tensor:
        """The rows of a batch: those of its images in a sample over all images, which is the same for all batches."""
        taps = self._sums[product.weight].taps
        # In the channel form each tap of a row counts as a row.
        limit = max(MAX_ROWS, ROWS_PER_COLUMN * product.column_units.shape[1] // taps) // taps
        per_image, rest = divmod(product.row_count, size)
        if rest:  # the rows do not belong to images
            return sample_rows(product.row_count, max(1, limit * size // self._total), self._seed)
        rows = sample_rows(self._total * per_image, limit, self._seed)
        first = start * per_image
        here = rows[(rows >= first) & (rows < first + product.row_count)]
        return here - first

    def _choose_forms(self, products: Iterable[Product]) -> None:
        """Choose the form of each product: the full form for the narrowest ones, as far as memory goes."""
        left = MAX_BYTES
        in_order = list(products)
        forms: dict[str, int] = {}
        for product in sorted(in_order, key=lambda each: each.column_units.shape[1]):
            taps = 1
            if product.column_units.shape[1] > MAX_COLUMNS or _bytes(product, 1) > left:
                taps = _shared_taps(product)
                self._note_form(product, taps)
            if taps and _bytes(product, taps) <= left:
                forms[product.weight] = taps
                left -= _bytes(product, taps)
        for product in in_order:
            if product.weight in forms:
                self._sums[product.weight] = _Sums(product, forms[product.weight])
                self._centred[product.weight] = _takes_constant(product)

    def _note_form(self, product: Product, taps: int) -> None:
        columns = product.column_units.shape[1]
        if taps > 1:
            self.notes.append(
                f"{product.weight} reads {columns:,} values: its covariance is over {columns // taps:,} channels."
            )
        else:
            self.notes.append(f"{product.weight} reads {columns:,} values, too many for a covariance: it is left out.")


def _bytes(product: Product, taps: int) -> int:
    groups, columns = product.column_units.shape
    return 8 * groups * (columns // taps) ** 2


def _mixes(product: Product, graph: ChannelGraph) -> bool:
    """Whether a product may lose some but not all inputs of a group: not if they are frozen, nor if it is depthwise."""
    units = product.column_units.numpy()
    removable = (units >= 0) & np.append(graph.free_units, False)[units]
    return bool(removable.any()) and units.shape[1] > product.taps


def _shared_taps(product: Product) -> int:
    """The number of neighbouring columns that belong to one channel; 0 if the channel form is too wide as well."""
    taps = product.taps
    if product.window is None:  # a linear layer after a flattened map reads several values of each channel
        units = product.column_units
        changes = (units[:, 1:] != units[:, :-1]).any(dim=0).nonzero().flatten() + 1
        taps = int(np.gcd.reduce([*changes.tolist(), units.shape[1]]))
    is_narrow = product.column_units.shape[1] // taps <= MAX_COLUMNS
    return taps if taps > 1 and is_narrow else 0


def _takes_constant(product: Product) -> bool:
    """Whether a constant that is added to the output can go into a bias, or is removed by recalibration."""
    if product.bias is not None:
        return True
    readers = [Call(node) for node in product.node.users]
    return bool(readers) and all(map(is_running_norm, readers))


def _even_size(images: int, most: int) -> int:
    """A batch size that divides the number of images if one is near `most`: each size needs a program of its own."""
    divisors = [size for size in range(most, most // 4, -1) if images % size == 0]
    return divisors[0] if divisors else most
