//! Who has a slot: with all rules one task at most is in it, and each rule is needed.

use disbatch_model::holds::{Action, FULL, HANDED, Holds, ONE, OWNED, REUSED, Rules};
use disbatch_model::reach::stuck;
use stateright::{Checker, HasDiscoveries, Model};

/// More holders than there can be with so few slots and commands.
const ANY: usize = 100;

fn two_dens(slots: usize, commands: usize, holders: usize) -> Holds {
    Holds { rules: Rules::all(), dens: 2, slots, commands, holders, history: false }
}

/// Goes through all states; more than so many, lest a mistake in the model makes it hold by doing nothing.
fn holds(setting: Holds, more_than: usize) {
    let never = HasDiscoveries::AllOf(["nothing"].into());
    let checker = setting.checker().finish_when(never).spawn_bfs().join();
    for property in [ONE, OWNED] {
        let path = checker.discovery(property).map(stateright::Path::into_actions);
        assert_eq!(path, None, "{property}");
    }
    assert!(checker.discovery(FULL).is_some());
    assert!(checker.unique_state_count() > more_than, "{}", checker.unique_state_count());
}

fn way_to_break(rules: Rules) -> Option<Vec<Action>> {
    let found = HasDiscoveries::AllOf([ONE].into());
    let setting = Holds { rules, ..two_dens(1, 2, 3) };
    let checker = setting.checker().finish_when(found).spawn_bfs().join();
    checker.discovery(ONE).map(stateright::Path::into_actions)
}

/// It does not hold without this rule. With all of them it does: [`holds`] goes through the same setting.
#[track_caller]
fn is_needed(rules: Rules) {
    assert_ne!(way_to_break(rules), None, "without the rule");
}

#[test]
fn one_task_is_in_a_slot() {
    holds(two_dens(1, 2, 3), 5_000);
    holds(two_dens(1, 2, ANY), 10_000);
    holds(two_dens(1, 3, ANY), 80_000);
}

#[test]
fn one_task_is_in_each_of_two_slots() {
    holds(two_dens(2, 1, ANY), 30_000);
    holds(two_dens(2, 2, 3), 250_000);
}

#[test]
fn slots_are_handed_over_and_used_after_a_holder_is_gone() {
    let found = HasDiscoveries::AllOf([FULL, HANDED, REUSED].into());
    let setting = Holds { history: true, ..two_dens(2, 2, 3) };
    let checker = setting.checker().finish_when(found).spawn_bfs().join();
    for property in [FULL, HANDED, REUSED] {
        assert!(checker.discovery(property).is_some(), "{property}");
    }
}

/// Whatever has happened, some path leads to where nobody has a slot.
#[test]
fn no_slot_is_lost() {
    let (states, stuck) = stuck(&two_dens(1, 2, ANY), |state| {
        state.documents.iter().all(Option::is_none) && state.tasks.is_empty() && state.commands.is_empty()
    });
    assert_eq!(stuck, None);
    assert!(states > 10_000, "{states}");
}

#[test]
fn a_slot_that_is_taken_without_an_insert_has_two_holders() {
    is_needed(Rules { inserts: false, ..Rules::all() });
}

#[test]
fn a_start_without_a_fence_comes_when_its_slot_has_another_holder() {
    is_needed(Rules { fences: false, ..Rules::all() });
}

#[test]
fn a_start_that_takes_longer_than_the_margin_passes_its_fence() {
    is_needed(Rules { bounds_starts: false, ..Rules::all() });
}

#[test]
fn a_den_that_keeps_its_id_uses_slots_that_were_taken_back() {
    is_needed(Rules { draws_anew: false, ..Rules::all() });
}

#[test]
fn a_slot_that_is_freed_by_time_has_a_task() {
    is_needed(Rules { looks_for_tasks: false, ..Rules::all() });
}

#[test]
fn who_looks_before_the_holder_is_gone_misses_its_last_start() {
    is_needed(Rules { looks_when_gone: false, ..Rules::all() });
}

#[test]
fn a_late_deletion_that_names_no_holder_deletes_what_another_one_has() {
    is_needed(Rules { names_holders: false, ..Rules::all() });
}

#[test]
fn a_start_that_is_made_although_the_end_failed_is_one_too_many() {
    is_needed(Rules { ends_first: false, ..Rules::all() });
}

#[test]
fn a_start_without_an_answer_that_is_given_up_is_made_later() {
    is_needed(Rules { waits_for_starts: false, ..Rules::all() });
}

#[test]
fn a_slot_that_is_used_again_is_deleted_late() {
    is_needed(Rules { waits_for_deletions: false, ..Rules::all() });
}
