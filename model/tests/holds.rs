//! The protocol with all its rules, in all settings that are small enough to look at completely.

use disbatch_model::properties::{ALL, DONE, EVERYBODY, FINISHED};
use disbatch_model::protocol::{OnLostLease, OnOrphan, Protocol, Rules, RunnerKind, Setting};
use disbatch_model::reach::stuck;
use disbatch_model::state::State;
use disbatch_model::timing::{ACTS, IN_TIME, Timing};
use stateright::{Checker, HasDiscoveries, Model};

/// Goes through all states; more than so many, lest a mistake in the model makes it hold by doing nothing.
fn holds(setting: Setting, more_than: usize) {
    let counts_all = setting.perl_dens.is_empty();
    let protocol = Protocol { rules: Rules::all(), setting };
    // Not before the last state, even if everything that should be found is found.
    let never = HasDiscoveries::AllOf(["nothing"].into());
    let checker = protocol.checker().finish_when(never).spawn_bfs().join();
    for property in ALL.into_iter().chain(counts_all.then_some(EVERYBODY)) {
        let path = checker.discovery(property).map(stateright::Path::into_actions);
        assert_eq!(path, None, "{property}");
    }
    assert!(checker.discovery(DONE).is_some() && checker.discovery(FINISHED).is_some());
    assert!(checker.unique_state_count() > more_than, "{}", checker.unique_state_count());
}

fn never_stuck(setting: Setting, more_than: usize) {
    let (states, stuck) = stuck(&Protocol { rules: Rules::all(), setting }, State::all_ended);
    assert_eq!(stuck, None);
    assert!(states > more_than, "{states}");
}

fn faults() -> Setting {
    Setting { crashes: true, stalls: true, ..Setting::smallest() }
}

fn outages() -> Setting {
    Setting { dens: 2, outages: true, on_lost_lease: OnLostLease::Keep, ..Setting::smallest() }
}

/// `threads` 2: room for more than one, and less than there is to do.
fn crowd() -> Setting {
    Setting { dens: 2, tasks: 3, limits: vec![2], ..Setting::smallest() }
}

#[test]
fn two_dens_keep_the_limit() {
    holds(crowd(), 15_000);
}

#[test]
fn two_dens_keep_a_limit_that_changes() {
    holds(Setting { limits: vec![2, 1], ..crowd() }, 150_000);
    holds(Setting { tasks: 2, limits: vec![2, 1, 0], ..crowd() }, 50_000);
}

#[test]
fn two_dens_keep_the_limit_beside_perl() {
    // Two places for our runners beside the one that Perl's may take.
    holds(Setting { perl_dens: vec![2], runners: 3, ..crowd() }, 100_000);
}

#[test]
fn two_dens_keep_the_limit_when_processes_die_or_stand_still() {
    holds(Setting { dens: 2, tasks: 2, on_orphan: OnOrphan::Fail, ..faults() }, 300_000);
}

#[test]
fn a_lost_task_is_run_again_alone() {
    holds(Setting { dens: 2, ..faults() }, 50_000);
    holds(Setting { dens: 1, tasks: 2, ..faults() }, 10_000);
}

#[test]
fn two_dens_keep_the_limit_when_lost_tasks_are_run_again() {
    holds(Setting { dens: 2, tasks: 2, crashes: false, ..faults() }, 150_000);
}

#[test]
fn an_outage_costs_no_task() {
    holds(outages(), 15_000);
    holds(Setting { crashes: true, stalls: true, ..outages() }, 150_000);
}

#[test]
fn a_partition_is_no_danger_where_plugins_stop() {
    holds(Setting { partitions: true, on_lost_lease: OnLostLease::Stop, ..outages() }, 15_000);
}

#[test]
fn perl_on_the_same_node_is_not_mistaken() {
    holds(Setting { perl_dens: vec![0], ..faults() }, 1_500);
}

#[test]
fn runners_of_perl_are_left_alone() {
    holds(Setting { runner: RunnerKind::Perl, ..faults() }, 40);
    holds(Setting { runner: RunnerKind::Perl, dens: 2, tasks: 2, ..faults() }, 1_000);
}

#[test]
fn no_state_is_stuck() {
    never_stuck(Setting { dens: 2, ..faults() }, 50_000);
    never_stuck(Setting { dens: 1, tasks: 2, ..faults() }, 10_000);
    never_stuck(Setting { tasks: 2, limits: vec![2, 1, 0], ..crowd() }, 50_000);
    never_stuck(Setting { perl_dens: vec![0], ..faults() }, 1_500);
    never_stuck(outages(), 15_000);
    never_stuck(Setting { runner: RunnerKind::Perl, dens: 2, tasks: 2, ..faults() }, 1_000);
}

#[test]
fn a_guard_is_in_time() {
    let checker = Timing { from_sending: true, counts_sleep: true }.checker().spawn_bfs().join();
    assert!(checker.discovery(IN_TIME).is_none());
    assert!(checker.discovery(ACTS).is_some());
    assert!(checker.unique_state_count() > 100, "{}", checker.unique_state_count());
}
