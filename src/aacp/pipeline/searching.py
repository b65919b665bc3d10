"""The search as a stage of a run: within a budget, with the evaluations of earlier runs of the network."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from aacp.channels.graph import ChannelGraph
from aacp.channels.space import SearchSpace
from aacp.cost.budget import Budget, Limit
from aacp.cost.kinds import LATENCY
from aacp.data.likeness import Likeness
from aacp.data.scores import accuracy
from aacp.errors import AACPError, InconclusiveMeasurement, InfeasibleBudget
from aacp.estimate.psae import PSAE
from aacp.latency.check import LatencyCheck, Verdict
from aacp.latency.table import LatencyTable
from aacp.pipeline.latency_stage import LatencyStage, measured_result, seconds_of_table, without_demand
from aacp.pipeline.plan import Plan
from aacp.pipeline.request import read_request, require_same
from aacp.pipeline.shared_estimate import SharedEstimate
from aacp.pipeline.task import PruningTask
from aacp.runs.chosen import TO_BE_CHECKED, ChosenStructure, LimitResult
from aacp.runs.files import CHECKS, CONFIRMED, CORRECTED, HISTORY, TABLE
from aacp.runs.folder import RunFolder
from aacp.runs.requests import ESTIMATE_FIELDS, Request
from aacp.search.baselines import GivenStructures
from aacp.search.curves import ErrorCurves
from aacp.search.history import Candidate, History
from aacp.search.loop import SearchResult, run_search
from aacp.search.methods import needs_curves, searcher
from aacp.search.saving import recorded
from aacp.search.screening import to_confirm
from aacp.search.screening_error import ScreeningError
from aacp.search.searcher import Searcher
from aacp.user.progress import report_progress, report_warning
from aacp.user.values import counted, score_text

MEASURED_CANDIDATES = 3  # the number of candidates that are measured after each search with a limit on latency
MAX_ROUNDS = 8  # rounds of measuring candidates and correcting the latency table before the limit is given up
MIN_EVALUATIONS = 20  # the shortest search with a corrected table
UNUSED_SHARE = 0.03  # of a limit on latency: if a table left more than this unused, it is corrected for another search
MAX_REFINEMENTS = 2  # searches that try to use what a table left
MIN_COMPARED = 5  # a search with fewer evaluations says nothing about the direction of a score
ONLY_WIDER = (
    "The smallest structure is too slow for the limit on latency, so only structures that are at least as wide as the "
    "fastest one, in every group, are searched."
)
NONE_MET = "No candidate was measured to meet the limit on latency."
FASTER = "The best candidate within the limit on latency is faster than the table says, so wider ones may meet it too."


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a search came to.

    Args:
        choice: the structure to deliver.
        history: every evaluation.
        table: the latency table, if the budget needs one, corrected by what was measured.
    """

    choice: ChosenStructure
    history: History
    table: LatencyTable | None


@dataclass(frozen=True, eq=False)
class Search:
    """The search for a structure.

    Args:
        task: the network and its data.
        graph: the network's channel graph.
        budget: the limits, by the names of their costs.
        plan: how to search.
        folder: where the search is kept.
        known: evaluations of earlier runs.
        latency: the latency measurements.
        shared: the estimates, and the workers that evaluate structures, if there are any.
        table: the latency table, if the budget needs one.
    """

    task: PruningTask
    graph: ChannelGraph
    budget: Budget
    plan: Plan
    folder: RunFolder
    known: History
    latency: LatencyStage
    shared: SharedEstimate
    table: LatencyTable | None = None

    @cached_property
    def whole_space(self) -> SearchSpace:
        """The structures of the pruning step."""
        return SearchSpace(self.graph, self.latency.find_steps())

    @cached_property
    def space(self) -> SearchSpace:
        """The structures to search: if the smallest one is too slow, those with the widths of the fastest or more."""
        return self.latency.within_reach(self.whole_space, self.bound_budget)

    @cached_property
    def bound_budget(self) -> Budget:
        """The budget on the costs of the graph."""
        return self.budget.on(self.graph, self.table)

    @property
    def estimate(self) -> PSAE:
        """The estimate on all images."""
        return self.shared.estimate(self.graph)

    def require_demand(self) -> None:
        """Reject a budget that the unpruned network meets."""
        budget = self.bound_budget
        if all(limit.holds(limit.cost.full) for limit in budget.limits):
            raise without_demand(budget)

    def run(self) -> Outcome:
        """The structure to deliver and what else was found; an interrupted search is resumed."""
        limit = self.budget.limit_on(LATENCY)
        found = self._search()
        self._warn_about_direction(found.history)
        if limit is not None and self.table is not None and self.table.elsewhere:
            return Outcome(self._predicted_choice(found.recommended), found.history, self.table)
        if limit is not None:  # candidates of earlier runs are left out, since their latencies were not measured
            return self._meet_latency(limit, found)
        better = better_known(self.known, self.bound_budget, self.space, found.best.score)
        return Outcome(choice_of(better or found.recommended, self.bound_budget), found.history, self.table)

    def choices(self, candidates: Sequence[Candidate]) -> list[ChosenStructure]:
        """Those of some candidates that meet all limits, as they would be delivered; latencies are measured."""
        limit = self.budget.limit_on(LATENCY)
        is_measured = limit is not None and not (self.table is not None and self.table.elsewhere)
        predicted = self.budget.without(LATENCY).on(self.graph) if is_measured else self.bound_budget
        within = [each for each in candidates if bool(predicted.feasible(each.structure.counts))]
        if limit is None:
            return [choice_of(candidate, self.bound_budget) for candidate in within]
        if not is_measured:
            return [self._predicted_choice(candidate) for candidate in within]
        checks = self.latency.check([candidate.structure for candidate in within], limit)
        return [
            self._measured_choice(candidate, checked)
            for candidate, checked in zip(within, checks, strict=True)
            if checked.verdict(limit) is Verdict.MET
        ]

    def _search(self) -> SearchResult:
        if self.space != self.whole_space:
            report_progress(ONLY_WIDER)
        method = searcher(
            self.plan.method, self.space, self.bound_budget, self.plan.seed,
            known=self._usable_known, curves=self._curves, proposals=self.plan.proposed_at_once,
        )  # fmt: skip
        few = self.shared.few(self.estimate)
        if few is not None:
            method.images = (few.holdout.images, self.estimate.holdout.images)
        found = self._evaluated(method, few or self.estimate, self.plan.expected_evaluations, self.folder)
        if found.stopped == "exhausted":
            self._report_exhausted(len(found.history))
        return found if few is None else self._confirmed(method)

    @property
    def _usable_known(self) -> History:
        """The evaluations of earlier runs whose latencies the table predicts: a finer step has narrower structures."""
        if self.table is None:
            return self.known
        least = self.whole_space.smallest.counts
        return History(each for each in self.known if bool(np.all(np.greater_equal(each.structure.counts, least))))

    def _evaluated(self, method: Searcher[Any], estimate: PSAE, evaluations: int, folder: RunFolder) -> SearchResult:
        """The result of a search method in a folder, evaluated by an estimate."""
        found = run_search(method, estimate, evaluations=evaluations, folder=folder, queue=self.shared.queue(estimate))
        if found.stopped == "interrupted":
            raise KeyboardInterrupt
        return found

    def _confirmed(self, searched: Searcher[Any]) -> SearchResult:
        """The result of a search on few images, after its most promising structures were scored on all."""
        structures = to_confirm(searched)
        images = self.estimate.holdout.images
        method = GivenStructures(self.space, self.bound_budget, start=structures)
        method.images = (images, images)
        folder = RunFolder(self.folder.path / CONFIRMED)
        report_progress(f"scoring {len(structures)} of the structures on all {images:,} images")
        found = self._evaluated(method, self.estimate, len(structures), folder)
        folder.listing.add(HISTORY)  # so that lines which are lost later are noticed
        error = ScreeningError.of(searched.history, found.history)
        if error is not None:
            report_progress(error.text())
        history = History.merged([searched.history, found.history])
        assert history.best is not None
        return SearchResult(history.best, history.best, history, found.stopped)

    def _warn_about_direction(self, history: History) -> None:
        """Warn if most pruned networks score higher than the unpruned one, as if a lower score were better."""
        is_own = self.task.score is not accuracy and not isinstance(self.task.score, Likeness)
        if not is_own or len(history) < MIN_COMPARED:
            return
        usual = float(np.median(history.scores))
        unpruned = self.task.unpruned_holdout()
        if usual > unpruned:
            report_warning(
                f"Most pruned networks score higher than the unpruned one (median {usual:.4g}, unpruned "
                f"{unpruned:.4g}). If a lower score is better, return its negative and search again."
            )

    def _report_exhausted(self, evaluated: int) -> None:
        """Say why a search evaluated fewer structures than requested."""
        if evaluated >= self.plan.expected_evaluations:
            return
        widths = [group.width for group in self.graph.free]
        is_finest = [len(choices) for choices in self.whole_space.choices] == widths
        advice = "" if is_finest else " A finer step (--step, Plan.pruning_step) gives it more to choose from."
        report_progress(
            f"The search ended after {evaluated} of {self.plan.search_length} evaluations, because it found no other "
            f"structure that meets the limits and uses them up.{advice}"
        )

    @property
    def _curves(self) -> ErrorCurves | None:
        """The error curves that the search starts from: if the method needs them, or obs has prepared them anyway."""
        is_wanted = needs_curves(self.plan.method) or self.plan.importance == "obs"
        return self.estimate.inheritance.error_curves if is_wanted else None

    def _meet_latency(self, limit: Limit, found: SearchResult) -> Outcome:
        """The best candidate whose measured latency meets the limit.

        The best candidates are measured from end to end. If none of them meets the limit, or the measurements are too
        noisy to tell, or the one that meets it is faster than the table says, the table is corrected by the upper ends
        of the measured intervals, saved, and a shorter search follows that knows all evaluations. A resumed run starts
        with the first table and corrects it by the same measurements.
        """
        shorter = replace(self.plan, evaluations=max(MIN_EVALUATIONS, self.plan.search_length // 4))
        latest = self  # the latest search, whose table all measurements so far have corrected
        histories = [found.history]
        measured: list[LatencyCheck] = []
        best: ChosenStructure | None = None
        refinements = 0
        for number in range(1, MAX_ROUNDS + 1):
            candidates = self._best(found)
            checks = self.latency.check([candidate.structure for candidate in candidates], limit)
            measured += checks
            met = self._first_met(candidates, checks, limit)
            if met is not None:
                choice = latest._measured_choice(*met)
                best = choice if best is None or choice.score > best.score else best
                if not latest._leaves_room(*met, limit):
                    break
            if number == MAX_ROUNDS or refinements == MAX_REFINEMENTS:
                break
            refinements += best is not None
            corrected = latest._correct_table(limit, checks)
            corrected.save(self.folder.path / TABLE)
            report_progress(
                f"{NONE_MET if met is None else FASTER} These measurements correct the latency table, and a search of "
                f"{counted(shorter.expected_evaluations, 'evaluation')} follows."
            )
            known = History.merged([self.known, *histories])
            folder = RunFolder(self.folder.path / _corrected_name(number, measured))
            following = replace(self, table=corrected, plan=shorter, known=known, folder=folder)
            try:
                found = following._search()
            except InfeasibleBudget:  # by the corrected table, which is not proof
                if best is not None:
                    break
                raise self._out_of_reach(limit, measured) from None
            latest = following
            histories.append(found.history)
        if best is None:
            raise _given_up(limit, measured)
        return Outcome(best, History.merged(histories), latest.table)

    def _first_met(
        self, candidates: Sequence[Candidate], checks: Sequence[LatencyCheck], limit: Limit
    ) -> tuple[Candidate, LatencyCheck] | None:
        """The first candidate that was measured to meet the limit, with its measurement; all up to it are reported."""
        for candidate, checked in zip(candidates, checks, strict=True):
            self._report(candidate, checked, limit)
            if checked.verdict(limit) is Verdict.MET:
                return candidate, checked
        return None

    def _leaves_room(self, candidate: Candidate, checked: LatencyCheck, limit: Limit) -> bool:
        """Whether a candidate is faster than the table says, so that a search with a better table may find a wider one.

        If by the table another limit is used up more than that on latency, the other one decides how wide it may be.
        """
        used = {result.cost: result.reached / result.bound for result in choice_of(candidate, self.bound_budget).limits}
        is_tightest = used[LATENCY] == max(used.values())
        return is_tightest and checked.share_of(limit).upper < used[LATENCY] - UNUSED_SHARE

    def _out_of_reach(self, limit: Limit, measured: list[LatencyCheck]) -> AACPError:
        """The error if a corrected table says that nothing meets a limit: a measurement decides whether that is so."""
        if any(checked.verdict(limit) is Verdict.UNDECIDED for checked in measured):
            return _given_up(limit, measured)
        (smallest,) = self.latency.check([self.space.smallest], limit)
        if smallest.verdict(limit) is Verdict.MISSED:
            return InfeasibleBudget(
                f"{LATENCY}: {limit.phrase} cannot be met, since the smallest structure that was searched takes "
                f"{smallest}. {smallest.remedy}."
            )
        return InconclusiveMeasurement(
            f"{LATENCY}: {counted(len(measured), 'candidate')} missed the limit when measured, and the corrected table "
            f"says that nothing meets it, but the smallest structure took {smallest}. Remove "
            f"{self.latency.folder.path / CHECKS} and call again on a less busy machine, or loosen the limit."
        )

    def _correct_table(self, limit: Limit, checks: list[LatencyCheck]) -> LatencyTable:
        """The table of this search, corrected by measurements of whole structures."""
        assert self.table is not None
        uppers = [seconds_of_table(limit, checked, self.table).upper for checked in checks]
        return self.table.corrected(self.graph, [each.structure for each in checks], uppers)

    def _best(self, found: SearchResult) -> list[Candidate]:
        """The candidate that the search recommends, then the best others."""
        others = [candidate for candidate in found.history.top(MEASURED_CANDIDATES) if candidate != found.recommended]
        return [found.recommended, *others][:MEASURED_CANDIDATES]

    def _predicted_choice(self, candidate: Candidate) -> ChosenStructure:
        """A candidate to deliver whose latency cannot be measured here."""
        report_progress(f"number {candidate.number}, score {score_text(candidate.score)}: latency {TO_BE_CHECKED}")
        choice = choice_of(candidate, self.bound_budget)
        assert self.table is not None
        problem = self.table.problem
        results = [
            replace(result, measured=False, table_problem=problem) if result.cost == LATENCY else result
            for result in choice.limits
        ]
        return replace(choice, limits=tuple(results))

    def _measured_choice(self, candidate: Candidate, checked: LatencyCheck) -> ChosenStructure:
        """A candidate to deliver, with its measured latency."""
        choice = choice_of(candidate, self.bound_budget)
        results = [
            measured_result(result, limit, checked) if result.cost == LATENCY else result
            for limit, result in zip(self.bound_budget.limits, choice.limits, strict=True)
        ]
        return replace(choice, limits=tuple(results))

    def _report(self, candidate: Candidate, checked: LatencyCheck, limit: Limit) -> None:
        verdict = checked.verdict(limit).value
        report_progress(f"number {candidate.number}, score {score_text(candidate.score)}: {checked}, {verdict}")


def _corrected_name(number: int, measured: list[LatencyCheck]) -> str:
    """The folder of the search that follows a correction of the table by these measurements.

    A resumed run repeats measurements that were too noisy. The new ones correct the table in another way, so that the
    search with the former table cannot be continued.
    """
    known = [[*checked.structure, checked.ratio.upper, checked.seconds.upper] for checked in measured]
    return f"{CORRECTED}-{number}-{hashlib.blake2b(json.dumps(known).encode(), digest_size=4).hexdigest()}"


def _given_up(limit: Limit, measured: list[LatencyCheck]) -> InfeasibleBudget | InconclusiveMeasurement:
    """The error after the last candidate: nothing says that a limit cannot be met if measurements were too noisy."""
    words = f"{limit.cost.name}: {counted(len(measured), 'candidate')} met the limit by the latency table, but"
    last = measured[-1]
    undecided = sum(checked.verdict(limit) is Verdict.UNDECIDED for checked in measured)
    if undecided:
        return InconclusiveMeasurement(
            f"{words} the measurements of {undecided} were too noisy to tell, and the others missed it; the last "
            f"took {last}. Call again on a less busy machine, where these are measured again, or loosen the limit."
        )
    return InfeasibleBudget(f"{words} none did when measured; the last took {last}. {last.remedy}.")


def choice_of(candidate: Candidate, budget: Budget) -> ChosenStructure:
    """A candidate to deliver, with its costs beside the limits."""
    limits = tuple(LimitResult.of(limit, candidate.structure) for limit in budget.limits)
    return ChosenStructure(candidate.structure.counts, candidate.score, limits)


def better_known(known: History, budget: Budget, space: SearchSpace, score: float) -> Candidate | None:
    """The best candidate of other searches within a budget, if it has more than `score`."""
    better = History(candidate for candidate in known if candidate.score > score)
    return next((candidate for candidate in better.within(budget) if candidate.structure in space), None)


def known_evaluations(request: Request, graph: ChannelGraph) -> History:
    """Every evaluation of the runs that a request names, which must have estimated scores in the same way."""
    histories = []
    for path in request.known_from:
        folder = RunFolder(path)
        advice = "Leave this folder out (--from, known_from), or search with its settings."
        require_same(folder.path, read_request(folder), request, (*ESTIMATE_FIELDS, "metric_source"), advice)
        history = recorded(folder).whole
        for counts in history.counts_in_parts():
            graph.valid_counts(counts)  # rejects structures of another graph
        histories.append(history)
    return History.merged(histories)
