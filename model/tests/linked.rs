//! A DEN and its warm runners with all rules, in all settings that are small enough to look at completely.

use disbatch_model::link::properties::{ALL, FINISHED};
use disbatch_model::link::state::State;
use disbatch_model::link::{Faults, Linked, Rules, Way};
use disbatch_model::mark::{FOUND, GONE, Looks, Mark};
use disbatch_model::reach::stuck;
use stateright::{Checker, HasDiscoveries, Model};

/// Goes through all states; more than so many, lest a mistake in the model makes it hold by doing nothing.
fn holds(linked: Linked, more_than: usize) {
    let never = HasDiscoveries::AllOf(["nothing"].into());
    let checker = linked.clone().checker().finish_when(never).spawn_bfs().join();
    for property in ALL {
        let path = checker.discovery(property).map(stateright::Path::into_actions);
        assert_eq!(path, None, "{property}");
    }
    assert!(checker.discovery(FINISHED).is_some());
    assert!(checker.unique_state_count() > more_than, "{}", checker.unique_state_count());
}

/// From every state some path leads to the end of all tasks.
fn never_stuck(linked: &Linked, more_than: usize) {
    let (states, stuck) = stuck(linked, State::all_ended);
    assert_eq!(stuck, None);
    assert!(states > more_than, "{states}");
}

fn nothing_wrong() -> Faults {
    Faults::default()
}

fn everything_wrong_once() -> Faults {
    Faults {
        den_kills: 1,
        runner_kills: 1,
        losses: 1,
        delays: 1,
        leaves: 1,
        stalls: 1,
        rollbacks: 1,
        ends: 0,
    }
}

/// One runner for one task, which is tried again once.
fn one(faults: Faults) -> Linked {
    Linked { rules: Rules::all(), way: Way::Claimed, tasks: 1, runners: 1, limit: 1, max_attempts: 2, faults }
}

/// One runner for two tasks.
fn one_after_the_other(faults: Faults) -> Linked {
    Linked { tasks: 2, ..one(faults) }
}

/// Two runners for two tasks.
fn two(faults: Faults) -> Linked {
    Linked { runners: 2, ..one_after_the_other(faults) }
}

#[test]
fn nothing_is_lost_whatever_happens_to_one_runner() {
    holds(one(everything_wrong_once()), 500_000);
    holds(one(Faults { den_kills: 2, runner_kills: 2, delays: 2, losses: 2, ..nothing_wrong() }), 250_000);
}

#[test]
fn nothing_is_mixed_up_between_tasks_of_one_runner() {
    let faults = nothing_wrong();
    holds(one_after_the_other(Faults { den_kills: 1, delays: 1, losses: 1, ..faults }), 12_000);
    holds(one_after_the_other(Faults { runner_kills: 1, delays: 1, losses: 1, ..faults }), 20_000);
    holds(one_after_the_other(Faults { stalls: 1, delays: 1, losses: 1, ..faults }), 40_000);
    holds(one_after_the_other(Faults { leaves: 1, delays: 2, ..faults }), 6_000);
}

#[test]
fn two_runners_keep_the_limit() {
    let faults = nothing_wrong();
    holds(Linked { limit: 2, ..two(faults) }, 2_000);
    holds(two(Faults { den_kills: 1, delays: 1, ..faults }), 40_000);
    holds(two(Faults { den_kills: 1, runner_kills: 1, ..faults }), 120_000);
    holds(two(Faults { runner_kills: 1, delays: 1, ..faults }), 180_000);
    holds(two(Faults { stalls: 1, losses: 1, ..faults }), 90_000);
    holds(two(Faults { rollbacks: 1, leaves: 1, ..faults }), 20_000);
    holds(Linked { tasks: 1, ..two(Faults { rollbacks: 1, delays: 1, losses: 1, ..faults }) }, 2_500);
    holds(Linked { tasks: 1, ..two(Faults { stalls: 1, runner_kills: 1, ..faults }) }, 10_000);
    holds(Linked { tasks: 1, ..two(Faults { stalls: 1, den_kills: 1, ..faults }) }, 20_000);
}

/// The same where runners are ready, and tasks are started for them in one write.
fn ready(linked: Linked) -> Linked {
    Linked { way: Way::Ready, ..linked }
}

#[test]
fn nothing_is_lost_whatever_happens_to_a_ready_runner() {
    let faults = nothing_wrong();
    let one_task = |faults| ready(one(faults));
    holds(one_task(Faults { den_kills: 1, runner_kills: 1, losses: 1, delays: 1, ..faults }), 20_000);
    holds(one_task(Faults { den_kills: 1, stalls: 1, losses: 1, delays: 1, ..faults }), 35_000);
    holds(one_task(Faults { runner_kills: 1, stalls: 1, leaves: 1, delays: 1, ..faults }), 10_000);
    holds(one_task(Faults { ends: 1, runner_kills: 1, leaves: 1, delays: 1, ..faults }), 25_000);
    holds(one_task(Faults { ends: 1, stalls: 1, losses: 1, delays: 1, ..faults }), 50_000);
    holds(one_task(Faults { delays: 2, losses: 2, ..faults }), 15_000);
}

#[test]
fn a_slot_goes_from_task_to_task() {
    let faults = nothing_wrong();
    let two_tasks = |faults| ready(one_after_the_other(faults));
    holds(two_tasks(Faults { den_kills: 1, delays: 1, ..faults }), 120_000);
    holds(two_tasks(Faults { runner_kills: 1, losses: 1, ..faults }), 7_000);
    holds(two_tasks(Faults { runner_kills: 1, delays: 1, ..faults }), 70_000);
    holds(two_tasks(Faults { stalls: 1, delays: 1, ..faults }), 120_000);
    holds(two_tasks(Faults { ends: 1, losses: 1, ..faults }), 7_000);
    holds(two_tasks(Faults { ends: 1, leaves: 1, ..faults }), 8_000);
    holds(two_tasks(Faults { delays: 1, losses: 1, ..faults }), 30_000);
}

#[test]
fn ready_runners_keep_the_limit() {
    let faults = nothing_wrong();
    holds(Linked { limit: 2, ..ready(two(faults)) }, 10_000);
    holds(ready(two(Faults { runner_kills: 1, ..faults })), 120_000);
    holds(Linked { tasks: 1, ..ready(two(Faults { stalls: 1, delays: 1, ..faults })) }, 90_000);
    holds(Linked { tasks: 1, ..ready(two(Faults { runner_kills: 1, losses: 1, ..faults })) }, 7_000);
    holds(Linked { tasks: 1, way: Way::Both, ..two(Faults { delays: 1, ..faults }) }, 3_000);
    holds(Linked { tasks: 1, way: Way::Both, ..two(Faults { rollbacks: 1, losses: 1, ..faults }) }, 7_000);
    holds(
        Linked { tasks: 1, way: Way::Both, ..two(Faults { stalls: 1, runner_kills: 1, ..faults }) },
        100_000,
    );
}

#[test]
fn no_state_with_warm_runners_is_stuck() {
    let faults = nothing_wrong();
    never_stuck(&one(Faults { stalls: 0, rollbacks: 0, ..everything_wrong_once() }), 15_000);
    never_stuck(&one_after_the_other(Faults { den_kills: 1, runner_kills: 1, delays: 1, ..faults }), 10_000);
    never_stuck(&two(Faults { rollbacks: 1, ..faults }), 3_000);
    never_stuck(&ready(one(Faults { delays: 1, den_kills: 1, runner_kills: 1, ..faults })), 20_000);
    never_stuck(&ready(one_after_the_other(Faults { delays: 1, losses: 1, ..faults })), 30_000);
    never_stuck(&Linked { tasks: 1, ..two(Faults { stalls: 1, delays: 1, ..faults }) }, 10_000);
}

#[test]
fn a_guard_is_marked_before_a_plugin_works() {
    for mark in [Mark::Cold(Looks::After), Mark::Warm { answered: true }] {
        let checker = mark.checker().spawn_bfs().join();
        assert!(checker.discovery(GONE).is_none(), "{mark:?}");
        assert!(checker.discovery(FOUND).is_some(), "{mark:?}");
        assert!(checker.unique_state_count() > 10, "{}", checker.unique_state_count());
    }
}
