"""Part: what a pruned network has of a product."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from aacp.repairs.least_squares import Weights
from aacp.repairs.products import Product


@dataclass(frozen=True, eq=False)
class Part:
    """The groups, columns and outputs of a product that are there if some units are removed."""

    product: Product
    groups: torch.Tensor  # indices of the groups that have a column and an output
    columns: torch.Tensor  # indices of the columns that are there in at least one of these groups
    is_there: torch.Tensor  # (groups, columns): whether they are there in each of them
    outputs: torch.Tensor  # (groups, outputs): which outputs are there

    @classmethod
    def of(cls, product: Product, present: torch.Tensor) -> Part:
        """The part that is there.

        Args:
            product: the product.
            present: whether each unit is kept, with one more entry at the end, which is True.
        """
        outputs = present[product.output_units.to(present.device)]  # -1, which is always present, selects the last
        columns = present[product.column_units.to(present.device)]
        groups = (outputs.any(1) & columns.any(1)).nonzero()[:, 0]
        used = columns[groups].any(0).nonzero()[:, 0]
        return cls(product, groups, used, columns[groups][:, used], outputs[groups])

    def read(self, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """What each row reads of what is there, (groups, rows, columns), with zeros where a group lacks a column."""
        channels = self._channels
        if channels is not None:  # much faster than the selection of columns
            return self.product.columns(x.index_select(self.product.channel_dim, channels), rows)
        columns = self.product.columns(x, rows)
        if len(self.groups) < len(columns):
            columns = columns[self.groups]
        if len(self.columns) < columns.shape[2]:
            columns = columns.index_select(2, self.columns)
        return columns if bool(self.is_there.all()) else columns * self.is_there[:, None]

    @property
    def _channels(self) -> torch.Tensor | None:
        """The input channels that are there; None if that is not what is there of an ungrouped convolution."""
        taps = self.product.taps
        if self.product.window is None or self.product.groups > 1 or len(self.columns) % taps:
            return None
        channels = self.columns[::taps] // taps
        columns = channels[:, None] * taps + torch.arange(taps, device=channels.device)
        return channels if torch.equal(columns.flatten(), self.columns) else None

    def of_rows(self, values: torch.Tensor) -> torch.Tensor:
        """The groups that are there, of values that broadcast to (groups, rows, outputs)."""
        return values[self.groups] if values.dim() and len(self.groups) < len(values) else values

    def weights(self, weight: torch.Tensor, bias: torch.Tensor | None) -> Weights:
        """What is there of the weight and the bias of the product."""
        matrix = self.product.matrix(weight)[self.groups][:, :, self.columns] * self.is_there[:, None]
        matrix = matrix.transpose(1, 2)
        if bias is None:
            return Weights(matrix, torch.zeros_like(matrix[:, :1]))
        return Weights(matrix, bias.reshape(self.product.groups, 1, -1)[self.groups])

    def write(self, matrix: torch.Tensor, weight: torch.Tensor) -> None:
        """Write a matrix (groups, columns, outputs) into the weight of the product; what is not there stays."""
        whole = self.product.matrix(weight).clone()
        before = whole[self.groups]
        after = before.clone()
        after[:, :, self.columns] = matrix.transpose(1, 2).to(after.dtype)
        written = torch.zeros_like(before, dtype=torch.bool)
        written[:, :, self.columns] = self.is_there[:, None] & self.outputs[:, :, None]
        whole[self.groups] = torch.where(written, after, before)
        weight.copy_(self.product.tensor(whole))

    def spread(self, constant: torch.Tensor) -> torch.Tensor:
        """A constant (groups, 1, outputs) as one value for each output of the product; zero where it is not there."""
        whole = torch.zeros(self.product.output_units.shape, dtype=constant.dtype, device=constant.device)
        whole[self.groups] = torch.where(self.outputs, constant[:, 0], 0.0)
        return whole.reshape(-1)
