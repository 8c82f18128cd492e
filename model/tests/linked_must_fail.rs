//! Each rule of a DEN and its warm runners is needed: without it the checker finds a way to break a property, which
//! holds with it.

use disbatch_model::link::properties::{AGAIN, APART, CONFIRMED, GROUNDS, ONCE, OWNED, STORED};
use disbatch_model::link::{Action, Faults, Linked, Recognition, Rules, Way};
use disbatch_model::mark::{GONE, Looks, Mark};
use stateright::{Checker, HasDiscoveries, Model};

fn way_to_break(property: &'static str, linked: &Linked) -> Option<Vec<Action>> {
    let found = HasDiscoveries::AllOf([property].into());
    let checker = linked.clone().checker().finish_when(found).spawn_bfs().join();
    checker.discovery(property).map(stateright::Path::into_actions)
}

/// The property holds with all rules, and not without this one.
#[track_caller]
fn is_needed(rules: Rules, property: &'static str, setting: &Linked) {
    let way = way_to_break(property, &Linked { rules, ..setting.clone() });
    assert_ne!(way, None, "{property} without the rule");
    assert_eq!(way_to_break(property, setting), None);
}

/// One runner for one task, which is tried again once.
fn one(faults: Faults) -> Linked {
    Linked { rules: Rules::all(), way: Way::Claimed, tasks: 1, runners: 1, limit: 1, max_attempts: 2, faults }
}

fn two_runners(faults: Faults) -> Linked {
    Linked { runners: 2, ..one(faults) }
}

const NONE: Faults = Faults {
    den_kills: 0,
    runner_kills: 0,
    losses: 0,
    delays: 0,
    leaves: 0,
    stalls: 0,
    rollbacks: 0,
    ends: 0,
};

#[test]
fn a_plugin_that_does_not_wait_for_go_has_no_task() {
    is_needed(Rules { waits_for_go: false, ..Rules::all() }, OWNED, &one(NONE));
}

#[test]
fn a_go_before_the_start_is_written_is_too_early() {
    is_needed(Rules { go_after_write: false, ..Rules::all() }, OWNED, &one(NONE));
}

#[test]
fn a_result_that_is_called_stored_before_it_is_may_be_lost() {
    let rules = Rules { stored_after_write: false, ..Rules::all() };
    is_needed(rules, STORED, &one(Faults { den_kills: 1, ..NONE }));
}

#[test]
fn a_task_that_is_started_before_it_is_taken_dies_with_an_idle_runner() {
    is_needed(Rules { taken: false, ..Rules::all() }, GROUNDS, &one(Faults { runner_kills: 1, ..NONE }));
}

#[test]
fn a_runner_that_leaves_without_looking_back_takes_a_started_task_with_it() {
    let setting = one(Faults { leaves: 1, ..NONE });
    is_needed(Rules { taken: false, looks_back: false, ..Rules::all() }, GROUNDS, &setting);
    // Either is enough: what was not taken is not started, and is given back.
    for rules in [Rules { taken: false, ..Rules::all() }, Rules { looks_back: false, ..Rules::all() }] {
        assert_eq!(way_to_break(GROUNDS, &Linked { rules, ..setting.clone() }), None);
    }
}

#[test]
fn a_den_that_cannot_write_a_dead_runners_result_must_keep_it() {
    let faults = Faults { runner_kills: 1, delays: 1, ..NONE };
    is_needed(Rules { keeps: false, ..Rules::all() }, STORED, &one(faults));
}

#[test]
fn a_den_that_does_not_hear_a_dead_runner_out_loses_its_result() {
    is_needed(Rules { hears_out: false, ..Rules::all() }, STORED, &one(Faults { runner_kills: 1, ..NONE }));
}

#[test]
fn a_late_question_without_a_name_is_about_the_next_task() {
    let rules = Rules { named: false, ..Rules::all() };
    is_needed(rules, APART, &Linked { tasks: 2, ..one(NONE) });
}

#[test]
fn without_the_attempt_a_late_runner_writes_for_the_next() {
    let rules = Rules { attempt: false, ..Rules::all() };
    is_needed(rules, APART, &two_runners(Faults { stalls: 1, ..NONE }));
}

#[test]
fn a_claim_that_comes_again_after_a_failover_is_started_unconfirmed() {
    let setting = one(Faults { rollbacks: 1, ..NONE });
    is_needed(Rules { claim: false, ..Rules::all() }, CONFIRMED, &two_runners(setting.faults));
}

#[test]
fn a_start_that_is_not_recognised_leaves_a_task_that_nobody_runs() {
    let rules = Rules { recognition: Recognition::Never, ..Rules::all() };
    is_needed(rules.clone(), GROUNDS, &one(Faults { losses: 1, ..NONE }));
    is_needed(rules, GROUNDS, &one(Faults { delays: 1, ..NONE }));
}

#[test]
fn a_start_that_is_recognised_by_its_claim_alone_may_be_another_runners() {
    let rules = Rules { recognition: Recognition::ByClaim, ..Rules::all() };
    let setting = two_runners(Faults { rollbacks: 1, ..NONE });
    is_needed(rules.clone(), OWNED, &setting);
    is_needed(rules, ONCE, &setting);
}

#[test]
fn a_renewal_that_counts_from_its_answer_lasts_too_long() {
    is_needed(Rules { from_sending: false, ..Rules::all() }, OWNED, &one(Faults { stalls: 1, ..NONE }));
}

#[test]
fn a_start_that_counts_from_its_repetition_lasts_too_long() {
    let rules = Rules { first_sending: false, ..Rules::all() };
    is_needed(rules, OWNED, &one(Faults { losses: 1, stalls: 1, ..NONE }));
}

#[test]
fn a_start_of_the_den_is_old_when_its_runner_repeats_it() {
    let rules = Rules { renews_first: false, ..Rules::all() };
    is_needed(rules.clone(), OWNED, &one(Faults { den_kills: 1, stalls: 1, ..NONE }));
    is_needed(rules, OWNED, &one(Faults { delays: 1, stalls: 1, losses: 1, ..NONE }));
}

#[test]
fn a_guard_that_looks_for_its_runner_before_it_is_marked_begins_for_the_buried() {
    for looks in [Looks::Never, Looks::Before] {
        let checker = Mark::Cold(looks).checker().spawn_bfs().join();
        assert!(checker.discovery(GONE).is_some(), "{looks:?}");
    }
}

#[test]
fn a_warm_plugin_that_has_its_task_before_the_guard_is_marked_works_for_the_buried() {
    assert!(Mark::Warm { answered: false }.checker().spawn_bfs().join().discovery(GONE).is_some());
}

fn ready(linked: Linked) -> Linked {
    Linked { way: Way::Ready, ..linked }
}

#[test]
fn a_start_that_is_given_back_after_it_was_taken_is_begun_twice() {
    let rules = Rules { looks_at_taken: false, ..Rules::all() };
    is_needed(rules, AGAIN, &ready(one(Faults { runner_kills: 1, ..NONE })));
}

#[test]
fn a_start_that_is_given_back_without_its_time_is_begun_twice() {
    let setting = ready(one(Faults { runner_kills: 1, delays: 1, ..NONE }));
    is_needed(Rules { names_time: false, ..Rules::all() }, AGAIN, &setting);
    // The runner has given it another time; otherwise it is the same start for who gives it back.
    is_needed(Rules { new_time: false, ..Rules::all() }, AGAIN, &setting);
}

#[test]
fn a_start_that_is_sent_again_and_given_back_is_lost_to_its_runner() {
    let rules = Rules { starts_once: false, ..Rules::all() };
    let setting = ready(Linked { tasks: 2, ..one(Faults { losses: 1, ..NONE }) });
    is_needed(rules, AGAIN, &setting);
}

#[test]
fn a_start_in_a_slot_that_is_recognised_without_its_runner_is_begun_twice() {
    let rules = Rules { take_recognition: Recognition::ByClaim, ..Rules::all() };
    let setting = Linked { tasks: 3, runners: 2, limit: 2, ..ready(one(NONE)) };
    is_needed(rules, ONCE, &setting);
}

#[test]
fn a_claim_without_an_answer_that_is_given_back_by_its_den_alone_is_begun_twice() {
    let rules = Rules { names_unknown: false, ..Rules::all() };
    is_needed(rules, AGAIN, &ready(one(Faults { losses: 1, delays: 1, ..NONE })));
}

#[test]
fn a_claim_without_an_answer_that_is_left_alone_for_another_runner_is_orphaned() {
    let rules = Rules { gives_back_of_others: false, ..Rules::all() };
    let faults = Faults { rollbacks: 1, losses: 1, ..NONE };
    is_needed(rules, GROUNDS, &Linked { way: Way::Both, ..two_runners(faults) });
}

#[test]
fn a_den_that_ends_between_start_and_telling_leaves_orphans() {
    is_needed(
        Rules { waits_at_end: false, ..Rules::all() },
        GROUNDS,
        &ready(one(Faults { ends: 1, ..NONE })),
    );
}

#[test]
fn a_runner_that_could_not_say_that_it_has_its_task_is_killed_at_work() {
    let rules = Rules { spares_the_well: false, ..Rules::all() };
    is_needed(rules.clone(), GROUNDS, &one(Faults { leaves: 1, ..NONE }));
    is_needed(rules, GROUNDS, &ready(one(NONE)));
}

#[test]
fn a_go_that_counts_from_the_telling_lasts_too_long() {
    let setting = ready(one(Faults { stalls: 1, ..NONE }));
    is_needed(Rules { go_from_asking: false, ..Rules::all() }, OWNED, &setting);
}

#[test]
fn a_start_that_is_made_once_more_is_old() {
    let rules = Rules { renews_first: false, ..Rules::all() };
    is_needed(rules, OWNED, &ready(one(Faults { delays: 1, stalls: 1, losses: 1, ..NONE })));
}
