"""Schedule: the order in which both networks run, chosen so that shortcuts are known when a branch is fitted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import fx

from aacp.graph.propagation import Propagation
from aacp.pytorch.internals import is_mutable
from aacp.repairs.branches import Branch, branch_of
from aacp.repairs.products import Product


@dataclass
class Schedule:
    """All calls of a program in an order in which they can run, and the branch of each product."""

    propagation: Propagation
    products: dict[fx.Node, Product]
    order: list[fx.Node] = field(default_factory=list)
    branches: dict[fx.Node, Branch] = field(default_factory=dict)
    _known: set[fx.Node] = field(default_factory=set)

    @classmethod
    def of(cls, propagation: Propagation, products: Iterable[Product]) -> Schedule:
        """The order of the program, except that a shortcut is computed before the last product of its branch."""
        schedule = cls(propagation, {product.node: product for product in products})
        for node in propagation.program.graph.nodes:
            if node.op == "placeholder":
                schedule._known.add(node)
            elif node.op == "call_function":
                schedule._run(node)
        return schedule

    def _run(self, node: fx.Node) -> None:
        if node in self._known:
            return
        if node in self.products:
            self._plan(self.products[node])
        self._known.add(node)
        self.order.append(node)

    def _plan(self, product: Product) -> None:
        """Choose the branch of a product; first compute the tensor that is added to it, if that is possible."""
        branch, missing = branch_of(product, self.propagation, self._known)
        while missing is not None:
            needed = self._needed(missing)
            if product.node in needed or not self._may_run_before(product, needed):
                break
            for node in needed:
                self._run(node)
            branch, missing = branch_of(product, self.propagation, self._known)
        self.branches[product.node] = branch

    def _needed(self, node: fx.Node) -> list[fx.Node]:
        """The calls that have to run before the value of a node is known, and its own, in order."""
        found: set[fx.Node] = set()
        left = [node]
        while left:
            current = left.pop()
            if current not in found and current not in self._known:
                found.add(current)
                left += current.all_input_nodes
        return [call for call in self.propagation.program.graph.nodes if call in found]

    def _may_run_before(self, product: Product, needed: list[fx.Node]) -> bool:
        """Whether calls can run before a product that the network runs before them.

        An operator that writes to its argument must not change its place among the others. If both branches end with
        a product, the one that reads more corrects the other and so runs last.
        """
        width = product.column_units.shape[1]
        rivals = [self.products[node] for node in needed if node in self.products]
        if any(rival.column_units.shape[1] >= width for rival in rivals):
            return False
        nodes = list(self.propagation.program.graph.nodes)
        between = nodes[nodes.index(product.node) : nodes.index(needed[-1]) + 1]
        return not any(is_mutable(node.target) for node in between if node not in self._known)
