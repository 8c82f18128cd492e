//! Each rule is needed: without it the checker finds a way to break a property, which holds with it.

use disbatch_model::model::Action;
use disbatch_model::properties::{
    ALONE, END_FENCED, EVERYBODY, LIMIT, NOT_ROBBED, OWNED, PLUGINS, SLOTS, START_FENCED,
};
use disbatch_model::protocol::{Guard, OnLostLease, OnOrphan, Protocol, Rules, RunnerKind, Setting};
use disbatch_model::timing::{IN_TIME, Timing};
use stateright::{Checker, HasDiscoveries, Model};

/// The shortest way to break the property.
fn way_to_break(property: &'static str, rules: Rules, setting: &Setting) -> Option<Vec<Action>> {
    let protocol = Protocol { rules, setting: setting.clone() };
    let found = |checker: stateright::CheckerBuilder<_>| {
        let found = HasDiscoveries::AllOf([property].into());
        let checker = checker.finish_when(found).spawn_bfs().join();
        checker.discovery(property).map(stateright::Path::into_actions)
    };
    found(protocol.clone().checker())?;
    // The checker stops some time after its discovery, and reports its last one.
    (1..).find_map(|depth| found(protocol.clone().checker().target_max_depth(depth)))
}

/// The property holds with all rules, and not without this one.
#[track_caller]
fn is_needed(rules: Rules, property: &'static str, setting: &Setting) {
    assert_ne!(way_to_break(property, rules, setting), None, "{property} without the rule");
    assert_eq!(way_to_break(property, Rules::all(), setting), None);
}

fn faults() -> Setting {
    Setting { crashes: true, stalls: true, ..Setting::smallest() }
}

fn two_dens() -> Setting {
    Setting { dens: 2, tasks: 2, ..Setting::smallest() }
}

fn outages() -> Setting {
    Setting { dens: 2, outages: true, on_lost_lease: OnLostLease::Keep, ..Setting::smallest() }
}

#[test]
fn without_slots_two_dens_claim_too_much() {
    is_needed(Rules { slots: false, ..Rules::all() }, SLOTS, &two_dens());
}

#[test]
fn a_slot_that_is_freed_by_time_is_given_while_its_runner_lives() {
    let rules = Rules { slots_until_left: false, confirmation: false, ..Rules::all() };
    let setting = Setting { tasks: 2, ..outages() };
    is_needed(rules.clone(), SLOTS, &setting);
    is_needed(rules, PLUGINS, &setting);
}

#[test]
fn counting_then_claiming_runs_too_much() {
    let rules = Rules { slots: false, confirmation: false, ..Rules::all() };
    is_needed(rules.clone(), EVERYBODY, &two_dens());
    is_needed(rules, PLUGINS, &two_dens());
    let perl = Setting { dens: 0, perl_dens: vec![0, 1], ..two_dens() };
    assert!(way_to_break(EVERYBODY, Rules::all(), &perl).is_some());
}

#[test]
fn without_confirmation_a_lowered_limit_is_passed() {
    let rules = Rules { confirmation: false, ..Rules::all() };
    is_needed(rules, LIMIT, &Setting { dens: 1, limits: vec![2, 1], ..two_dens() });
}

#[test]
fn without_confirmation_we_pass_the_limit_beside_perl() {
    let rules = Rules { confirmation: false, ..Rules::all() };
    is_needed(rules, LIMIT, &Setting { dens: 1, perl_dens: vec![1], ..two_dens() });
}

#[test]
fn without_the_attempt_a_late_runner_of_the_node_writes() {
    let rules = Rules { attempt: false, ..Rules::all() };
    is_needed(rules.clone(), START_FENCED, &faults());
    is_needed(rules, END_FENCED, &faults());
}

#[test]
fn without_the_instance_a_late_runner_writes_for_perls() {
    let setting = Setting { perl_dens: vec![0], ..faults() };
    let rules = Rules { instance: false, ..Rules::all() };
    is_needed(rules.clone(), START_FENCED, &setting);
    is_needed(rules, END_FENCED, &setting);
}

#[test]
fn without_a_guard_two_plugins_work_at_once() {
    let setting = Setting { dens: 2, stalls: true, ..Setting::smallest() };
    let rules = Rules { guard: Guard::Absent, ..Rules::all() };
    is_needed(rules.clone(), ALONE, &setting);
    is_needed(rules, PLUGINS, &setting);
}

#[test]
fn a_guard_that_begins_with_the_plugin_is_late() {
    let setting = Setting { dens: 2, stalls: true, ..Setting::smallest() };
    is_needed(Rules { guard: Guard::FromPlugin, ..Rules::all() }, ALONE, &setting);
}

#[test]
fn a_dead_runner_does_not_mean_a_dead_plugin() {
    is_needed(Rules { owner_clears: false, ..Rules::all() }, ALONE, &faults());
}

#[test]
fn others_that_do_not_wait_after_an_outage_take_tasks_from_the_living() {
    let rules = Rules { others_wait: false, ..Rules::all() };
    is_needed(rules.clone(), NOT_ROBBED, &outages());
    is_needed(rules, ALONE, &outages());
}

#[test]
fn an_owner_that_does_not_wait_after_an_outage_kills_the_living() {
    let rules = Rules { owner_waits: false, ..Rules::all() };
    is_needed(rules, NOT_ROBBED, &Setting { dens: 1, ..outages() });
}

#[test]
fn a_lease_that_the_runner_does_not_know_of_takes_its_task() {
    let rules = Rules { lease_for_ours_only: false, ..Rules::all() };
    is_needed(rules.clone(), OWNED, &Setting { runner: RunnerKind::Perl, ..faults() });
    is_needed(rules, START_FENCED, &Setting { runner: RunnerKind::Perl, ..faults() });
}

/// Not a rule but a choice, and the price of the default: a plugin that goes on without the database is not counted
/// any more; and where its task is queued again, there may be two of it.
#[test]
fn plugins_that_keep_on_may_be_too_many_in_a_partition() {
    let stop = Setting { outages: false, partitions: true, on_lost_lease: OnLostLease::Stop, ..outages() };
    let keep = Setting { on_lost_lease: OnLostLease::Keep, ..stop.clone() };
    let keep_and_fail = Setting { on_orphan: OnOrphan::Fail, tasks: 2, ..keep.clone() };
    for (property, setting) in
        [(OWNED, &keep), (ALONE, &keep), (PLUGINS, &keep), (OWNED, &keep_and_fail), (PLUGINS, &keep_and_fail)]
    {
        assert_ne!(way_to_break(property, Rules::all(), setting), None, "{property}");
        assert_eq!(way_to_break(property, Rules::all(), &stop), None, "{property}");
    }
    assert_eq!(way_to_break(ALONE, Rules::all(), &keep_and_fail), None);
}

#[test]
fn a_guard_that_counts_from_the_answer_is_late() {
    let timing = Timing { from_sending: false, counts_sleep: true };
    assert!(timing.checker().spawn_bfs().join().discovery(IN_TIME).is_some());
}

#[test]
fn a_guard_whose_clock_stops_in_sleep_is_late() {
    let timing = Timing { from_sending: true, counts_sleep: false };
    assert!(timing.checker().spawn_bfs().join().discovery(IN_TIME).is_some());
}
