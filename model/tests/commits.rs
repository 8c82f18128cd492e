//! Tasks that their plugins end: with all rules effects and end are there together, and each rule is needed.

use disbatch_model::commits::{Commits, FOUND, LATE, Open, Rules, SECOND, STANDS, THEIRS};
use disbatch_model::reach;
use stateright::{Checker, HasDiscoveries, Model};

const SETTINGS: [(usize, usize); 3] = [(1, 2), (2, 1), (3, 2)];

fn setting(rules: Rules, (attempts, dens): (usize, usize)) -> Commits {
    Commits { rules, attempts, dens }
}

/// `property` fails in the smallest setting with two attempts.
#[track_caller]
fn fails(rules: Rules, property: &'static str) {
    let found = HasDiscoveries::AllOf([property].into());
    let checker = setting(rules, SETTINGS[1]).checker().finish_when(found).spawn_bfs().join();
    assert!(checker.discovery(property).is_some(), "without the rule");
}

#[test]
fn effects_and_end_are_there_together() {
    for (case, more_than) in SETTINGS.into_iter().zip([50, 500, 20_000]) {
        let never = HasDiscoveries::AllOf(["nothing"].into());
        let checker = setting(Rules::all(), case).checker().finish_when(never).spawn_bfs().join();
        for property in [STANDS, THEIRS] {
            let wrong = checker.discovery(property).map(stateright::Path::into_actions);
            assert_eq!(wrong, None, "{property} {case:?}");
        }
        for property in [FOUND, LATE] {
            assert!(checker.discovery(property).is_some(), "{property} {case:?}");
        }
        assert_eq!(checker.discovery(SECOND).is_some(), case.0 > 1, "{case:?}");
        assert!(checker.unique_state_count() > more_than, "{}", checker.unique_state_count());
    }
}

#[test]
fn every_task_can_come_to_its_end() {
    for case in SETTINGS {
        let (_, stuck) = reach::stuck(&setting(Rules::all(), case), disbatch_model::commits::Moment::is_over);
        assert_eq!(stuck, None);
    }
}

#[test]
fn a_burial_that_does_not_settle_has_it_done_again() {
    fails(Rules { burials_settle: false, ..Rules::all() }, STANDS);
}

#[test]
fn a_runner_that_does_not_settle_ends_it_otherwise() {
    fails(Rules { ends_settle: false, ..Rules::all() }, STANDS);
}

#[test]
fn a_plugin_that_commits_after_it_was_decided_does_so_beside_the_next_attempt() {
    fails(Rules { inserts: false, ..Rules::all() }, STANDS);
}

#[test]
fn an_open_transaction_that_is_taken_for_none_is_committed_later() {
    fails(Rules { open: Open::IsNone, ..Rules::all() }, STANDS);
}

#[test]
fn an_open_transaction_that_is_taken_for_committed_may_be_aborted() {
    fails(Rules { open: Open::IsCommitted, ..Rules::all() }, THEIRS);
}

#[test]
fn what_was_settled_of_an_attempt_is_not_written_for_the_next() {
    fails(Rules { fences: false, ..Rules::all() }, STANDS);
}

/// Nothing wrong is done then, but nothing right either.
#[test]
fn under_the_name_of_the_task_no_later_attempt_commits() {
    let rules = Rules { names_attempts: false, ..Rules::all() };
    let never = HasDiscoveries::AllOf(["nothing"].into());
    let checker = setting(rules, SETTINGS[1]).checker().finish_when(never).spawn_bfs().join();
    assert!(checker.discovery(SECOND).is_none());
}
