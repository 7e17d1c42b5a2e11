"""The fusion detector: cut a graph into steps, each a group for one kernel or a single op.

A scan in reverse topological order lets each node join the groups of its readers, as in MegEngine's JIT.
Other than there a group may have several outputs, so what is asked of two groups is only that no third one
waits between them. Then groups are joined side by side.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from ..backends import Scope, Traits
from ..ir import Graph, Kind, Node
from ..ir.sizes import about, same_shape
from ..ops.declare import op_of
from ..ops.layout import concat
from ..ops.look_up import tables_of
from ..passes.constants import LARGE
from .legality import (
    DEFAULT,
    FusionConfig,
    Group,
    Shape,
    accepts,
    bare,
    before_product,
    group_of,
    joined,
    row,
    weight,
)
from .portions import portions
from .products import AFTER, followers
from .quotient import Partition, Quotient
from .step import Step, is_copied, make_step

CONCAT = op_of(concat)

#: Groups over fewer elements than this share a kernel with any other group of the same domain: starting it is
#: most of what they cost.
TINY = 1 << 12
#: A single op over so many elements is worth a kernel: several threads share the work.
ALONE = 1 << 16
#: Elements of one value, between which those of others stand, that share a cache line with these.
NEAR = 16
#: Side by side, groups are joined up to this many nodes, which bounds the time that compiling them takes.
CROWDED = 256
#: With how many of the groups before it one is tried side by side.
TRIED = 8


def detect(graph: Graph, traits: Traits, config: FusionConfig = DEFAULT) -> list[Step]:
    """Cut `graph` into steps that run one after the other.

    Parameters
    ----------
    graph : Graph
        Simplified, if layout ops are not to stand between groups.
    traits : Traits
        Of the backend that is to compile the groups.
    config : FusionConfig
        What the user allows.

    Returns
    -------
    list of Step
        Every node is computed by one step, but for constants and iotas, which are copied into the steps
        that read them. A step comes after those whose values it reads.
    """
    detection = _Detection(graph, traits, config)
    if traits.scope is Scope.GRAPH:
        detection.join_levels()
    else:
        detection.join_readers()
        detection.join_siblings()
    return detection.steps()


class _Detection:
    """The groups while they grow."""

    def __init__(self, graph: Graph, traits: Traits, config: FusionConfig) -> None:
        self.graph, self.traits, self.config = graph, traits, config
        self.outputs = frozenset(graph.outputs)
        self.below = LARGE if traits.scope is Scope.GRAPH else 2  # it can compute with small constants
        self.nodes = [n for n in graph.nodes if not is_copied(n, self.below) or n in self.outputs]
        self.place = {n: i for i, n in enumerate(self.nodes)}
        sources = [[self.place[i] for i in n.inputs if i in self.place] for n in self.nodes]
        self.quotient = (Partition if traits.scope is Scope.GRAPH else Quotient)(sources)
        self.refused = {n: accepts(traits, n, config) for n in self.nodes}
        taken = [i for i, n in enumerate(self.nodes) if self.refused[n] is None]
        self.groups = {i: group_of(traits.scope, self.nodes[i]) for i in taken}
        self.reads = {i: self._operands(self.nodes[i]) for i in self.groups}
        self.followers = followers(self.nodes, {self.nodes[i] for i in taken})
        self.ends: dict[Node, str] = {}
        self.merges = 0

    def _operands(self, node: Node) -> set[Node]:
        return {i for i in node.inputs if not is_copied(i, self.below)}

    def fused_readers(self, value: Node) -> list[int]:
        """Return the groups that read `value` and may grow."""
        places = (self.place[r] for r in self.graph.readers[value])
        return list(dict.fromkeys(self.quotient.find(i) for i in places if i in self.groups))

    # merging

    def join_readers(self) -> None:
        """Join each node with its readers, from the last node to the first, largest domains first.

        A number for each row, which the row's elements need and the loss's sum over the rows: it belongs with
        the elements. The other group reads it, and it is small.
        """
        for i in reversed(range(len(self.nodes))):
            if i in self.groups:
                readers = self.fused_readers(self.nodes[i])
                for reader in sorted(readers, key=lambda g: -about(prod(self.groups[g].domain))):
                    problem = self.join(self.quotient.find(i), self.quotient.find(reader))
                    if problem:
                        self.ends.setdefault(self.nodes[i], problem)

    def join_siblings(self) -> None:
        """Join groups that read one full-size value or write neighbours, and tiny groups of one domain.

        A product gains nothing from what has nothing to do with it.
        """
        for value in (*self.graph.inputs, *self.nodes):
            shape = bare(value.spec.shape)
            same = [g for g in self.fused_readers(value) if same_shape(self.groups[g].domain, shape)]
            self._join_in_turn([g for g in same if self.groups[g].product is None])
        for value in filter(_interleaves, self.nodes):
            places = (self.place.get(_computed(i)) for i in value.inputs)
            parts = dict.fromkeys(self.quotient.find(i) for i in places if i in self.groups)
            self._join_in_turn([g for g in parts if self.groups[g].product is None])
        alone = [g for g in self._alive() if self.groups[g].product is None]
        tiny = [g for g in alone if about(prod(self.groups[g].domain)) < TINY]
        most = self.traits.min_ops if self.traits.joins else CROWDED  # kernels that are joined compile alone
        domains: list[Shape] = []  # sizes cannot be dict keys
        for g in tiny:
            if not any(same_shape(self.groups[g].domain, known) for known in domains):
                domains.append(self.groups[g].domain)
        for domain in domains:
            self._join_in_turn([g for g in tiny if same_shape(self.groups[g].domain, domain)], most)

    def join_levels(self) -> None:
        """Group nodes by depth, for backends that take any set of nodes: one group for each depth.

        The level of a node is the largest number of changes from eager to fused on a way to it; a constant is
        there before anything runs, and counts for nothing. A way between two nodes of one level holds no node
        that runs eagerly, so no step stands between them: a `Partition` will do.
        """
        level: list[int] = []
        levels: dict[int, list[int]] = {}
        for i, node in enumerate(self.nodes):
            fuses = i in self.groups
            sources = [self.place[s] for s in node.inputs if s in self.place and s.op.kind is not Kind.LEAF]
            level.append(max((level[s] + (fuses and s not in self.groups) for s in sources), default=0))
            if fuses:
                levels.setdefault(level[i], []).append(i)
        for members in levels.values():
            self._join_in_turn(members, len(members))

    def _alive(self) -> list[int]:
        return [g for g in self.quotient.groups() if g in self.groups]

    def _join_in_turn(self, groups: Iterable[int], most: int = CROWDED) -> None:
        """Join each group with the last one before it that it can be one with."""
        before: list[int] = []
        for group in groups:
            group = self.quotient.find(group)
            for other in reversed(before):
                size = len(self.quotient.members[other]) + len(self.quotient.members[group])
                if group in before or (size <= most and self.join(other, group) is None):
                    break
            before = list(dict.fromkeys(map(self.quotient.find, (*before, group))))[-TRIED:]

    def join(self, first: int, then: int) -> str | None:
        """Merge two groups, or say why not."""
        if first == then:
            return None
        if self.config.fuel is not None and self.merges >= self.config.fuel:
            return "the fuel is used up"
        if self.quotient.feeds(then, first):
            first, then = then, first
        passed = self._passed(first, then)
        if any(value.op.kind is Kind.SCATTER for value in passed):
            return "what is scattered is complete when the kernel ends"
        if any(self._is_looked_up(value, then) for value in passed):
            return "what is looked up must lie in memory"
        group = self._joined(first, then)
        if isinstance(group, str):
            return group
        reads, new, gone = self._reads_of_both(first, then)
        count = len(reads) + len(new) - len(gone)
        if count > self.traits.max_inputs:
            return f"together they read {count} values, at most {self.traits.max_inputs} are allowed"
        if self.quotient.waits(first, then):
            return "another step stands between them"
        problem = self._unwritable(first, then, group)
        if problem:
            return problem
        name = self.quotient.merge(first, then)
        reads |= new
        reads -= gone
        self.groups[name], self.reads[name] = group, reads
        self.merges += 1
        return None

    def _joined(self, first: int, then: int) -> Group | str:
        """Return the group of both, by what `then` wants the values of `first` for."""
        uses = self._uses(first, then)
        if uses <= {AFTER}:
            feeds = self.quotient.feeds(first, then)
            return joined(self.traits.scope, self.groups[first], self.groups[then], feeds)
        if len(uses) > 1:
            return "a product's operand is not all that it is wanted for"
        nodes = [self.nodes[i] for i in self.quotient.members[first]]
        if not self.followers.isdisjoint(nodes):
            return "it belongs to the product before it"
        wanted = next((n for n in nodes if self._read_outside(n, (first, then))), None)
        if wanted is not None:
            return f"{wanted.op.name} is wanted outside, which a product's kernel does not write"
        (side,) = uses
        return before_product(self.groups[first], self.groups[then], side, nodes)

    def _uses(self, first: int, then: int) -> set[int]:
        """Return what `then` needs the values of `first` for in its product: see `products.Product.uses`."""
        product = self.groups[then].product
        if product is None:
            return set()
        readers = self.graph.readers
        pairs = [(value, reader) for value in self._passed(first, then) for reader in readers[value]]
        inside = (pair for pair in pairs if self.quotient.find(self.place[pair[1]]) == then)
        return set().union(*(product.uses(*pair) for pair in inside))

    def _reads_of_both(self, first: int, then: int) -> tuple[set[Node], set[Node], set[Node]]:
        """Return what the larger reader reads, what the other adds, and what they compute for each other.

        None of it takes longer than the smaller of the two is large.
        """
        many, few = sorted((self.reads[first], self.reads[then]), key=len, reverse=True)
        return many, few - many, self._passed(first, then) | self._passed(then, first)

    def _passed(self, source: int, reader: int) -> set[Node]:
        """Return the values of group `source` that group `reader` reads."""
        reads, members = self.reads[reader], self.quotient.members[source]
        if len(members) < len(reads):
            return {self.nodes[i] for i in members}.intersection(reads)
        find, place = self.quotient.find, self.place
        return {r for r in reads if r in place and find(place[r]) == source}

    def _unwritable(self, first: int, then: int, group: Group) -> str | None:
        """Return a kernel writes values of the domain's shape, or of what is left of it when it is folded."""
        if self.traits.scope is Scope.GRAPH:
            return None
        shapes = (group.domain, row(group.domain, group.axes))
        for part in (first, then):
            if same_shape(self.groups[part].domain, group.domain):
                continue
            for i in self.quotient.members[part]:
                if self.nodes[i].op.kind is Kind.SCATTER:
                    continue
                shape = bare(self.nodes[i].spec.shape)
                other = not any(same_shape(shape, written) for written in shapes)
                if other and self._read_outside(self.nodes[i], (first, then)):
                    return f"{shape} is wanted outside, which a kernel over {group.domain} does not write"
        return None

    def _is_looked_up(self, value: Node, group: int) -> bool:
        """Return whether `group` reads elements of `value` at other places than their own."""
        return any(
            r.op.kind is Kind.GATHER and value in tables_of(r) and self.quotient.find(self.place[r]) == group
            for r in self.graph.readers[value]
        )

    def _read_outside(self, node: Node, groups: tuple[int, ...]) -> bool:
        readers = (self.quotient.find(self.place[r]) for r in self.graph.readers[node])
        return node in self.outputs or any(r not in groups for r in readers)

    # the result

    def steps(self) -> list[Step]:
        """Return the steps in the order in which they run."""
        steps = []
        for group in self.quotient.groups():
            members = [self.nodes[i] for i in sorted(self.quotient.members[group])]
            weights = [weight(self.traits, n) for n in members] if group in self.groups else []
            ops = sum(weights)
            if group in self.groups and self._pays(group, ops):
                steps += self._kernels(group, members, weights)
                continue
            for node in members:
                why = self.refused[node] or self._too_small(group, ops)
                steps.append(make_step([node], [node], False, f"{node.op.name} {why}", self.below))
        return steps

    def _kernels(self, group: int, members: list[Node], weights: list[int]) -> list[Step]:
        """Return the steps of a group that a backend compiles: one, if it is not too large."""
        parts = [members]
        if self.traits.scope is Scope.DOMAIN:
            parts = portions(
                members, weights, self.groups[group], self.config.largest, self.traits.max_inputs,
                self.graph.readers, self.outputs, lambda n: is_copied(n, self.below),
            )  # fmt: skip
        steps = []
        for part in parts:
            inside = set(part)
            writes = [n for n in part if n in self.outputs or not inside.issuperset(self.graph.readers[n])]
            end = self._end(writes) if part is parts[-1] else f"is cut after {len(part)} ops"
            steps.append(make_step(part, writes, True, end, self.below))
        return steps

    def _pays(self, group: int, ops: int) -> bool:
        """Return whether a group is worth a kernel. A single op is, over many elements or by a product."""
        facts = self.groups[group]
        if facts.product is not None:
            return ops >= 1
        large = self.traits.scope is Scope.DOMAIN and about(prod(facts.domain)) >= ALONE
        return ops >= (min(1, self.traits.min_ops) if large else self.traits.min_ops)

    def _too_small(self, group: int, ops: int) -> str:
        if self.groups[group].product is not None:
            return "has nothing around it that a kernel would compute with it"
        return f"is one of {ops} ops, a kernel takes {self.traits.min_ops} or more"

    def _end(self, writes: list[Node]) -> str:
        ends: dict[str, list[str]] = {}
        for node in writes:
            why = self.ends.get(node) or self._eager_reader(node)
            if why:
                ends.setdefault(why, []).append(node.op.name)
        return "; ".join(f"ends at {', '.join(names)}: {why}" for why, names in ends.items())

    def _eager_reader(self, node: Node) -> str | None:
        names = (r.op.name for r in self.graph.readers[node] if self.place[r] not in self.groups)
        name = next(names, None)
        return name and f"{name} reads it"


def _interleaves(node: Node) -> bool:
    """Return whether it puts elements of several values next to each other."""
    if node.op is not CONCAT:
        return False
    behind = node.spec.shape[node.params["axis"] + 1 :]
    return bool(about(prod(behind)) < NEAR)


def _computed(node: Node) -> Node:
    """Return what a view is of."""
    while node.op.moves is not None:
        (node,) = node.inputs
    return node
