"""Hand-picked mutants of the code that joins the parts of the library, each with the tests that must notice it.

`mutants.py` runs the tests; `tests/test_mutants.py` checks that every mutant still applies.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HandPicked:
    """A mutant: one text of a file replaced by another.

    Args:
        name: the fault, in words.
        file: below src/aacp.
        old: occurs exactly once in the file.
        new: what replaces it.
        tests: those that must notice it, as pytest takes them, below tests.
        named_in_issue: whether the issue that asked for these tests names it.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    named_in_issue: bool = False


def _named(name: str, file: str, old: str, new: str, *tests: str) -> HandPicked:
    return HandPicked(name, file, old, new, tests, named_in_issue=True)


def _mutant(name: str, file: str, old: str, new: str, *tests: str) -> HandPicked:
    return HandPicked(name, file, old, new, tests)


def _option(command: str, name: str) -> str:
    return f"glue/test_command_line_options.py::test_every_option_has_an_effect[{command}-{name}]"


def _later_option(command: str, name: str) -> str:
    test = "test_every_option_of_what_follows_a_search_has_an_effect"
    return f"glue/test_command_line_options.py::{test}[{command}-{name}]"


# -- the tests ---------------------------------------------------------------------------------------------------------

READS = "glue/test_who_reads_what.py::"
FINETUNED = f"{READS}test_fine_tuning_sees_training_data_and_the_search_the_hold_out"
EVERY_READ = f"{READS}test_every_read_of_every_stage_is_known"
PLANNED_NUMBER = f"{READS}test_as_many_images_are_read_as_were_planned"
ON_HOLDOUT = f"{READS}test_the_hold_out_is_trained_on_after_the_search_if_that_was_planned"
SCRATCH = f"{READS}test_training_from_scratch_has_no_teacher_and_sees_training_data"
UNTAUGHT = f"{READS}test_without_distillation_nobody_teaches_and_without_a_rate_the_inherited_weights_stay"
TEACHER = f"{READS}test_a_teacher_that_was_given_teaches_instead_of_the_unpruned_network"
PROBING = f"{READS}test_probing_trains_on_training_data_and_judges_by_the_hold_out"
MIMICRY_READS = f"{READS}test_repair_and_mimicry_see_calibration_images_alone"
RECOVERY = "glue/test_recovery.py::"
PROBES_COMPARED = f"{READS}test_probes_are_compared_with_the_unpruned_score_on_the_hold_out"

TRAININGS = "pipeline/test_training.py::"
DIVERGED = "test_a_training_that_diverged_is_repeated_with_another_rate"
CORRECTED = "test_a_mistake_in_the_training_is_corrected_without_another_search"
RESUMED_AGAIN = "test_an_interrupted_training_is_resumed_and_a_finished_one_replaced_by_again"

AFTERWARDS = "glue/test_trainings.py::"
NOT_TRAINED_ON = f"{AFTERWARDS}test_the_hold_out_and_test_data_are_not_trained_on"
FIRST_WEIGHTS = f"{AFTERWARDS}test_fine_tuning_inherits_and_scratch_draws_by_the_seed_of_the_training"

DELIVERY = "glue/test_delivery.py::"
BY_SCALES = f"{DELIVERY}test_the_channels_with_the_largest_scales_are_delivered"
RANDOM_CHANNELS = f"{DELIVERY}test_channels_drawn_at_random_follow_the_seed_of_the_plan"
STATISTICS = f"{DELIVERY}test_batch_norms_are_delivered_with_the_statistics_of_the_calibration_images"
PLANNED_SEARCH = f"{DELIVERY}test_the_search_is_the_one_that_was_planned"
FROZEN = f"{DELIVERY}test_what_is_frozen_or_out_of_scope_is_delivered_whole"

EVALUATED = f"{DELIVERY}test_the_evaluation_is_that_of_both_networks"
RECORDED = f"{DELIVERY}test_the_file_records_the_name_and_the_channels_and_the_page_is_written"
ANOTHER_REQUEST = f"{DELIVERY}test_another_request_does_not_resume_the_run"
OTHER_TRAINING = "pipeline/test_pruning.py::test_a_folder_of_another_request_is_rejected_by_name"

VERDICT = "glue/test_latency_verdict.py::"
BY_MEDIAN_ALONE = f"{VERDICT}test_a_structure_whose_median_alone_is_fast_enough_is_not_delivered"
AT_ONCE = f"{VERDICT}test_a_structure_whose_interval_keeps_to_the_limit_is_delivered_at_once"

COMMANDS = "glue/test_command_line_options.py::"
PRUNING = "pipeline/test_pruning.py::"
SWEEP = "pipeline/test_sweep.py::"
MAX_DROP = "pipeline/test_max_drop.py::"
OWN_PARTS = "pipeline/test_own_parts.py::"
SWEPT = "glue/test_sweeps.py::test_score_and_loss_of_a_sweep_are_used_in_its_runs"
LATENCY = "pipeline/test_latency_stage.py::"
FASTEST = "pipeline/test_fastest.py::"
MET_BY_WIDER = f"{FASTEST}test_a_limit_that_the_smallest_structure_misses_is_met"
NOTHING_MEETS = f"{FASTEST}test_a_limit_that_nothing_meets_is_rejected_with_the_fastest_structure"
UNIFORM_FINALIST = f"{FASTEST}test_the_uniform_finalist_meets_a_limit_that_the_smallest_structure_misses"
SWEPT_BY_FASTEST = f"{FASTEST}test_a_sweep_checks_and_meets_such_limits"

# -- the data and the teacher ------------------------------------------------------------------------------------------

DATA = [
    _named(
        "the hold-out is trained on", "pipeline/task.py",
        "else (data.train, data.holdout)", "else (data.all_training(), data.holdout)", FINETUNED,
    ),
    _named(
        "the search scores on test data", "pipeline/shared_estimate.py",
        "self.task.read(self.task.data.holdout)", "self.task.read(self.task.data.test)", FINETUNED,
    ),
    _named(
        "batch norms are recalibrated on test data", "pipeline/task.py",
        "self.read(sampled(self.data.train,", "self.read(sampled(self.data.test,",
        FINETUNED,
    ),
    _named(
        "no teacher although the recipe distils", "pipeline/training.py",
        "task.teacher_for(self.plan)", "task.teacher", FINETUNED,
    ),
    _mutant(
        "the unpruned network never teaches", "pipeline/task.py",
        "return self.teacher or (self.model if plan.recipe.distillation else None)", "return self.teacher", FINETUNED,
    ),
    _mutant(
        "a teacher that was given is ignored", "pipeline/task.py",
        "return self.teacher or (self.model if", "return (self.model if", TEACHER,
    ),
    _mutant("the teacher is not passed to the run", "pipeline/pruning.py",
            "name, place, score, loss, teacher)", "name, place, score, loss)", TEACHER),
    _mutant(
        "the search scores on training data", "pipeline/shared_estimate.py",
        "self.task.read(self.task.data.holdout)", "self.task.read(self.task.data.train)", FINETUNED,
    ),
    _mutant(
        "batch norms are recalibrated on the hold-out", "pipeline/task.py",
        "self.read(sampled(self.data.train,", "self.read(sampled(self.data.holdout,",
        FINETUNED,
    ),
    _mutant(
        "batch norms are recalibrated on all training data", "pipeline/task.py",
        "sampled(self.data.train, plan.calibration_images, plan.seed), plan.calibration_images)", "self.data.train)",
        PLANNED_NUMBER,
    ),
    _mutant(
        "train_on_holdout is ignored", "pipeline/task.py",
        "(data.all_training(), None) if plan.train_on_holdout else ", "", ON_HOLDOUT,
    ),
    _mutant(
        "training is judged by a hold-out that it has seen", "pipeline/task.py",
        "(data.all_training(), None)", "(data.all_training(), data.holdout)", ON_HOLDOUT,
    ),
    _mutant(
        "the example comes from the training data", "pipeline/task.py",
        "self.read(self.data.holdout, 1,", "self.read(self.data.train, 1,", EVERY_READ,
    ),
    _mutant(
        "the example is two inputs", "pipeline/task.py",
        "self.read(self.data.holdout, 1,", "self.read(self.data.holdout, 2,", AT_ONCE,
    ),
    _mutant(
        "the test score is that of the hold-out", "pipeline/task.py",
        "test = self.score_network(network, self.data.test)", "test = self.score_network(network, self.data.holdout)",
        FINETUNED,
    ),
    _mutant(
        "a hold-out that was trained on is scored", "pipeline/task.py",
        "None if trained_on_holdout else self.score_network", "self.score_network", ON_HOLDOUT,
    ),
    _mutant(
        "evaluation forgets that the hold-out was trained on", "pipeline/training.py",
        ", trained_on_holdout=self.plan.train_on_holdout)", ")", ON_HOLDOUT,
    ),
    _mutant(
        "every network that was trained counts as trained on the hold-out", "pipeline/training.py",
        "trained_on_holdout=self.plan.train_on_holdout", "trained_on_holdout=self.plan.recipe is not None", FINETUNED,
    ),
    _mutant(
        "the pruned network gets the score of the unpruned one", "pipeline/task.py",
        "if network is not self.model:", "if network is None:", FINETUNED,
    ),
    _mutant("a loader is not seeded", "data/seeding.py",
            "torch.default_generator.manual_seed(derived(0))", "torch.default_generator.seed()",
            "pipeline/test_task.py::test_what_a_shuffling_augmenting_loader_draws_is_the_same_in_every_call"),
    _mutant("the score function is dropped by prune", "pipeline/pruning.py",
            "name, place, score, loss, teacher)", "name, place, None, loss, teacher)", FINETUNED),
    _mutant("the loss function is dropped by prune", "pipeline/pruning.py",
            "name, place, score, loss, teacher)", "name, place, score, None, teacher)", FINETUNED),
    _mutant("the score function is dropped by sweep", "pipeline/sweep.py",
            "device_of(device), score, loss, teacher)", "device_of(device), None, loss, teacher)", SWEPT),
    _mutant("the loss function is dropped by sweep", "pipeline/sweep.py",
            "device_of(device), score, loss, teacher)", "device_of(device), score, None, teacher)", SWEPT),
    _mutant("the estimate ignores the score function", "pipeline/shared_estimate.py",
            "(graph), holdout, score=self.task.score,", "(graph), holdout,", FINETUNED),
    _mutant("training ignores the loss function", "pipeline/training.py",
            "            loss=task.loss, score=task.score,", "            score=task.score,", FINETUNED, SCRATCH),
    _mutant("training has no hold-out", "pipeline/training.py",
            "recipe, holdout=holdout, teacher", "recipe, teacher", SCRATCH),
    _mutant("training keeps no checkpoints", "pipeline/training.py",
            "score=task.score, folder=self.place.path / TRAINING,", "score=task.score,",
            "commands/test_finish.py::test_a_search_stops_at_its_structure_and_finetune_continues"),
    _mutant("from_scratch is reversed", "pipeline/new_weights.py",
            "    if plan.from_scratch:", "    if not plan.from_scratch:", SCRATCH),
    _mutant("training from scratch keeps the inherited weights", "pipeline/new_weights.py",
            "return network_with_new_weights(task, plan, inheritance, structure)",
            "return inheritance.network(structure)",
            SCRATCH),
]  # fmt: skip

# -- what is delivered -------------------------------------------------------------------------------------------------

DELIVERED = [
    _named("the delivered network ignores the importance", "pipeline/training.py",
           "Recovering(self.task, self.plan, self.shared.inheritance(graph)",
           'Recovering(self.task, self.plan, SharedEstimate(self.task, replace(self.plan, importance="l1"))'
           ".inheritance(graph)", BY_SCALES),
    _named("the delivered network ignores the seed of the importance", "pipeline/training.py",
           "Recovering(self.task, self.plan, self.shared.inheritance(graph)",
           "Recovering(self.task, self.plan, SharedEstimate(self.task, replace(self.plan, seed=0)).inheritance(graph)",
           RANDOM_CHANNELS),
    _mutant("the trained network ignores the importance", "pipeline/training.py",
            "inheritance = self.shared.inheritance(graph)",
            'inheritance = SharedEstimate(self.task, replace(self.plan, importance="l1")).inheritance(graph)',
            UNTAUGHT),
    _mutant("the network is not repaired without training", "pipeline/plan.py",
            "defaults.UNTRAINED_RECONSTRUCTION if self.recipe is None else", "None if self.recipe is None else",
            f"{RECOVERY}test_without_training_the_repaired_network_is_delivered"),
    _mutant("the mimicry is left out", "pipeline/recovery.py", "if self.plan.mimic:\n            features",
            "if False:\n            features", f"{RECOVERY}test_a_mimicked_network_is_delivered_and_recorded"),
    _mutant("the mimicry ignores the seed", "pipeline/recovery.py", "seed=self.plan.seed, folder", "folder",
            f"{RECOVERY}test_a_mimicked_network_is_delivered_and_recorded"),
    _mutant("the mimicry learns from the hold-out", "pipeline/recovery.py",
            "self.task.model, self.inheritance.calibration, self.plan.mimic",
            "self.task.model, self.task.read(self.task.data.holdout), self.plan.mimic", MIMICRY_READS),
    _mutant("the mimicry compares other channels", "pipeline/recovery.py",
            "np.flatnonzero(stays(graph.lanes[layer.input], units))",
            "np.arange(int(stays(graph.lanes[layer.input], units).sum()))",
            f"{RECOVERY}test_features_are_compared_at_the_inputs_that_are_kept"),
    _mutant("the mimicry keeps no state", "pipeline/recovery.py", "folder=self.place.path / TRAINING, ", "",
            f"{RECOVERY}test_a_killed_mimicry_resumes_with_the_same_bytes"),
    _mutant("another number of steps resumes a mimicry", "pipeline/training_request.py",
            '"train_on_holdout", "mimic", ', '"train_on_holdout", ',
            f"{RECOVERY}test_another_number_of_steps_is_another_training"),
    _mutant("scores of recovery are exchanged", "pipeline/recovery.py",
            "RecoveryStep(self._last, delivered.holdout, delivered.test)",
            "RecoveryStep(self._last, delivered.test, delivered.holdout)",
            f"{RECOVERY}test_a_mimicked_network_is_delivered_and_recorded"),
    _mutant("a finished run repairs again", "pipeline/training.py",
            "if is_complete(self.place.path / ARTEFACT):", "if False:",
            f"{RECOVERY}test_a_finished_network_is_read_and_not_repaired_again"),
    _mutant("a recorded absence of repair is forgotten", "pipeline/request.py",
            'if value is not None or name == "reconstruction"', "if value is not None",
            f"{RECOVERY}test_the_reconstruction_of_a_search_is_that_of_what_follows"),
    _mutant("scores with another seed are reused", "runs/requests.py", '"holdout", "seed",', '"holdout",',
            "glue/test_reuse.py"),
    _mutant("unlabelled data are scored by accuracy", "pipeline/task.py",
            "Likeness(model) if not has_targets(first)", "Likeness(model) if has_targets(first)",
            f"{RECOVERY}test_inputs_alone_are_enough"),
    _mutant("the likeness is to the pruned network", "pipeline/evaluation.py",
            "score = Likeness(_original(network, request, model))", "pass", f"{RECOVERY}test_inputs_alone_are_enough"),
    _named("delivered without recalibration", "estimate/inheritance.py",
           "set_statistics(network, running_norms(network), self.calibration)\n        return network\n\n    def s",
           "pass\n        return network\n\n    def s", STATISTICS),
    _mutant("estimate and delivery ignore the importance", "pipeline/shared_estimate.py",
            "importance=self.plan.importance,", "", BY_SCALES),
    _mutant("estimate and delivery ignore the seed", "pipeline/shared_estimate.py",
            "seed=self.plan.seed,", "", RANDOM_CHANNELS),
    _mutant("the reconstruction is ignored", "pipeline/shared_estimate.py",
            "reconstruction=self.plan.chosen_reconstruction,", "",
            f"{OWN_PARTS}test_a_reconstruction_changes_the_network_that_is_delivered"),
    _mutant("frozen layers are ignored", "pipeline/pruning.py", "            frozen=plan.frozen,\n", "", FROZEN),
    _mutant("the scope is ignored", "pipeline/pruning.py", "            scope=plan.traced_scope,\n", "", FROZEN),
    _mutant("the ties are ignored", "pipeline/pruning.py", "            tie=plan.tie,\n", "",
            f"{DELIVERY}test_tied_groups_are_delivered_with_the_same_share"),
    _mutant("the parts are ignored", "pipeline/pruning.py", "            parts=plan.parts or None,\n", "",
            "pipeline/test_parts.py::test_a_detector_is_pruned_trained_and_loaded"),
    _mutant("the file records other channels", "pipeline/training.py", ".kept(choice.structure)", ".kept(graph.full)",
            RECORDED),
    _mutant("the file does not record the name", "pipeline/training.py",
            "model=self.task.name, example", "model=None, example", RECORDED),
    _mutant("the unpruned costs are reported for the pruned network", "pipeline/training.py",
            "network, graph, choice.structure, trained", "network, graph, graph.full, trained",
            EVALUATED),
    _mutant("the unpruned network is reported as pruned", "pipeline/training.py",
            "self.task.measure(self.task.model, graph, graph.full)",
            "self.task.measure(network, graph, choice.structure)",
            EVALUATED),
    _mutant("costs of the user's are not reported", "pipeline/training.py",
            "if limit.cost not in COSTS]", "if limit.cost in COSTS]",
            f"{OWN_PARTS}test_a_cost_of_the_users_limits_a_run_and_is_named_in_every_result"),
    _mutant("the sizes of both files are the same", "pipeline/training.py",
            "file_bytes=file_bytes(self.task.model, graph)", "file_bytes=size", EVALUATED),
    _mutant("original and pruned are exchanged in the export", "pipeline/training.py",
            "task.model, network, task.example(), where", "network, task.model, task.example(), where",
            f"{PRUNING}test_what_is_delivered_loads_by_name_and_in_onnx_runtime"),
    _mutant("an export that was not requested is made", "pipeline/training.py",
            "if not self.plan.export:", "if False:", PLANNED_SEARCH),
    _mutant("there is no report", "pipeline/pruning.py",
            "unreported=write_report_or_reason(self.folder)", 'unreported=""',
            RECORDED),
    _mutant("an incomplete file is kept", "pipeline/training.py",
            "        set_aside_other_network(self.place, choice)\n", "",
            "pipeline/test_reuse.py::test_a_network_that_was_cut_short_is_written_again_without_checksums"),
    _mutant("the timings are exchanged", "pipeline/delivery.py",
            'before=_latency(timed["original"])', 'before=_latency(timed["pruned"])',
            "pipeline/test_delivery.py::test_each_network_is_reported_with_its_own_time"),
    _mutant("a structure that cannot be cut is delivered", "pipeline/task.py",
            "if difference is not None:", "if False:",
            "pipeline/test_task.py::test_a_structure_that_is_not_the_masked_network_is_not_delivered"),
    _mutant("the chosen structure is not compared with the masked network", "pipeline/pruning.py",
            "self.task.require_equal(self.shared.inheritance(graph), choice.structure)", "pass",
            f"{PRUNING}test_the_chosen_structure_is_compared_with_the_masked_network"),
]  # fmt: skip

# -- the search --------------------------------------------------------------------------------------------------------

SEARCH = [
    _mutant("the released search adds to the best of the population", "search/evolution.py",
            'if self.settings.base != "best ever":', "if True:", "search/test_evolution.py"),
    _mutant("the length of a search does not follow the method", "pipeline/plan.py",
            "named_method(self.method).evaluations if", "200 if", "pipeline/test_plan.py"),
    _mutant("structures are scored on a part of the hold-out", "estimate/psae.py",
            "scored(self.score, network, self.holdout, ",
            "scored(self.score, network, Batches.of(self.holdout, images=8), ", "glue/test_full_scores.py"),
    _named("the de preset reinitialises", "search/methods.py",
           "replace(PAPER, reinitialise_after=None)", "PAPER", "glue/test_presets.py"),
    _named("a latency limit is judged by the median", "latency/check.py",
           "if share.upper <= 1:", "if share.median <= 1:",
           BY_MEDIAN_ALONE),
    _mutant("a latency limit is judged by the lower end of the interval", "latency/check.py",
            "if share.upper <= 1:", "if share.lower <= 1:",
            BY_MEDIAN_ALONE),
    _mutant("seconds are judged by the ratio", "latency/check.py",
            "return self.seconds.scaled(1 / limit.at_most)", "return self.ratio.scaled(1 / limit.at_most)",
            BY_MEDIAN_ALONE),
    _mutant("a rate is taken for the share to keep", "latency/check.py",
            "1 / (1 - limit.pruning_rate)", "1 / limit.pruning_rate", AT_ONCE),
    _mutant("a latency table that was given is ignored", "pipeline/latency_stage.py",
            "if self.plan.latency_table is not None:", "if False:",
            f"{LATENCY}test_a_table_that_was_measured_before_is_taken_or_rejected"),
    _mutant("limits out of reach are found after measuring", "pipeline/latency_stage.py",
            "self._require_within_reach(budget, space)", "pass",
            f"{LATENCY}test_limits_out_of_reach_are_rejected_before_a_table_is_measured"),
    _mutant("limits in int8 are rejected by the smallest structure", "pipeline/latency_stage.py",
            "if limit is None or self.plan.deployment.is_quantized:", "if limit is None:", MET_BY_WIDER),
    _mutant("the steps that were found are advised again", "pipeline/latency_stage.py",
            'SLOW_WIDTHS if self._could_find_steps else ""', "SLOW_WIDTHS", NOTHING_MEETS),
    _mutant("the search needs the smallest structure to be fast", "pipeline/searching.py",
            "return self.latency.within_reach(self.whole_space, self.bound_budget)", "return self.whole_space",
            MET_BY_WIDER),
    _mutant("nobody says that narrow structures are left out", "pipeline/searching.py",
            "if self.space != self.whole_space:", "if False:", MET_BY_WIDER),
    _mutant("a corrected search is resumed in another part of the space", "pipeline/searching.py",
            "-{hashlib.blake2b(json.dumps(known).encode(), digest_size=4).hexdigest()}", "",
            f"{FASTEST}test_a_search_is_not_resumed_in_another_part_of_the_space"),
    _mutant("a run needs the smallest structure to be fast", "pipeline/pruning.py",
            "search.bound_budget.check(search.space)", "search.bound_budget.check(space)", MET_BY_WIDER),
    _mutant("the uniform finalist needs the smallest structure to be fast", "pipeline/finalists.py",
            "search.latency.within_reach(space, budget)", "space", UNIFORM_FINALIST),
    _mutant("the uniform finalist is as wide as the fastest structure", "pipeline/finalists.py",
            "if found in search.whole_space:", "if found in search.space:", UNIFORM_FINALIST),
    _mutant("the table is corrected by medians", "pipeline/searching.py",
            "self.table).upper for", "self.table).median for",
            BY_MEDIAN_ALONE),
    _mutant("the reported latency is the upper end of the interval", "pipeline/latency_stage.py",
            "reached=checked.ratio.median * full", "reached=checked.ratio.upper * full",
            BY_MEDIAN_ALONE),
    _mutant("a limit on latency is not measured", "pipeline/searching.py",
            "if limit is not None:  # candidates", "if False:  # candidates",
            BY_MEDIAN_ALONE),
    _mutant("the search ignores the method", "pipeline/searching.py",
            "self.plan.method, self.space", '"default", self.space', PLANNED_SEARCH),
    _mutant("the search ignores the seed", "pipeline/searching.py",
            "self.bound_budget, self.plan.seed,", "self.bound_budget,",
            PLANNED_SEARCH),
    _mutant("the search ignores the number of evaluations", "pipeline/searching.py",
            "self.plan.expected_evaluations, self.folder)", "6, self.folder)", PLANNED_SEARCH),
    _mutant("the search does not use its workers", "pipeline/searching.py",
            ", queue=self.shared.queue(estimate))", ")", "pipeline/test_shared_estimate.py"),
    _mutant("the search ignores the number of proposals", "pipeline/searching.py",
            "proposals=self.plan.proposed_at_once", "proposals=None", "pipeline/test_shared_estimate.py"),
    _mutant("workers stay after the search", "pipeline/pruning.py",
            "next search\n                self.shared.release()", "next search\n                pass",
            "pipeline/test_shared_estimate.py"),
    _mutant("the workers of a sweep end with its first search", "pipeline/pruning.py",
            "if not self._shares_estimate:", "if True:", "pipeline/test_shared_estimate.py"),
    _mutant("the estimate keeps its memory during a training", "pipeline/shared_estimate.py",
            "self._estimate = self._few = None\n        if", "if", "pipeline/test_shared_estimate.py"),
    _mutant("the estimate keeps its memory while finalists are trained", "pipeline/halving.py",
            "search.shared.release()  #", "pass  #", "pipeline/test_shared_estimate.py"),
    _mutant("known structures are sent to workers again", "pipeline/shared_estimate.py",
            "is_known = structure.counts in self._known", "is_known = False", "pipeline/test_shared_estimate.py"),
    _mutant("scores are used as they come", "search/searcher.py",
            "            if not self.lookahead:\n", "            if True:\n", "search/test_outstanding.py"),
    _mutant("what is proposed ahead depends on how many scores are reported at once", "search/searcher.py",
            "self._propose_ahead()  # what is", "pass  # what is", "search/test_outstanding.py"),
    _mutant("a resumed search forgets what is outstanding", "search/ledger.py",
            "Outstanding(saved.proposals)", "Outstanding()", "search/test_outstanding.py"),
    _mutant("the search ignores the pruning step", "pipeline/searching.py",
            "SearchSpace(self.graph, self.latency.find_steps())", "SearchSpace(self.graph, 1 / 8)", PLANNED_SEARCH),
    _mutant("a better structure of an earlier run is ignored", "pipeline/searching.py",
            "better or found.recommended", "found.recommended", "glue/test_reuse.py"),
    _mutant("a worse structure of an earlier run is preferred", "pipeline/searching.py",
            "candidate.score > score", "candidate.score < score", "glue/test_reuse.py"),
    _mutant("scores of another network are reused", "pipeline/searching.py",
            'require_same(folder.path, read_request(folder), request, (*ESTIMATE_FIELDS, "metric_source"), advice)',
            "pass", "glue/test_reuse.py"),
    _mutant("scores with another importance are reused", "runs/requests.py",
            '"weights", "data", "metric", "importance",', '"weights", "data", "metric",', "glue/test_reuse.py"),
    _mutant("earlier evaluations are not reused", "pipeline/pruning.py",
            "known_evaluations(request, graph)", "known_evaluations(replace(request, known_from=()), graph)",
            "glue/test_reuse.py"),
    _mutant("known scores are estimated again", "pipeline/shared_estimate.py",
            "scores.update(", "dict(", "glue/test_reuse.py"),
    _mutant("a budget that is already met is accepted", "pipeline/pruning.py",
            "if latency.needs_demand:", "if False:", f"{PRUNING}test_limits_that_remove_nothing_are_rejected"),
    _mutant("the trial step of training is left out", "pipeline/pruning.py",
            "is checked first\n        check_training_step(self.task, self.plan, graph, self.means.fabric)",
            "is checked first", FINETUNED),
    _mutant("the first scores are left out", "pipeline/pruning.py", "scores = check_scoring(self.task)",
            'scores = ""', FINETUNED),
    _mutant("the first batches are not checked", "pipeline/pruning.py",
            "check_data(task, plan)", "pass", FINETUNED),
    _mutant("max_drop is ignored", "pipeline/pruning.py",
            "if self.plan.max_drop is not None:", "if False:", PROBES_COMPARED),
]  # fmt: skip

# -- max_drop and sweeps -----------------------------------------------------------------------------------------------

REPEATED = [
    _mutant("no drop is allowed", "pipeline/max_drop.py", "score, self.plan.max_drop)", "score, 0.0)",
            f"{MAX_DROP}test_the_largest_share_that_passes_is_found"),
    _mutant("probes are trained on the hold-out", "pipeline/max_drop.py",
            "network, task.data.train, recipe", "network, task.data.all_training(), recipe", PROBING),
    _mutant("probes have no teacher", "pipeline/max_drop.py", "teacher=task.model if recipe.distillation else None,",
            "teacher=None,",
            PROBING),
    _mutant("probes ignore the loss function", "pipeline/max_drop.py",
            "finetuning=True), loss=task.loss,", "finetuning=True),", PROBING),
    _mutant("probes are judged by test data", "pipeline/max_drop.py",
            "score_network(network, task.data.holdout)", "score_network(network, task.data.test)", PROBING),
    _mutant("probes are compared with the test score", "pipeline/max_drop.py",
            "return self.search.task.unpruned_holdout()",
            "return self.search.task.score_network(self.search.task.model, self.search.task.data.test)",
            PROBES_COMPARED),
    _mutant("without training, estimates are judged", "pipeline/max_drop.py",
            "return self.plan.recipe is not None and not", "return not",
            f"{MAX_DROP}test_without_training_the_delivered_network_is_judged_and_not_its_estimate"),
    _mutant("probes are trained as long as the network", "pipeline/max_drop.py",
            "recipe.scaled(self.plan.probe_epochs, finetuning=True)", "recipe",
            f"{MAX_DROP}test_probes_can_be_judged_after_training"),
    _mutant("probes have the full learning rate", "pipeline/max_drop.py",
            "self.plan.probe_epochs, finetuning=True)", "self.plan.probe_epochs)",
            f"{MAX_DROP}test_probes_can_be_judged_after_training"),
    _mutant("few epochs have the full learning rate", "commands/recipes.py",
            ', finetuning=not training["scratch"])', ")", "commands/test_recipes.py"),
    _mutant("max_drop ignores other limits", "pipeline/max_drop.py",
            "Budget(*self.search.budget.limits, Limit", "Budget(Limit", f"{MAX_DROP}test_other_limits_hold_as_well"),
    _mutant("a sweep does not share its best structures", "pipeline/sweep.py", "self._share_best(runs)", "pass",
            f"{SWEEP}test_no_budget_misses_what_another_search_found_within_it"),
    _mutant("the searches of a sweep share nothing", "pipeline/sweep.py",
            "*(str(earlier.path) for earlier in folders[:number])", "",
            "glue/test_sweeps.py"),
    _mutant("a sweep finds an impossible budget late", "pipeline/sweep.py",
            "bound.check(latency.within_reach(space, bound))", "pass",
            f"{SWEEP}test_a_budget_out_of_reach_is_rejected_before_anything_is_searched"),
    _mutant("a sweep needs the smallest structure to be fast", "pipeline/sweep.py",
            "bound.check(latency.within_reach(space, bound))", "bound.check(space)", SWEPT_BY_FASTEST),
    _mutant("max_drop takes the smallest structure for the fastest", "pipeline/max_drop.py",
            "if is_latency else space.smallest", "if False else space.smallest",
            f"{FASTEST}test_the_largest_share_of_the_latency_is_that_of_the_fastest_structure"),
    _mutant("max_drop leaves out what is narrower than the fastest structure", "pipeline/max_drop.py",
            "space = self.search.whole_space", "space = self.search.space",
            f"{FASTEST}test_another_cost_is_shrunk_within_a_limit_that_the_smallest_structure_misses"),
    _mutant("a sweep trains unasked", "pipeline/sweep.py",
            "run.prune().to_json() if self.trains else None for run", "run.prune().to_json() for run",
            "glue/test_sweeps.py"),
    _mutant("a sweep that searches requests training", "pipeline/sweep.py",
            "plan if train else plan.without_training()",
            "plan",
            f"{SWEEP}test_a_plan_to_train_by_may_be_searched_with"),
    _mutant("a sweep rejects a budget that is met", "pipeline/sweep.py", "accepts_met_budget=True,", "",
            "glue/test_sweeps.py"),
    _mutant("equal budgets of a sweep have two runs", "pipeline/sweep.py", "list(dict.fromkeys(budgets))",
            "list(budgets)", "glue/test_sweeps.py"),
    _mutant("a trained run of a sweep gets another structure", "pipeline/sweep.py",
            "is_final = any(", "is_final = False and any(", "glue/test_sweeps.py"),
]  # fmt: skip

# -- requests and jobs -------------------------------------------------------------------------------------------------

REQUESTS = [
    _mutant("another request resumes a run", "pipeline/request.py",
            'require_same(folder.path, before, request, names, f"Repeat',
            'print(folder, before, request, names, f"Repeat',
            ANOTHER_REQUEST),
    _mutant("another seed resumes a run", "pipeline/request.py", "skipped = {*CIRCUMSTANCES}",
            'skipped = {*CIRCUMSTANCES, "seed"}', ANOTHER_REQUEST),
    _mutant("a request that came to nothing binds", "pipeline/request.py",
            "    if _holds_only_reusable_files(folder):", "    if folder.read_json(RUN) is None:",
            f"{PRUNING}test_a_request_without_results_can_be_replaced"),
    _mutant("a training with other settings is resumed", "pipeline/training_request.py",
            "if differing and not (again or is_disposable):", "if False:", OTHER_TRAINING),
    _mutant("a training that failed cannot be corrected", "pipeline/training_request.py",
            "bool(known.failure) or not is_begun(place)", "not is_begun(place)", f"{TRAININGS}{DIVERGED}"),
    _mutant("a training that never began cannot be corrected", "pipeline/training_request.py",
            "bool(known.failure) or not is_begun(place)", "bool(known.failure)", f"{TRAININGS}{CORRECTED}"),
    _mutant("a training with other settings is deleted unasked", "pipeline/training_request.py",
            "bool(known.failure) or not is_begun(place)", "True", OTHER_TRAINING),
    _mutant("an interrupted training is begun again by --again", "pipeline/training_request.py",
            "(again and (known.failure or is_finished(place)))", "again", f"{TRAININGS}{RESUMED_AGAIN}"),
    _mutant("a failure is not recorded", "pipeline/training.py", "record_failure(self.place, error)", "pass",
            f"{TRAININGS}{DIVERGED}"),
    _mutant("another teacher resumes a training", "pipeline/training_request.py",
            '"loss", "loss_source", "teacher")', '"loss", "loss_source")',
            f"{TRAININGS}test_another_teacher_is_another_training"),
    _mutant("the recipe guards the search", "pipeline/request.py",
            "if plan.recipe is not None and plan.probe_epochs else None", "if plan.recipe is not None else None",
            f"{TRAININGS}test_f_and_s_come_from_one_search"),
    _mutant("finetune skips the trial step", "pipeline/pruning.py",
            "if self._training is not None and not self._training.is_trained:", "if False:",
            f"{TRAININGS}test_finetune_makes_the_checks_of_prune"),
    _mutant("a network of several is loaded without a name", "runs/trainings.py", "if len(found) > 1:", "if False:",
            f"{TRAININGS}test_f_and_s_come_from_one_search"),
    _mutant("new weights keep the variance of the full layers", "pipeline/new_weights.py",
            "cut[name].mul_(math.sqrt(before / after))", "pass", "pipeline/test_new_weights.py"),
    _mutant("weights that a function loads pass for new ones", "pipeline/new_weights.py",
            "if not is_constant and torch.equal(parameter, second[path]):", "if False:",
            "pipeline/test_new_weights.py"),
    _mutant("finetune and scratch train on the hold-out unasked", "pipeline/task.py",
            "if plan.train_on_holdout else (data.train, data.holdout)", "if True else (data.train, data.holdout)",
            NOT_TRAINED_ON),
    _mutant("finetune and scratch train on test data", "pipeline/training.py",
            "train, holdout = task.training_parts(self.plan)",
            "train, holdout = task.data.test, task.data.holdout", NOT_TRAINED_ON),
    _mutant("--seed of scratch is ignored", "commands/finish.py",
            "job.request.seed if seed is None else seed", "job.request.seed", FIRST_WEIGHTS),
    _mutant("--init of scratch is ignored", "commands/recipes.py", '"init": training["init"],', "",
            _later_option("scratch", "init")),
    _mutant("--as is ignored", "commands/recipes.py", '"training": training["training"],', "", FIRST_WEIGHTS),
    _mutant("the seed of the training does not draw the weights", "pipeline/new_weights.py",
            "seed = plan.recipe.seed", "seed = plan.seed", "pipeline/test_new_weights.py"),
    _mutant("the rebuilt plan has another deployment", "pipeline/request.py",
            'found["deployment"] = Deployment(**request.deployment)', 'found.pop("deployment")',
            f"{OWN_PARTS}test_every_plan_is_rebuilt_from_what_is_recorded"),
    _mutant("the rebuilt plan has names for functions", "pipeline/request.py",
            "found[name] = restored_field(name, found[name])", "pass",
            f"{OWN_PARTS}test_every_plan_is_rebuilt_from_what_is_recorded"),
    _mutant("earlier runs are not recorded", "pipeline/request.py", "known_from=known_from,\n        metric",
            "metric", _option("prune", "known_from")),
    _mutant("the weights are not recorded", "pipeline/request.py",
            "weights=_weights(task),", "", _option("prune", "weights")),
    _mutant("the loss is not recorded", "pipeline/request.py",
            "if task.loss is None:", "if True:", _option("prune", "loss")),
    _mutant("the seed draws the hold-out", "pipeline/job.py", "holdout=self.holdout, seed=self.holdout_seed, ",
            "holdout=self.holdout, seed=seed, ", f"{COMMANDS}test_the_hold_out_does_not_depend_on_the_seed[prune]"),
    _mutant("the seed of a training draws the hold-out", "train/job.py", "holdout=job.holdout, cache",
            "holdout=job.holdout, seed=job.recipe.seed, cache",
            "train/test_job.py::test_no_seed_trains_on_what_other_commands_hold_out"),
    _mutant("the hold-out of an older run is forgotten", "pipeline/request.py",
            "return replace(found, holdout_seed=found.seed)", "return replace(found, holdout_seed=0)",
            "pipeline/test_request.py::test_the_hold_out_of_a_run_of_an_older_version_was_chosen_by_its_seed"),
    _mutant("the seed does not draw the weights", "train/job.py", 'global_seed(torch.device("cpu"), seed)',
            'global_seed(torch.device("cpu"), 0)', _option("prune", "seed")),
    _mutant("the file of weights is not loaded", "train/job.py", "load_weights(network, weights)", "pass",
            _option("prune", "weights")),
    _mutant("the metric is ignored", "pipeline/job.py", "chosen_score(score_of(self.metric), model, data)",
            "chosen_score(None, model, data)",
            _option("prune", "metric")),
    _mutant("the loss is ignored", "pipeline/job.py", "loss=loss_of(self.loss),", "", _option("prune", "loss")),
    _mutant("the device is ignored", "pipeline/job.py", "device=device_of(self.device),",
            'device=torch.device("cpu"),', _option("prune", "device")),
    _mutant("prune ignores earlier runs", "pipeline/job.py",
            "means=means, known_from=known_from)", "means=means)",
            _option("prune", "known_from")),
    _mutant("sweep ignores earlier runs", "pipeline/job.py", "train, means, known_from)",
            "train, means)", _option("sweep", "known_from")),
    _mutant("a table that no limit needs is accepted", "pipeline/job.py",
            "plan.check_budgets([budget])", "pass",
            "commands/test_options.py::test_what_the_library_rejects_is_an_error_in_one_line"),
    _mutant("finetune forgets the earlier runs", "pipeline/job.py",
            "known_from=self.request.known_from,", "",
            f"{COMMANDS}test_a_search_that_took_over_evaluations_can_be_finished"),
    _mutant("finetune ignores --train-on-holdout", "commands/recipes.py",
            '"train_on_holdout": training["train_on_holdout"],', "", _later_option("finetune", "train_on_holdout")),
    _mutant("finetune ignores --no-export", "commands/recipes.py", '"export": not training["no_export"],', "",
            _later_option("finetune", "no_export")),
    _mutant("finetune forgets the metric of the run", "pipeline/job.py",
            '"metric": importable(recorded.metric_source),', "", "pipeline/test_job.py"),
    _mutant("finetune forgets the weights of the run", "pipeline/job.py",
            '"weights": recorded.weights_file or None,', "", "pipeline/test_job.py"),
]  # fmt: skip

# -- the command line --------------------------------------------------------------------------------------------------

COMMAND_LINE = [
    _mutant("--reconstruction is ignored", "commands/plan_options.py",
            'if fields["reconstruction"] is None:', "if True:",
            _option("prune", "reconstruction")),
    _mutant("--reconstruction is ignored by search", "commands/plan_options.py",
            'if fields["reconstruction"] is None:', 'if fields["reconstruction"] is None or trains_later:',
            _option("search", "reconstruction")),
    _mutant("a search repairs as if nothing were trained", "commands/prune.py",
            "plan_from(search, None, trains_later=True)", "plan_from(search, None)",
            f"{RECOVERY}test_a_search_before_a_training_does_not_repair"),
    _mutant("--mimic is ignored", "commands/prune.py", "mimic=mimic or 0,", "", _option("prune", "mimic")),
    _mutant("--mimic is accepted with training", "commands/prune.py",
            'reject_options(("mimic",), "a training with labels follows", "Give --no-training")', "mimic = None",
            f"{RECOVERY}test_mimicry_is_rejected_with_training"),
    _named("--importance is ignored", "commands/plan_options.py", "fields = dict(search)",
           'fields = {name: value for name, value in search.items() if name != "importance"}',
           _option("prune", "importance")),
    _named("--calibration is ignored", "commands/plan_options.py", "fields = dict(search)",
           'fields = {name: value for name, value in search.items() if name != "calibration_images"}',
           _option("prune", "calibration_images")),
    _mutant("batch and threads are exchanged", "commands/plan_options.py",
            'batch=fields.pop("batch"),\n        threads=fields.pop("threads"),',
            'batch=fields.pop("threads"),\n        threads=fields.pop("batch"),',
            _option("prune", "batch")),
    _mutant("the runtime is ignored", "commands/plan_options.py", "**fields, deployment=deployment, recipe",
            "**fields, recipe", _option("prune", "runtime")),
    _mutant("the recipe is ignored", "commands/plan_options.py", "deployment=deployment, recipe=recipe, **others",
            "deployment=deployment, **others", _option("prune", "recipe")),
    _mutant("options that have no effect are accepted", "commands/gathering.py", "    if given:\n", "    if False:\n",
            "commands/test_options.py::test_an_option_that_would_be_ignored_is_wrong_usage"),
    _mutant("Ctrl-C ends with 0", "commands/running.py", "Exit(INTERRUPTED)", "Exit(0)", _option("prune", "lr")),
    _mutant("--scratch takes the recipe of fine-tuning", "commands/recipes.py",
            'training["scratch"], task["loss"]', 'False, task["loss"]', _option("prune", "scratch")),
    _mutant("the seed of prune does not reach the recipe", "commands/prune.py",
            'None if no_training else recipe_of(training, task, search["seed"])',
            "None if no_training else recipe_of(training, task, 0)", _option("prune", "seed")),
    _mutant("--scratch does not reach the plan", "commands/plan_options.py",
            "recipe=recipe, **others)", 'recipe=recipe, **{**others, "from_scratch": False})',
            _option("prune", "scratch"), _option("sweep", "scratch")),
    _mutant("--train-on-holdout does not reach the plan", "commands/plan_options.py",
            "recipe=recipe, **others)", 'recipe=recipe, **{**others, "train_on_holdout": False})',
            _option("prune", "train_on_holdout")),
    _mutant("--no-export is ignored", "commands/plan_options.py",
            "recipe=recipe, **others)", 'recipe=recipe, **{**others, "export": True})',
            _option("prune", "no_export"), _option("sweep", "no_export")),
    _mutant("points are taken for shares", "commands/prune.py",
            'max_drop is None or task["metric"] else max_drop / 100', "True else None", _option("prune", "max_drop")),
    _mutant("with a metric the drop is in points", "commands/prune.py",
            'max_drop is None or task["metric"] else', "max_drop is None else",
            f"{COMMANDS}test_with_a_metric_the_drop_is_in_its_own_unit"),
    _mutant("--shrink is ignored", "commands/prune.py", "shrink=COST_NAMES[shrink],", "", _option("prune", "shrink")),
    _mutant("--probe-epochs is ignored", "commands/prune.py", "probe_epochs=probe_epochs,", "",
            _option("prune", "probe_epochs")),
    _mutant("--finalists is ignored", "commands/prune.py", "finalists=finalists,", "finalists=None,",
            _option("prune", "finalists")),
    _mutant("--rungs is ignored", "commands/prune.py", "rungs=rungs or ()", "rungs=()", _option("prune", "rungs")),
    _mutant("--from is ignored by search", "commands/prune.py", "place, known_from).find()",
            "place, ()).find()", _option("search", "known_from")),
    _mutant("the most to keep is ignored", "commands/limits.py",
            "if most is not None:\n            return", "if False:\n            return",
            _option("prune", "max_macs")),
    _mutant("a share of 1 is accepted", "cost/budget.py", "not 0 <= rate < 1", "not 0 <= rate <= 1",
            "cost/test_budget.py"),
    _mutant("the seed of training is fixed", "commands/recipes.py",
            'lr=training["lr"], seed=seed)', 'lr=training["lr"])',
            _option("prune", "seed")),
    _mutant("the recipes are exchanged", "commands/recipes.py",
            "known.recipe if scratch else known.finetune_recipe", "known.finetune_recipe if scratch else known.recipe",
            "commands/test_recipes.py"),
    _mutant("a user's loss gets mixed labels", "commands/recipes.py",
            "FINETUNE if recipe.mixing and loss is not None else recipe", "recipe", "commands/test_recipes.py"),
    _mutant("finetune ignores the recipe of the run", "commands/finish.py",
            "known = job.recorded_recipe(name) if is_default else None", "known = None",
            "commands/test_finish.py::test_a_search_stops_at_its_structure_and_finetune_continues"),
    _mutant("scratch fine-tunes", "commands/recipes.py", '{"scratch": True, ', '{"scratch": False, ',
            _later_option("scratch", "lr")),
    _mutant("trace ignores --frozen", "cli.py", "frozen=frozen, scope=scope", "scope=scope", "test_cli.py"),
    _mutant("trace ignores --scope", "cli.py", "scope=scope, tie=tie", "tie=tie", "test_cli.py"),
    _mutant("export ignores --opset", "cli.py", ", opset=opset, batch", ", batch", "glue/test_other_commands.py"),
    _mutant("train ignores the teacher", "cli.py",
            "weights, teacher, teacher_weights, device", "weights, None, None, device",
            "glue/test_other_commands.py"),
]  # fmt: skip

# -- budgets and run files ---------------------------------------------------------------------------------------------

BUDGETS = [
    _mutant("a pruning rate is the share to keep", "cost/budget.py", "return (1 - self.pruning_rate) *",
            "return self.pruning_rate *", "cost/test_budget.py"),
    _mutant("a cost equal to its bound does not meet it", "cost/budget.py",
            "<= bound + TOLERANCE * abs(bound))", "< bound)", "cost/test_budget.py"),
    _mutant("one of the limits is enough", "cost/budget.py", "verdict & limit.holds", "verdict | limit.holds",
            "cost/test_budget.py"),
    _mutant("a kilobyte is a kibibyte", "cost/kinds.py", '"kB": 1e3', '"kB": 1024.0', _option("prune", "max_size")),
    _mutant("the unit of a user's cost is lost in the file", "cost/budget.py",
            "CostKind(found.cost, unit=found.unit, recorded", "CostKind(found.cost, recorded",
            "cost/test_kinds.py::test_a_kind_of_the_users_is_read_from_a_file_by_name"),
    _mutant("two limits on one cost are accepted", "cost/budget.py", "if names.count(name) > 1]",
            "if names.count(name) > 2]", "cost/test_kinds.py", "cost/test_budget.py"),
    _mutant("overlapping quartiles count as faster", "runs/exports.py",
            "return self.after.high_seconds < self.before.low_seconds",
            "return self.after.low_seconds < self.before.high_seconds", "runs", "report"),
    _mutant("a limit that is missed holds", "runs/chosen.py",
            "return bool(is_within(self.reached, self.bound))", "return True", "runs/test_chosen.py"),
]  # fmt: skip

# -- manifests and what is reused ------------------------------------------------------------------------------------

MANIFESTS = "runs/test_manifest.py::"
REUSED = "pipeline/test_reuse.py::"

VERIFIED = [
    _mutant("a changed file is whole", "runs/verification.py",
            'return "whole" if sha256_of(path) in (entry.sha256, entry.earlier) else "damaged"', 'return "whole"',
            f"{MANIFESTS}test_no_flipped_bit_goes_unnoticed"),
    _mutant("a crash before the replacement is damage", "runs/verification.py",
            "in (entry.sha256, entry.earlier)", "in (entry.sha256,)",
            f"{MANIFESTS}test_a_crash_between_manifest_and_file_leaves_both_whole"),
    _mutant("the seals of new lines are not verified", "runs/verification.py",
            "SEALED.fullmatch(line) and is_intact(line, key)", "True",
            f"{MANIFESTS}test_lines_after_the_listed_part_are_verified_by_their_seals"),
    _mutant("all histories have one key", "runs/verification.py",
            "places = (folder, *folder.parents[:3]) if name == HISTORY else ()", "places = ()",
            f"{MANIFESTS}test_the_history_of_a_run_with_other_weights_is_not_intact"),
    _mutant("a damaged manifest is believed", "runs/manifest.py",
            'if check != digest(json.dumps(content).encode()):', "if False:",
            f"{MANIFESTS}test_no_flipped_bit_of_a_manifest_goes_unnoticed"),
    _mutant("the manifest of another folder is believed", "runs/mending.py",
            "return are_most_damaged or (is_other_request and others.count(False) > others.count(True))",
            "return False", f"{MANIFESTS}test_the_manifest_of_another_folder_restores_nothing"),
    _mutant("the manifest of another request is believed", "runs/mending.py",
            "(is_other_request and others.count(False) > others.count(True))", "False",
            f"{MANIFESTS}test_nothing_is_restored_from_the_manifest_of_another_run"),
    _mutant("a file that is not listed is believed", "runs/mending.py",
            "        set_aside(folder, name, f\"is not listed in {MANIFEST}\")\n        return False",
            "        return True", f"{MANIFESTS}test_a_foreign_file_that_is_not_listed_is_not_used"),
    _mutant("a lost manifest is not said", "runs/mending.py", "    if reason:\n", "    if False:\n",
            f"{MANIFESTS}test_a_lost_manifest_is_said_and_written_again"),
    _mutant("a search believes what it finds", "search/loop.py", "        mend(place)\n", "",
            "search/test_saving.py::test_a_score_that_was_changed_is_evaluated_again"),
    _mutant("a training believes what it finds", "train/loop.py", "            mend(place)\n", "",
            "train/test_checkpoint.py::"
            "test_one_flipped_bit_of_a_finished_training_changes_neither_weights_nor_epochs"),
    _mutant("a run believes what it finds", "pipeline/pruning.py",
            "self._lacks_history = mend_search(self.folder)", "pass",
            f"{REUSED}test_one_flipped_bit_is_noticed_and_mended"),
    _mutant("the folder of a training is believed", "pipeline/training_request.py",
            "        mend(RunFolder(place))\n", "        pass\n",
            f"{REUSED}test_one_flipped_bit_is_noticed_and_mended"),
    _mutant("lost evaluations of a finished search stay lost", "pipeline/pruning.py",
            "if self._lacks_history:", "if False:",
            f"{REUSED}test_lost_lines_of_a_finished_history_are_evaluated_again"),
    _mutant("a structure over the limit is delivered", "pipeline/reuse.py",
            'raise InvalidStructure(f"It exceeds the limit on {name}', 'str(f"It exceeds the limit on {name}',
            f"{REUSED}test_a_structure_that_graph_or_limits_do_not_allow_is_searched_again"),
    _mutant("recorded costs are not compared", "pipeline/reuse.py",
            "(result.full, result.reached) != (right.full, right.reached)", "False",
            f"{REUSED}test_a_structure_that_graph_or_limits_do_not_allow_is_searched_again"),
    _mutant("results without a request are taken", "pipeline/request.py",
            "    if _holds_only_reusable_files(folder):",
            "    if folder.read_json(RUN) is None or _holds_only_reusable_files(folder):",
            f"{REUSED}test_without_run_json_and_its_copy_no_request_is_accepted"),
    _mutant("trainings serve another request", "pipeline/request.py",
            'if any(is_begun(place) for place in (folder.path / TRAININGS).glob("*")):', "if False:",
            f"{REUSED}test_trainings_whose_search_is_lost_do_not_serve_another_request"),
    _mutant("a training without its request is taken", "pipeline/training_request.py",
            "if is_begun(place) and not again:", "if False:",
            f"{REUSED}test_a_training_without_its_request_is_not_taken"),
    _mutant("a training of another structure is taken", "pipeline/training.py",
            "counts is not None and counts != choice.counts and", "False and",
            f"{REUSED}test_all_files_of_another_training_are_not_taken"),
    _mutant("a network of another structure is taken", "pipeline/delivery.py",
            "if found != choice.structure:", "if False:",
            f"{REUSED}test_results_of_another_structure_are_noticed_without_checksums"),
    _mutant("an evaluation of another network is taken", "pipeline/reuse.py",
            "    _require_costs(found.after, structure, graph)\n", "",
            f"{REUSED}test_results_of_another_structure_are_noticed_without_checksums"),
    _mutant("an export without its files is believed", "pipeline/delivery.py",
            "if missing := record.missing_in(folder.path):", "if missing := False:",
            f"{REUSED}test_an_export_whose_files_are_lost_is_not_used"),
    _mutant("a damaged network is loaded", "artefact/storage.py", "    _require_whole(path)\n", "",
            f"{REUSED}test_a_network_with_a_flipped_bit_is_not_loaded"),
    _mutant("a search continues with other threads", "pipeline/pruning.py",
            "using_threads(request.threads, self.task.device", "using_threads(0, self.task.device",
            f"{REUSED}test_a_run_is_resumed_with_the_threads_that_it_began_with"),
    _mutant("a training continues with other threads", "train/threads.py",
            "    torch.set_num_threads(count)\n", "",
            "train/test_checkpoint.py::test_a_training_continues_with_the_threads_that_it_began_with"),
    _mutant("aacp check ends with 0", "commands/check.py", "if not found.is_whole:", "if False:",
            "commands/test_check.py"),
]  # fmt: skip

HALVING = "pipeline/test_halving.py::"
HOLDOUT_DECIDES = f"{HALVING}test_the_hold_out_decides_and_not_the_test_data"
FINALISTS = [
    _mutant("finalists are judged by test data", "pipeline/halving.py",
            "task.score_network(network, task.data.holdout)", "task.score_network(network, task.data.test)",
            HOLDOUT_DECIDES),
    _mutant("finalists are trained on the hold-out", "pipeline/halving.py",
            "network, task.data.train, scaled", "network, task.data.all_training(), scaled",
            f"{READS}test_finalists_are_trained_on_training_data_and_judged_by_the_hold_out"),
    _mutant("finalists have no teacher", "pipeline/halving.py",
            "teacher=task.teacher_for(self.plan),", "teacher=None,",
            f"{READS}test_finalists_are_trained_on_training_data_and_judged_by_the_hold_out"),
    _mutant("a rung has the epochs of the recipe", "pipeline/halving.py",
            "recipe.scaled(self.epochs, finetuning=not self.plan.from_scratch)", "recipe",
            f"{HALVING}test_a_rung_trains_anew_with_the_whole_recipe_scaled_to_its_epochs"),
    _mutant("rungs have the full learning rate", "pipeline/halving.py",
            ", finetuning=not self.plan.from_scratch)", ")",
            f"{HALVING}test_a_rung_trains_anew_with_the_whole_recipe_scaled_to_its_epochs"),
    _mutant("a training of a rung is not resumed", "pipeline/halving.py",
            "folder=self.places.get(structure.counts)", "folder=None",
            f"{HALVING}test_a_rung_that_was_killed_resumes_to_the_same_result"),
    _mutant("finished trainings are repeated", "pipeline/halving.py", "left = found.untrained(rung)", "left = members",
            f"{HALVING}test_a_rung_that_was_killed_resumes_to_the_same_result"),
    _mutant("the worst go on to the next rung", "runs/finalists.py",
            "key=lambda position: -self", "key=lambda position: self",
            "runs/test_finalists.py::test_the_best_go_on_and_the_best_of_the_last_rung_wins"),
    _mutant("finalists may be near each other", "pipeline/finalists.py",
            "search.choices(different)", "search.choices(others[:places])",
            "pipeline/test_halving.py::test_finalists_differ_from_each_other"),
    _mutant("the uniform structure is no finalist", "pipeline/finalists.py",
            "if uniform != chosen.structure:", "if False:",
            f"{HALVING}test_the_best_structures_of_the_history_and_the_uniform_one_are_finalists"),
    _mutant("uniform widths cut streams", "pipeline/finalists.py", "if inner.free:", "if False:",
            f"{HALVING}test_uniform_widths_are_those_of_the_method_uniform"),
    _mutant("the choice of the search is delivered", "pipeline/halving.py", "return winner.choice", "return chosen",
            f"{HALVING}test_the_best_structures_of_the_history_and_the_uniform_one_are_finalists"),
    _mutant("other finalists resume a run", "pipeline/request.py", "if is_searched:", "if True:",
            f"{HALVING}test_another_comparison_is_rejected"),
    _mutant("finetune needs the finalists of the search", "pipeline/request.py", "if is_searched:", "if False:",
            f"{HALVING}test_the_command_compares_finalists_and_finetune_trains_the_winner_in_another_way"),
]  # fmt: skip

SCREENING = "pipeline/test_screening.py::"
ON_FEW = f"{SCREENING}test_the_search_scores_on_few_images_and_the_promising_structures_on_all"
BEST_OF_ALL = f"{SCREENING}test_the_best_on_all_images_is_delivered"
SAME_HISTORIES = f"{SCREENING}test_workers_give_the_history_of_one_process"
SCREENED = [
    _mutant("a search on few images scores on all", "pipeline/searching.py",
            "few or self.estimate,", "self.estimate,", ON_FEW),
    _mutant("few images are the first ones", "pipeline/shared_estimate.py",
            "self.task.read(sampled(source, few, self.plan.seed), few)", "self.task.read(source, few)", ON_FEW),
    _mutant("few images are of the test data", "pipeline/shared_estimate.py",
            "self._part_of(self.task.data.holdout,", "self._part_of(self.task.data.test,", ON_FEW),
    _mutant("few images are recalibrated on all", "pipeline/shared_estimate.py",
            "estimate.inheritance.recalibrating_on(calibration)", "estimate.inheritance",
            f"{SCREENING}test_batch_norms_are_recalibrated_on_the_same_share_of_images"),
    _mutant("a score on few images is recorded as one on all", "pipeline/searching.py",
            "method.images = (few.holdout.images, self.estimate.holdout.images)", "pass", ON_FEW),
    _mutant("workers score on all images", "pipeline/shared_estimate.py",
            "FewImagesQueue(self._pool) if estimate is self._few else self._pool", "self._pool", SAME_HISTORIES),
    _mutant("a worker ignores that images are few", "workers/ray.py",
            "OnFewImages(structure) if on_few_images else structure", "structure",
            f"{SCREENING}test_a_worker_is_told_which_images_to_score_on"),
    _mutant("a worker has no estimate on few images", "pipeline/shared_estimate.py",
            "return estimate if few is None else ScreenedEstimate(few, estimate)", "return estimate", SAME_HISTORIES),
    _mutant("a lucky score on few images is the best", "search/history.py",
            "return not self.is_whole, -self.score, self.number", "return False, -self.score, self.number",
            BEST_OF_ALL, "search/test_history.py::test_scores_on_all_images_come_before_scores_on_few"),
    _mutant("a score on few images hides that on all", "search/history.py",
            "if known.is_whole and not earlier.is_whole:", "if False:",
            "search/test_history.py::test_of_two_scores_of_a_structure_that_on_all_images_counts", BEST_OF_ALL),
    _mutant("later runs reuse scores on few images", "pipeline/searching.py",
            "recorded(folder).whole", "recorded(folder)",
            f"{SCREENING}test_later_runs_reuse_scores_on_all_images_alone"),
    _mutant("the error is that of the promising structures", "search/screening_error.py",
            "for few in sample(searched)]", "for few in searched]",
            "search/test_screening_error.py::test_only_structures_of_the_sample_count"),
    _mutant("the images of an early score are lost", "search/ledger.py",
            "early.score, early.images)", "early.score)",
            "search/test_screening.py::test_early_scores_keep_their_images_in_a_saved_state"),
    _mutant("lost scores on all images are not noticed", "pipeline/searching.py",
            "        folder.listing.add(HISTORY)  # so that lines which are lost later are noticed\n", "",
            f"{SCREENING}test_lost_scores_on_all_images_are_measured_again"),
]  # fmt: skip

HAND_PICKED = [
    *DATA,
    *DELIVERED,
    *SEARCH,
    *REPEATED,
    *FINALISTS,
    *SCREENED,
    *REQUESTS,
    *COMMAND_LINE,
    *BUDGETS,
    *VERIFIED,
]
