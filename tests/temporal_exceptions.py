"""Tests of engines that do not hold with a store in Temporal, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MODULES: Mapping[str, Sequence[str]] = {
    "only stores in directories have these files, leases, snapshots and costs": (
        "engines/test_crashes",
        "engines/test_entries",
        "engines/test_evidence",
        "engines/test_fencing",
        "engines/test_flow_cache",
        "engines/test_garbage",
        "engines/test_growing_lists",
        "engines/test_growth",
        "engines/test_leases",
        "engines/test_lines_at_work",
        "engines/test_step_rows",
        "engines/test_nested_deeply",
        "engines/test_ports",
        "engines/test_races",
        "engines/test_running_ahead",
        "engines/test_serialization",
        "engines/test_threads",
        "engines/test_withdrawn_threads",
    ),
    "processes that drive executions stop here, as workers do in `test_temporal_faults`": (
        "engines/test_budgets",
        "engines/test_interrupted",
        "engines/test_kills",
        "engines/test_many_answers",
        "engines/test_order_after_downtime",
        "engines/test_recorded_interventions",
        "engines/test_stopped_attempts",
        "engines/test_uncertain_calls",
    ),
    "its tests have a clock of their own, which is refused": (
        "engines/test_retrying_bounds",
        "engines/test_scheduled_starts",
    ),
    "subscribers receive no output of steps": (
        "engines/test_following",
        "engines/test_left_processes",
    ),
    "access to environments of workers is refused, which these tests need": (
        "engines/test_changed_server_tools",
        "engines/test_mcp_tools",
    ),
    "the module runs in Temporal already": (
        "engines/test_moving",
        "engines/test_moving_budgets",
    ),
}
"""Reason → modules of which no test runs a second time."""

REFUSED = "refused, with an error"
"""The reason of tests that end with a `UsageError`."""
NO_STORE = "the test opens no store, or makes one itself"
WAITS = "the test waits for a process that drives an execution, or for its progress"
NEVER = (NO_STORE, WAITS)
"""The reasons of tests that would show nothing in Temporal, or wait for ever."""
VARIES = "what is concurrent comes in any order, and takes longer"
AT_ONCE = "workers continue executions by themselves, so nothing is held, interrupted or due"
POLLED = "subscribers learn what is in the journal, and nothing else"
SOMETIMES = (VARIES, AT_ONCE, POLLED)
"""The reasons of tests that hold in some runs, because they depend on what comes first."""

TESTS: Mapping[str, Mapping[str, Sequence[str]]] = {
    POLLED: {
        "engines/test_running": (
            "test_printed_text_goes_to_standard_output_or_to_subscribers",
            "test_subscribers_are_told_what_is_on_disk",
        ),
    },
    REFUSED: {
        "engines/test_approvals_of_one_call": (
            (
                "test_what_a_program_approved_runs_whatever_it_changes_and_other_argume"
                "nts_are_asked_anew"
            ),
        ),
        "engines/test_diff": ("test_attempts_that_were_cut_off_are_no_difference",),
        "engines/test_environments": (
            "test_an_engine_has_one_manager_whichever_thread_asks_first",
        ),
        "engines/test_given_resources": ("test_each_has_its_own",),
        "engines/test_notifications": (
            "test_a_failure_is_tried_again_shown_and_sent_by_hand_and_the_approval_goes_on",
        ),
        "engines/test_reducers": ("test_a_result_whose_commit_was_refused_is_reduced_anew",),
        "engines/test_running": ("test_a_clock_that_is_set_back_does_not_hold_the_process",),
        "engines/test_signals": (
            "test_clock_that_jumps_back_does_not_turn_history_round",
            "test_what_is_due_is_what_can_move_and_nobody_holds",
        ),
        "engines/test_tool_authority": (
            "test_an_execution_may_have_one_of_its_own_which_learns_what_does_not_count",
            "test_one_of_an_execution_is_asked_again_and_is_ended_when_somebody_else_decides",
        ),
        "engines/test_upgrade": (
            "test_an_attempt_that_was_cut_off_is_run_again_under_the_new_form",
        ),
    },
    "the rules are those of the worker's host, which it checks when it starts": {
        "engines/test_rules_of_the_host": ("test_rules_of_the_machine_count_as_those_of_the_user",),
    },
    NO_STORE: {
        "engines/test_core_alone": (
            "test_the_core_alone_runs_compiled_flows_and_knows_nothing_around_it",
        ),
        "engines/test_elicitation": ("test_a_killed_process_loses_no_question",),
        "engines/test_grants": (
            "test_arguments_are_the_same_only_in_their_types_and_to_the_letter",
            "test_what_a_pattern_fits",
        ),
        "engines/test_reasons": (
            "test_a_group_is_not_retried_if_one_of_its_errors_is_not",
            "test_what_is_told_of_a_hostile_exception",
        ),
        "engines/test_rules_of_the_host": ("test_unchanged_rules_are_not_compiled_again",),
        "engines/test_notifications": (
            "test_a_project_cannot_lead_approvers_elsewhere",
            "test_the_address_of_the_page_is_checked",
        ),
        "engines/test_printed": (
            "test_a_secret_in_pieces_is_masked_wherever_it_is_cut",
            "test_lines_are_handed_on_when_they_are_whole",
            "test_memory_is_bounded",
        ),
        "engines/test_running": ("test_async_calls_run_many_at_once_in_shared_commits",),
        "engines/test_settings": (
            "test_acting_for_others_is_forbidden_if_one_file_forbids_it",
            "test_an_unusable_file_is_reported_without_its_content",
            "test_circle_of_groups_ends",
            "test_faults_in_settings_of_a_server_keep_their_messages",
            "test_file_that_is_wrong_is_told_with_its_name",
            "test_members_are_those_that_both_files_name_and_a_project_adds_none",
            "test_user_is_who_the_system_says_whatever_the_environment_says",
            "test_without_files_nothing_is_set",
        ),
        "engines/test_shared_budgets": (
            "test_a_crash_at_any_write_neither_loses_nor_repeats_a_reservation",
            "test_a_crash_in_an_intervention_leaves_nothing_reserved",
        ),
        "engines/test_shared_locks": (
            "test_a_crash_at_any_write_of_a_start_blocks_no_later_one",
            "test_on_a_slow_disk_too_who_wants_a_lock_that_is_held_gets_to_wait",
        ),
        "engines/test_step_logs": (
            "test_a_damaged_log_is_named",
            "test_a_secret_at_the_cut_is_masked_before_it",
            "test_hostile_lines_are_data",
            "test_lines_are_bounded_in_number_and_size",
            "test_several_threads_log_at_the_same_time",
        ),
        "engines/test_upgrade": (
            "test_replay_of_the_whole_journal_gives_the_state_of_the_snapshot",
        ),
        "engines/test_why": ("test_step_whose_process_died_is_told",),
    },
    "the test reads, changes or counts what only a store in a directory has": {
        "engines/test_flow_grants": (
            "test_revocation_holds_at_once_also_for_a_call_that_was_answered",
        ),
        "engines/test_handed_files": (
            "test_a_fork_has_the_files_of_its_origin_also_when_that_is_gone",
        ),
        "engines/test_rules_of_the_host": (
            "test_damaged_rules_in_the_store_are_compiled_again",
            "test_rules_that_somebody_else_put_into_the_store_are_not_believed",
        ),
        "engines/test_settings": (
            "test_durability_shown_is_that_of_the_open_database",
            "test_greater_durability_wins",
        ),
        "engines/test_votes": ("test_a_vote_of_the_moment_of_failure_counts_after_a_retry",),
    },
    "the test starts another process or kills one, which uses the directory": {
        "engines/test_approvals_of_one_call": ("test_without_a_terminal_a_call_waits",),
        "engines/test_approved_calls": (
            "test_killed_between_decision_and_run_what_was_approved_runs_once",
            "test_many_are_answered_in_any_order_by_several_processes",
        ),
        "engines/test_asking_environments": (
            "test_a_process_killed_while_people_are_asked_loses_nothing",
        ),
        "engines/test_changed_tools": (
            "test_an_approval_of_the_code_holds_over_a_crash_of_the_process_that_took_it",
            "test_another_process_that_decides_looks_at_the_code_as_it_is_there",
        ),
        "engines/test_flow_grants": ("test_two_processes_use_a_grant_up_exactly",),
        "engines/test_rules_of_the_host": ("test_another_process_approves_and_goes_on",),
        "engines/test_starts": ("test_two_first_messages_at_once_begin_one_execution",),
        "engines/test_upgrade": ("test_a_crash_in_the_middle_leaves_it_on_one_side",),
    },
    WAITS: {
        "engines/test_previews": ("test_one_that_hangs_delays_no_decision",),
        "engines/test_running": (
            "test_an_execution_that_ends_while_it_is_read_is_not_shown_as_interrupted",
            "test_cancel_from_another_engine_reaches_the_owner",
            "test_cancelling_the_awaiting_task_saves_the_execution",
            "test_decision_on_an_execution_that_is_driven_here_moves_it",
            "test_signal_stops_the_process_not_the_execution",
        ),
        "engines/test_shared_locks": (
            "test_a_holder_that_is_only_interrupted_holds_it_still",
            "test_the_next_one_begins_when_the_attempts_of_the_cancelled_one_have_ended",
        ),
    },
    "what a step printed or logged that timed out is not kept": {
        "engines/test_step_logs": ("test_an_attempt_that_times_out_has_its_lines",),
    },
    AT_ONCE: {
        "engines/test_approval_ownership": (
            "test_claimed_while_another_process_drives_shows_at_once_and_stands",
        ),
        "engines/test_changed_tools": (
            "test_a_question_whose_process_died_at_once_is_described_by_the_next",
        ),
        "engines/test_services": ("test_a_cancel_can_be_recorded_for_the_process_that_drives",),
        "engines/test_upgrade": ("test_what_a_living_process_holds_is_left_alone_and_told",),
    },
}
"""Reason → module → tests that do not hold, or cases of them."""
