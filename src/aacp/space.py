"""SearchSpace: the legal counts of units of every group, from a pruning step (Sec. 3.2 of the paper)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aacp.channels import ChannelGraph
from aacp.errors import InvalidOption, InvalidStructure
from aacp.structure import Structure

PruningStep = float | int | Sequence[float | int] | Mapping[str, float | int]


@dataclass(frozen=True, init=False)
class SearchSpace:
    """All legal structures (S^c in the paper): the product of the choices of every group.

    The pruning step (E in the paper) is a fraction of each width (the paper uses 1/8), a number of channels whose
    multiples are legal (8 suits most hardware), or one of these per group, in order or by name.
    """

    names: tuple[str, ...]  # the names of the groups
    choices: tuple[tuple[int, ...], ...]  # the legal counts of each group, ascending
    producer_counts: tuple[int, ...]  # for each group the number of layers that produce it; residual streams have many

    def __init__(self, graph: ChannelGraph, pruning_step: PruningStep = 1 / 8) -> None:
        groups = graph.free
        widths = [(group.name, group.width, group.unit_channels) for group in groups]
        self._fill(widths, pruning_step, graph.producer_counts)

    @classmethod
    def from_widths(cls, widths: Sequence[int], pruning_step: PruningStep = 1 / 8) -> SearchSpace:
        """A space without a network, for experiments: one group of single channels per width."""
        space = cls.__new__(cls)
        groups = [(f"group{i}", width, 1) for i, width in enumerate(widths)]
        space._fill(groups, pruning_step, (1,) * len(groups))
        return space

    def _fill(
        self, widths: Sequence[tuple[str, int, int]], pruning_step: PruningStep, producer_counts: tuple[int, ...]
    ) -> None:
        """Set the fields of a new space; `widths` holds (name, units, channels per unit) of each group."""
        names = tuple(name for name, _, _ in widths)
        steps = _step_per_group(names, pruning_step)
        choices = tuple(
            _choices(width, _step_in_units(name, step, width, unit))
            for (name, width, unit), step in zip(widths, steps, strict=True)
        )
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "choices", choices)
        object.__setattr__(self, "producer_counts", producer_counts)

    def __len__(self) -> int:
        """L: the number of groups."""
        return len(self.choices)

    @property
    def size(self) -> int:
        """The number of structures (Eq. 6)."""
        return math.prod(len(choice) for choice in self.choices)

    @property
    def full(self) -> Structure:
        """The structure that keeps everything."""
        return Structure(choice[-1] for choice in self.choices)

    @property
    def smallest(self) -> Structure:
        """The structure that keeps the least of every group."""
        return Structure(choice[0] for choice in self.choices)

    # -- genes: the position of each count among its choices, from 0; searches compute with these ----------------------

    @cached_property
    def levels(self) -> NDArray[np.int64]:
        """The number of choices of each group."""
        return np.array([len(choice) for choice in self.choices], dtype=np.int64)

    @cached_property
    def _table(self) -> NDArray[np.int64]:
        """The count of every gene, one row per group; rows with fewer choices are padded with the full width."""
        table = np.empty((len(self), int(self.levels.max(initial=1))), dtype=np.int64)
        for row, choice in zip(table, self.choices, strict=True):
            row[: len(choice)] = choice
            row[len(choice) :] = choice[-1]
        return table

    def counts(self, genes: ArrayLike) -> NDArray[np.int64]:
        """The counts of one gene vector, or of many as the rows of a matrix."""
        return np.asarray(self._table[np.arange(len(self)), np.asarray(genes)])

    def genes(self, structures: ArrayLike) -> NDArray[np.int64]:
        """The genes of one legal structure, or of many as the rows of a matrix. The inverse of `counts`."""
        return np.asarray((self._table < np.asarray(structures)[..., None]).sum(axis=-1))

    def structure(self, genes: ArrayLike) -> Structure:
        """The structure of one gene vector."""
        return Structure(self.counts(genes).tolist())

    def sample(self, generator: np.random.Generator) -> Structure:
        """A structure drawn uniformly from the space (Eq. 8)."""
        return Structure(choice[generator.integers(len(choice))] for choice in self.choices)

    def snap(self, widths: ArrayLike) -> Structure:
        """Round each width down to a legal count, or up to the smallest if it is below that (Alg. 1, l. 1-5)."""
        values = self._vector(widths)
        return Structure(
            choice[max(0, int(np.searchsorted(choice, value, side="right")) - 1)]
            for choice, value in zip(self.choices, values, strict=True)
        )

    def __contains__(self, structure: object) -> bool:
        if not isinstance(structure, Structure) or len(structure) != len(self):
            return False
        return all(count in choice for count, choice in zip(structure, self.choices, strict=True))

    def _vector(self, values: ArrayLike) -> NDArray[np.float64]:
        vector = np.asarray(values, dtype=np.float64)
        if vector.shape != (len(self),):
            raise InvalidStructure(
                f"A structure of this space has {len(self)} counts, but got shape {vector.shape}. Give one per group."
            )
        return vector


def _choices(width: int, step: int) -> tuple[int, ...]:
    """The legal counts of one group: D_i^c = {e, 2e, ...} (Eq. 5)."""
    counts = list(range(step, width + 1, step))
    # Paper: Eq. 5 ends at floor(c/e)*e while Alg. 1 clips at c. The unpruned width is always legal here.
    if not counts or counts[-1] != width:
        counts.append(width)
    return tuple(counts)


def _step_per_group(names: tuple[str, ...], step: PruningStep) -> Sequence[float | int]:
    if isinstance(step, Mapping):
        if unknown := [name for name in step if name not in names]:
            raise InvalidOption(
                f"The graph has no free group {unknown[0]!r} to set a pruning step for. print(graph) lists the groups."
            )
        if missing := [name for name in names if name not in step]:
            raise InvalidOption(f"Group {missing[0]!r} has no pruning step. Give a step for every free group.")
        return [step[name] for name in names]
    if isinstance(step, Sequence):
        if len(step) != len(names):
            raise InvalidOption(
                f"{len(step)} pruning steps were given for {len(names)} groups. Give one per free group."
            )
        return step
    return [step] * len(names)


def _step_in_units(name: str, step: float | int, width: int, unit_channels: int) -> int:
    """e_i in units: a fraction of the width, or the fewest units whose channels are a multiple of `step`."""
    if isinstance(step, (int, np.integer)) and not isinstance(step, bool) and step >= 1:
        return int(step) // math.gcd(int(step), unit_channels)
    if isinstance(step, float) and 0 < step < 1:
        return max(1, math.floor(width * step + 1e-9))  # in floats, 49 * (1 / 49) is below 1
    raise InvalidOption(
        f"The pruning step of group {name!r} is {step!r}, neither a fraction between 0 and 1 nor a whole number of "
        "channels. Give 1/8 for an eighth of the width, or 8 for multiples of eight channels."
    )
