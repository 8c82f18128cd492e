//! Who has a key: with all rules one live task at most, and each rule is needed.

use disbatch_model::keys::{BOTH, HELPED, Keys, ONE, RETRIED, Rules};
use stateright::{Checker, HasDiscoveries, Model};

fn setting(submitters: usize, retries: usize) -> Keys {
    Keys { rules: Rules::all(), submitters, retries, settlers: 0, legacy: false }
}

/// Goes through all states; more than so many, lest a mistake in the model makes it hold by doing nothing.
fn holds(keys: Keys, reached: &[&'static str], more_than: usize) {
    let never = HasDiscoveries::AllOf(["nothing"].into());
    let checker = keys.checker().finish_when(never).spawn_bfs().join();
    assert_eq!(checker.discovery(ONE).map(stateright::Path::into_actions), None);
    for property in reached {
        assert!(checker.discovery(property).is_some(), "{property}");
    }
    assert!(checker.unique_state_count() > more_than, "{}", checker.unique_state_count());
}

/// It does not hold without this rule. With all of them it does: [`holds`] goes through the same settings.
#[track_caller]
fn is_needed(rules: Rules, setting: Keys) {
    let found = HasDiscoveries::AllOf([ONE].into());
    let checker = Keys { rules, ..setting }.checker().finish_when(found).spawn_bfs().join();
    assert!(checker.discovery(ONE).is_some(), "without the rule");
}

fn legacy(keys: Keys) -> Keys {
    Keys { legacy: true, ..keys }
}

fn settled(keys: Keys) -> Keys {
    Keys { settlers: 1, ..keys }
}

#[test]
fn one_live_task_has_the_key() {
    holds(setting(2, 0), &[HELPED, BOTH], 500);
    holds(setting(1, 1), &[RETRIED], 100);
    holds(setting(2, 1), &[HELPED, RETRIED, BOTH], 10_000);
    holds(setting(1, 2), &[RETRIED], 1_000);
    holds(legacy(setting(2, 0)), &[HELPED, BOTH], 1_000);
    holds(legacy(setting(1, 1)), &[RETRIED, BOTH], 1_000);
}

#[test]
fn three_submitters_share_it() {
    holds(setting(3, 0), &[HELPED, BOTH], 10_000);
}

#[test]
fn somebody_else_settles_what_a_submitter_has_left() {
    holds(settled(setting(1, 1)), &[RETRIED], 1_000);
    holds(settled(setting(2, 1)), &[HELPED, RETRIED, BOTH], 100_000);
}

#[test]
fn whoever_settles_brings_no_hold_back_that_was_read_before() {
    is_needed(Rules { settlers_differ: false, ..Rules::all() }, settled(setting(2, 1)));
}

#[test]
fn with_the_key_first_a_late_submitter_inserts_beside_another() {
    is_needed(Rules { inserts_first: false, ..Rules::all() }, setting(2, 0));
}

#[test]
fn without_holds_a_key_goes_on_that_its_task_has_again() {
    is_needed(Rules { compares_holds: false, ..Rules::all() }, setting(2, 1));
}

#[test]
fn without_marks_a_late_retry_finds_its_task_as_it_was() {
    is_needed(Rules { marks: false, ..Rules::all() }, setting(2, 1));
}

#[test]
fn whoever_leaves_the_mark_leaves_the_retry() {
    is_needed(Rules { removes_marks: false, ..Rules::all() }, setting(2, 1));
}

#[test]
fn tasks_that_no_key_names_have_to_be_looked_for() {
    is_needed(Rules { looks_again: false, ..Rules::all() }, legacy(setting(1, 1)));
    is_needed(Rules { helpers_look: false, ..Rules::all() }, legacy(setting(2, 0)));
}
