"""SearchSpace: the legal counts of units of every group, from a pruning step (Sec. 3.2 of the paper)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aacp.channels.graph import ChannelGraph
from aacp.channels.structure import Structure
from aacp.errors import InvalidOption, InvalidStructure
from aacp.user.values import MAX_COUNT, counted, instance, shown, whole_number

_STEP_ADVICE = "Give 1/8 for an eighth of the width, or 8 for multiples of eight channels."

PruningStep = float | int | Sequence[float | int] | Mapping[str, float | int]
PRUNING_STEP = 1 / 8  # the default: a share of each width, as in the paper


@dataclass(frozen=True, init=False)
class SearchSpace:
    """All legal structures (S^c in the paper): the product of the choices of every group.

    The pruning step (E in the paper) is a fraction of each width (the paper uses 1/8), a number of channels whose
    multiples are legal (8 suits most hardware), or one of these per group, in order or by name.

    A search has one gene per coordinate. A coordinate is a group, or several groups that are tied. The gene of tied
    groups is a legal count of the leading one, which has the most choices; every other group takes the legal count
    nearest to the same share of its own width. Structures always hold the counts of all groups.
    """

    names: tuple[str, ...]  # the names of the groups
    choices: tuple[tuple[int, ...], ...]  # the legal counts of each group, ascending
    coordinates: tuple[tuple[int, ...], ...]  # the positions of the groups that each gene sets, the leading one first
    producer_counts: tuple[int, ...]  # for each gene the most layers that produce one of its groups; streams have many

    def __init__(self, graph: ChannelGraph, pruning_step: PruningStep = PRUNING_STEP) -> None:
        instance("graph", graph, ChannelGraph, "Give the result of aacp.trace.")
        groups = graph.free
        widths = [(group.name, group.width, group.unit_channels) for group in groups]
        place = {group.name: position for position, group in enumerate(groups)}
        ties = [[place[name] for name in tie] for tie in graph.ties]
        self._fill(widths, pruning_step, graph.producer_counts, ties)

    @classmethod
    def from_widths(
        cls, widths: Sequence[int], pruning_step: PruningStep = PRUNING_STEP, ties: Sequence[Sequence[int]] = ()
    ) -> SearchSpace:
        """A space without a network, for experiments.

        Args:
            widths: the width of each group, in single channels.
            pruning_step: as in the constructor.
            ties: the positions of the groups of each tie, no group twice.
        """
        space = cls.__new__(cls)
        checked = [whole_number("a width", width, 1) for width in widths]
        groups = [(f"group{i}", width, 1) for i, width in enumerate(checked)]
        space._fill(groups, pruning_step, (1,) * len(groups), ties)
        return space

    def _fill(
        self,
        widths: Sequence[tuple[str, int, int]],
        pruning_step: PruningStep,
        producer_counts: Sequence[int],
        ties: Sequence[Sequence[int]],
    ) -> None:
        """Set the fields of a new space.

        Args:
            widths: (name, units, channels per unit) of each group.
            pruning_step: the argument of the constructor.
            producer_counts: the number of layers that produce each group.
            ties: the positions of the groups of each tie.
        """
        names = tuple(name for name, _, _ in widths)
        steps = _step_per_group(names, pruning_step)
        choices = tuple(
            _choices(width, _step_in_units(name, step, width, unit))
            for (name, width, unit), step in zip(widths, steps, strict=True)
        )
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "choices", choices)
        self._tie(ties, producer_counts)

    def _tie(self, ties: Sequence[Sequence[int]], producer_counts: Sequence[int]) -> None:
        """Set the coordinates: one per tie and one per other group, in the order of their first groups."""
        tied = {position for tie in ties for position in tie}
        single = [[position] for position in range(len(self.names)) if position not in tied]
        in_order = sorted([*map(sorted, ties), *single])
        leading_first = [sorted(tie, key=lambda position: -len(self.choices[position])) for tie in in_order]
        most_producers = tuple(max(producer_counts[position] for position in tie) for tie in in_order)
        object.__setattr__(self, "coordinates", tuple(map(tuple, leading_first)))
        object.__setattr__(self, "producer_counts", most_producers)

    def __len__(self) -> int:
        """L: the number of genes, which is the number of groups if none are tied."""
        return len(self.coordinates)

    @property
    def size(self) -> int:
        """The number of structures (Eq. 6)."""
        return math.prod(self.levels.tolist())

    @property
    def full(self) -> Structure:
        """The structure that keeps everything."""
        return self.structure(self.levels - 1)

    @property
    def smallest(self) -> Structure:
        """The structure that keeps the least."""
        return self.structure(np.zeros(len(self), dtype=np.int64))

    # -- genes: the position of each count among its choices, from 0; searches compute with these ----------------------

    @cached_property
    def levels(self) -> NDArray[np.int64]:
        """The number of values of each gene: the number of choices of its leading group."""
        return np.array([len(self.choices[leading]) for leading, *_ in self.coordinates], dtype=np.int64)

    @cached_property
    def _coordinate_of(self) -> NDArray[np.int64]:
        """The coordinate of each group."""
        found = {position: gene for gene, positions in enumerate(self.coordinates) for position in positions}
        return np.array([found[position] for position in range(len(self.names))], dtype=np.int64)

    @cached_property
    def _leading(self) -> NDArray[np.int64]:
        """The position of the leading group of each coordinate."""
        return np.array([positions[0] for positions in self.coordinates], dtype=np.int64)

    @cached_property
    def _table(self) -> NDArray[np.int64]:
        """The count of every gene, one row per group; rows with fewer genes are padded with the full width."""
        table = np.empty((len(self.names), int(self.levels.max(initial=1))), dtype=np.int64)
        for row, choice, coordinate in zip(table, self.choices, self._coordinate_of, strict=True):
            leading = self.choices[self._leading[coordinate]]
            row[: len(leading)] = _same_shares(choice, leading)
            row[len(leading) :] = choice[-1]
        return table

    def counts(self, genes: ArrayLike) -> NDArray[np.int64]:
        """The counts of all groups for one gene vector, or for many as the rows of a matrix."""
        return np.asarray(self._table[np.arange(len(self.names)), np.asarray(genes)[..., self._coordinate_of]])

    def genes(self, structures: ArrayLike) -> NDArray[np.int64]:
        """The genes of one legal structure, or of many as the rows of a matrix. The inverse of `counts`."""
        return self.leading_genes(np.asarray(structures)[..., self._leading])

    def leading_counts(self, genes: ArrayLike) -> NDArray[np.int64]:
        """The count of the leading group of each gene; without ties the same as `counts`."""
        return np.asarray(self._table[self._leading, np.asarray(genes)])

    def leading_genes(self, counts: ArrayLike) -> NDArray[np.int64]:
        """The genes of the counts of the leading groups. The inverse of `leading_counts`."""
        return np.asarray((self._table[self._leading] < np.asarray(counts)[..., None]).sum(axis=-1))

    def structure(self, genes: ArrayLike) -> Structure:
        """The structure of one gene vector."""
        return Structure(self.counts(genes).tolist())

    def at_least(self, structure: Structure) -> SearchSpace:
        """The part of this space whose structures keep at least the counts of one of them."""
        part = SearchSpace.__new__(SearchSpace)
        choices = tuple(
            tuple(count for count in choice if count >= least)
            for choice, least in zip(self.choices, structure, strict=True)
        )
        object.__setattr__(part, "names", self.names)
        object.__setattr__(part, "choices", choices)
        object.__setattr__(part, "coordinates", self.coordinates)
        object.__setattr__(part, "producer_counts", self.producer_counts)
        return part

    def sample(self, generator: np.random.Generator) -> Structure:
        """A structure drawn uniformly from the space (Eq. 8)."""
        return self.structure([generator.integers(level) for level in self.levels.tolist()])

    def snap(self, widths: ArrayLike) -> Structure:
        """Round each width down to a legal count, or up to the smallest if it is below that (Alg. 1, l. 1-5).

        Tied groups become the widest legal counts of their gene that exceed none of their widths.
        """
        values = self._vector(widths)
        genes = [min(self._gene_below(position, values[position]) for position in tie) for tie in self.coordinates]
        return self.structure(np.maximum(genes, 0))

    def _gene_below(self, position: int, width: float) -> int:
        """The largest gene that gives a group at most this width; -1 if none does."""
        row = self._table[position, : self.levels[self._coordinate_of[position]]]
        return int(np.searchsorted(row, width, side="right")) - 1

    def to_json(self) -> list[Any]:
        """The choices of each gene: a list of counts, or for tied groups a list of such lists."""
        rows = [[list(self.choices[position]) for position in tie] for tie in self.coordinates]
        return [row[0] if len(row) == 1 else row for row in rows]

    def __contains__(self, structure: object) -> bool:
        if not isinstance(structure, Structure) or len(structure) != len(self.names):
            return False
        legal = all(count in choice for count, choice in zip(structure, self.choices, strict=True))
        return legal and self.structure(self.genes(structure)) == structure

    def _vector(self, values: ArrayLike) -> NDArray[np.float64]:
        vector = np.asarray(values, dtype=np.float64)
        if vector.shape != (len(self.names),):
            raise InvalidStructure(
                f"A structure of this space has {counted(len(self.names), 'count')}, but got shape {vector.shape}. "
                "Give one per group."
            )
        return vector


def _choices(width: int, step: int) -> tuple[int, ...]:
    """The legal counts of one group: D_i^c = {e, 2e, ...} (Eq. 5)."""
    counts = list(range(step, width + 1, step))
    # Paper: Eq. 5 ends at floor(c/e)*e while Alg. 1 clips at c. The unpruned width is always legal here.
    if not counts or counts[-1] != width:
        counts.append(width)
    return tuple(counts)


def _same_shares(choice: tuple[int, ...], leading: tuple[int, ...]) -> NDArray[np.int64]:
    """For each count of the leading group, the choice nearest to the same share of its width; of two, the larger."""
    if choice == leading:
        return np.array(choice)
    # Shares are compared as products of whole numbers, since two fractions at equal distance may differ by rounding.
    from_widest = np.array(choice[::-1])
    distances = np.abs(from_widest * leading[-1] - np.array(leading)[:, None] * choice[-1])
    return np.asarray(from_widest[distances.argmin(axis=1)])


def checked_steps(step: Any) -> Any:
    """A pruning step as plain numbers, as files hold it: one, a tuple of them, a dictionary, or "auto"."""
    if isinstance(step, Mapping):
        return {str(name): _checked_step(f"The pruning step of group {name!r}", value) for name, value in step.items()}
    if isinstance(step, str):
        if step != "auto":
            raise InvalidOption(f"The pruning step is {shown(step)}. {_STEP_ADVICE}")
        return step
    if isinstance(step, (Sequence, np.ndarray)) and np.ndim(step):
        return tuple(_checked_step(f"Pruning step {position}", value) for position, value in enumerate(step))
    return _checked_step("The pruning step", step)


def _checked_step(what: str, step: Any) -> float | int:
    """One step: a whole number of channels, or a share of a width."""
    if isinstance(step, (int, np.integer)) and not isinstance(step, bool) and 1 <= step <= MAX_COUNT:
        return int(step)
    if isinstance(step, (float, np.floating)) and 0 < step < 1:
        return float(step)
    raise InvalidOption(
        f"{what} is {shown(step)}, neither a fraction between 0 and 1 nor a whole number of channels. {_STEP_ADVICE}"
    )


def _step_per_group(names: tuple[str, ...], step: PruningStep) -> Sequence[float | int]:
    if isinstance(step, str):
        raise InvalidOption(f"The pruning step is {shown(step)}, which is not a number. {_STEP_ADVICE}")
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
            groups = counted(len(names), "free group")
            raise InvalidOption(
                f"pruning_step has {counted(len(step), 'value')} for {groups}. Give one per free group."
            )
        return step
    return [step] * len(names)


def _step_in_units(name: str, step: float | int, width: int, unit_channels: int) -> int:
    """e_i in units: a fraction of the width, or the fewest units whose channels are a multiple of `step`."""
    checked = _checked_step(f"The pruning step of group {name!r}", step)
    if isinstance(checked, int):
        return checked // math.gcd(checked, unit_channels)
    return max(1, math.floor(width * checked + 1e-9))  # in floats, 49 * (1 / 49) is below 1
