//! Runs for which a DEN answers: with all rules nobody works for a task that was taken away, and each rule is needed.

use disbatch_model::cover::{BURIED, Cover, LONG, OWNED, Rules, State, Task};
use disbatch_model::reach::stuck;
use stateright::{Checker, HasDiscoveries, Model};

fn setting(rules: Rules, rounds: usize) -> Cover {
    Cover { rules, rounds }
}

/// It does not hold without this rule. With all of them it does: [`who_works_has_the_task`] goes through the same setting.
#[track_caller]
fn is_needed(rules: Rules) {
    let found = HasDiscoveries::AllOf([OWNED].into());
    let checker = setting(rules, 1).checker().finish_when(found).spawn_bfs().join();
    assert!(checker.discovery(OWNED).is_some(), "without the rule");
}

#[test]
fn who_works_has_the_task() {
    for (rounds, more_than) in [(1, 500), (2, 3_000), (3, 15_000)] {
        let never = HasDiscoveries::AllOf(["nothing"].into());
        let checker = setting(Rules::all(), rounds).checker().finish_when(never).spawn_bfs().join();
        let path = checker.discovery(OWNED).map(stateright::Path::into_actions);
        assert_eq!(path, None, "{OWNED}");
        for property in [LONG, BURIED] {
            assert!(checker.discovery(property).is_some(), "{property}");
        }
        assert!(checker.unique_state_count() > more_than, "{}", checker.unique_state_count());
    }
}

/// Whatever has happened, somebody can take the task of a runner that is silent.
#[test]
fn no_task_is_stuck() {
    let (_, stuck) = stuck(&setting(Rules::all(), 2), |state: &State| state.task == Task::TakenAway);
    assert_eq!(stuck, None);
}

#[test]
fn a_den_that_does_not_look_answers_for_a_task_that_was_taken_away() {
    is_needed(Rules { looks: false, ..Rules::all() });
}

#[test]
fn a_den_that_has_seen_a_lease_does_not_know_how_much_of_it_is_left() {
    is_needed(Rules { sees_no_lease: false, ..Rules::all() });
}

#[test]
fn an_answer_that_counts_from_its_arrival_lasts_too_long() {
    is_needed(Rules { counts_from_asking: false, ..Rules::all() });
}

#[test]
fn a_server_that_is_no_primary_any_more_does_not_know_of_the_lease() {
    is_needed(Rules { asks_primary: false, ..Rules::all() });
}

#[test]
fn a_lease_that_is_shorter_than_the_runs_ends_before_its_plugin() {
    is_needed(Rules { gives_whole_leases: false, ..Rules::all() });
}
