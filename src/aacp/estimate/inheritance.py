"""Inheritance: makes the network of a structure with the weights of the unpruned network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from aacp.channels.graph import ChannelGraph, KeptUnits
from aacp.channels.structure import Structure
from aacp.data.batches import Batches
from aacp.data.examples import tensors_in
from aacp.data.layouts import computing_layout
from aacp.errors import InvalidData, InvalidOption
from aacp.estimate.importance import BY_READERS, Importance, Scores, require_criterion, unit_importance
from aacp.estimate.recalibration import BATCH_SIZE, running_norms, set_statistics
from aacp.graph.surgery import cut_units
from aacp.pytorch.layout import PLAIN, laid_out, lay_out
from aacp.pytorch.modules import copy_module, device_of_model, named_tensors, private_copy, require_network
from aacp.repairs.grams import Grams
from aacp.repairs.obs import removal
from aacp.repairs.parallel import ParallelRepair
from aacp.repairs.sequential import repair
from aacp.search.curves import ErrorCurves
from aacp.user.code import users_function

TINY = 1e-300  # keeps a division by the norm of a group whose filters are all zero finite
REPAIR: Literal["repair"] = "repair"  # the reconstruction that is built in


class Reconstruction(Protocol):
    """A function that corrects the weights of a cut network, in place, before its batch norms are recalibrated."""

    def __call__(
        self,
        network: nn.Module,
        original: nn.Module,
        graph: ChannelGraph,
        kept: Mapping[str, NDArray[np.int64]],
        calibration: Batches,
    ) -> Sequence[str] | None:
        """Correct the weights of `network`.

        Args:
            network: the cut network, in evaluation mode, on the device of the calibration images.
            original: the unpruned network, on the same device; it must not be changed.
            graph: the channel graph of the unpruned network.
            kept: the indices of the units that each free group keeps, by the group's name. A unit is one channel, or
                several that must be removed together.
            calibration: images from the training data.

        Returns:
            Sentences for the user, or nothing.
        """


@dataclass(frozen=True, eq=False)
class ChannelOrder:
    """The rank of every unit within its group, 0 for the most important one.

    A structure keeps the units of a group whose rank is below the group's count, so a larger structure contains every
    smaller one.
    """

    graph: ChannelGraph
    ranks: NDArray[np.int64]

    @classmethod
    def of(cls, graph: ChannelGraph, scores: Scores) -> ChannelOrder:
        """Rank units by descending score; with equal scores the lower index comes first."""
        ranks = np.zeros(len(scores), dtype=np.int64)
        for group in graph.groups:
            here = graph.slice_of(group)
            order = np.argsort(-scores[here], kind="stable")
            ranks[here][order] = np.arange(group.width)
        return cls(graph, ranks)

    def units(self, structure: Iterable[int]) -> NDArray[np.bool_]:
        """A mask of the units that a structure keeps; raises InvalidStructure if the graph does not allow it."""
        checked = structure if isinstance(structure, Structure) else Structure(structure)
        counts = np.array([group.width for group in self.graph.groups], dtype=np.int64)
        counts[[group.frozen is None for group in self.graph.groups]] = self.graph.valid_counts(checked)
        kept: NDArray[np.bool_] = self.ranks < counts[self.graph.unit_groups]
        return kept

    def kept(self, structure: Iterable[int]) -> KeptUnits:
        """The indices of the units that each free group keeps, in the order they have in the network."""
        return self.graph.kept_indices(self.units(structure))


class Inheritance:
    """Makes networks from structures: chooses the units to keep, cuts the others, and corrects the weights.

    The estimate, the delivered network and every network in between come from one Inheritance, so what is scored is
    what is delivered, except that an estimate repairs by the faster parallel form. The model is copied: later changes
    to it have no effect.

    Args:
        model: the trained, unpruned network.
        graph: its channel graph.
        calibration: images from the training data, which batch norms are recalibrated on: a loader, a data set, tensors
            or Batches. They are read once and kept if they fit into memory.
        importance: "l1", "l2", "bn", "random", "activation", "obs", or a function; see `unit_importance`. It is
            evaluated once, here.
        seed: the seed of the importance "random".
        reconstruction: "repair" fits the remaining weights to what the original computes, see `aacp.repair`; a function
            corrects the weights of the cut network before recalibration, see `Reconstruction`; None keeps the weights
            of the original.
        device: where the networks are made; None is the model's device.

    Attributes:
        notes: sentences that say what was decided, for the user.
    """

    def __init__(
        self,
        model: nn.Module,
        graph: ChannelGraph,
        calibration: Any,
        *,
        importance: Importance = "l1",
        seed: int = 0,
        reconstruction: Reconstruction | Literal["repair"] | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        require_network(model)
        require_criterion(importance)
        require_reconstruction(reconstruction)
        self.graph = graph
        self.device = torch.device(device) if device is not None else device_of_model(model)
        self.calibration = Batches.of(calibration, batch_size=BATCH_SIZE, device=self.device)
        require_finite("calibration images (of the training data)", self.calibration)
        self.model = private_copy(model, self.device)
        # A user's function gets a copy of its own: it may run backward passes or set hooks.
        judged = private_copy(model, self.device) if callable(importance) else self.model
        grams = self.grams if importance in BY_READERS else None
        scores = unit_importance(judged, graph, importance, seed, self.calibration, grams)
        self.order = ChannelOrder.of(graph, scores)
        self.reconstruction = reconstruction
        self._notes: list[str] = []

    def units(self, structure: Iterable[int]) -> NDArray[np.bool_]:
        """A mask of the units that a structure keeps; raises InvalidStructure if the graph does not allow it."""
        return self.order.units(structure)

    def kept(self, structure: Iterable[int]) -> KeptUnits:
        """The indices of the units that each free group keeps, as `aacp.save(kept=...)` takes them."""
        return self.order.kept(structure)

    def cut(self, structure: Iterable[int]) -> nn.Module:
        """A new network with this structure and the weights of the original, before anything corrects them."""
        return self._cut(self.model, self.units(structure))

    def network(self, structure: Iterable[int]) -> nn.Module:
        """A new network with this structure, in evaluation mode: cut and repaired, or cut and recalibrated.

        A reconstruction function is called between the two. The network shares nothing with the original. A graph of
        form "exported" has no batch norm modules to recalibrate: its networks keep the statistics of the original.
        """
        network = self.cut(structure)
        if self.reconstruction is not None:
            self._reconstruct(network, self.kept(structure))
        if self.reconstruction != REPAIR:  # repair sets the statistics itself
            with laid_out(network, self.layout):
                set_statistics(network, running_norms(network), self.calibration)
        return network

    def scored_network(self, structure: Iterable[int]) -> nn.Module:
        """The network that an estimate scores: that of `network`, but repaired by the parallel form and recalibrated.

        The parallel form needs no forward pass, and most of it is known from structures before. The network has the
        memory layout in which it computes fastest.
        """
        if self.reconstruction != REPAIR:
            return lay_out(self.network(structure), self.layout)
        units = self.units(structure)
        self.parallel_repair.apply(self._repaired_tensors, units)
        network = lay_out(self._cut(self._repaired, units), self.layout)
        set_statistics(network, running_norms(network), self.calibration)
        return network

    def recalibrating_on(self, calibration: Any) -> Inheritance:
        """This inheritance with other images to recalibrate on: it keeps the same channels, and repairs them alike."""
        twin = copy(self)
        twin.calibration = Batches.of(calibration, batch_size=BATCH_SIZE, device=self.device)
        if self.reconstruction == REPAIR:
            twin.parallel_repair = self.parallel_repair
        return twin

    @cached_property
    def layout(self) -> torch.memory_format:
        """The memory layout in which networks are recalibrated and scored: one in which the original runs."""
        if self.graph.form == "exported":  # what runs there is not the code of the original
            return PLAIN
        return computing_layout(self.model, self.calibration)

    def _cut(self, model: nn.Module, units: NDArray[np.bool_]) -> nn.Module:
        example = next(self.calibration.inputs()) if self.graph.form == "exported" else None
        return cut_units(model, self.graph, units, example=example).to(self.device)

    def _reconstruct(self, network: nn.Module, kept: KeptUnits) -> None:
        function: Any = repair if self.reconstruction == REPAIR else self.reconstruction
        with users_function("reconstruction function", "(network, original, graph, kept, calibration)"):
            notes = function(network, self.model, self.graph, kept, self.calibration)
        self._notes += [note for note in notes or () if note not in self._notes]
        network.eval()

    # -- what repair needs of the original, computed when it is first needed -------------------------------------------

    @property
    def notes(self) -> list[str]:
        known = self.__dict__.get("grams")
        return [*(known.notes if known is not None else ()), *self._notes]

    @cached_property
    def grams(self) -> Grams:
        """The Gram matrices of what the products of the original read, on the calibration images."""
        return Grams.of(self.model, self.graph, self.calibration)

    @cached_property
    def parallel_repair(self) -> ParallelRepair:
        """The repaired weights of any structure, without a forward pass."""
        return ParallelRepair(self.grams, self.order.ranks)

    @cached_property
    def _repaired(self) -> nn.Module:
        """A copy of the original whose weights are those of the structure that was repaired last."""
        return copy_module(self.model).requires_grad_(False)

    @cached_property
    def _repaired_tensors(self) -> dict[str, torch.Tensor]:
        return dict(named_tensors(self._repaired))

    @cached_property
    def error_curves(self) -> ErrorCurves:
        """For every group and every number of units that it may keep: what its readers lose, with repaired weights.

        Units are removed in the order of this inheritance; see `aacp.repairs.obs.Removal`. A group that no product
        reads is judged by the squared norms of its filters.
        """
        norms = unit_importance(self.model, self.graph, "l2") ** 2
        curves: dict[str, NDArray[np.float64]] = {}
        for group in self.graph.free:
            here = self.graph.slice_of(group)
            order = np.argsort(-self.order.ranks[here], kind="stable")
            found = removal(self.grams, group, order)
            lost = np.append(0.0, norms[here][order].cumsum())
            curves[group.name] = found.curve if found is not None else lost[::-1] / max(lost[-1], TINY)
        return ErrorCurves(curves)


def require_reconstruction(reconstruction: object) -> None:
    """Reject what is neither a function nor "repair" nor None."""
    if reconstruction is not None and reconstruction != REPAIR and not callable(reconstruction):
        raise InvalidOption(
            f"reconstruction is {reconstruction!r}, which is neither 'repair' nor a function. "
            "Give 'repair', a function, or None."
        )


def require_finite(name: str, batches: Batches) -> None:
    """Reject images that hold NaN or infinity, which would make every score meaningless; bytes cannot hold them."""
    for inputs in () if batches.are_bytes else batches.inputs():
        if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors_in(inputs)):
            raise InvalidData(f"The {name} are not finite. Look for NaN and infinity in them.")
