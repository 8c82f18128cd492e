//! Who keeps `threads`: with all rules it is kept, and each rule is needed.

use disbatch_model::limits::{Action, FULL, HANDED, HandsOver, LIMIT, Limits, Rules, SLOTS};
use stateright::{Checker, HasDiscoveries, Model};

/// Goes through all states; more than so many, lest a mistake in the model makes it hold by doing nothing.
fn holds(limits: Limits, more_than: usize) {
    let never = HasDiscoveries::AllOf(["nothing"].into());
    let handover = limits.handover;
    let checker = limits.checker().finish_when(never).spawn_bfs().join();
    for property in [LIMIT, SLOTS] {
        let path = checker.discovery(property).map(stateright::Path::into_actions);
        assert_eq!(path, None, "{property}");
    }
    assert!(checker.discovery(FULL).is_some() && checker.discovery(HANDED).is_some() == handover);
    assert!(checker.unique_state_count() > more_than, "{}", checker.unique_state_count());
}

fn way_to_break(property: &'static str, limits: &Limits) -> Option<Vec<Action>> {
    let found = HasDiscoveries::AllOf([property].into());
    let checker = limits.clone().checker().finish_when(found).spawn_bfs().join();
    checker.discovery(property).map(stateright::Path::into_actions)
}

/// The property does not hold without this rule. With all of them it does: [`holds`] goes through the same settings.
#[track_caller]
fn is_needed(rules: Rules, property: &'static str, setting: &Limits) {
    let way = way_to_break(property, &Limits { rules, ..setting.clone() });
    assert_ne!(way, None, "{property} without the rule");
}

fn dens(dens: usize, limits: &[u8]) -> Limits {
    Limits { rules: Rules::all(), dens, limits: limits.to_vec(), others: false, handover: true }
}

fn beside_others(limits: Limits) -> Limits {
    Limits { others: true, ..limits }
}

#[test]
fn a_limit_is_kept_without_counting() {
    holds(dens(1, &[1, 0]), 300);
    holds(dens(1, &[2, 1, 0]), 2_000);
    holds(dens(2, &[1]), 800);
    holds(dens(2, &[2]), 8_000);
    holds(dens(2, &[2, 1]), 100_000);
}

#[test]
fn two_dens_keep_a_lower_limit() {
    holds(dens(2, &[3, 2]), 1_000_000);
}

#[test]
fn three_dens_keep_a_lower_limit() {
    holds(Limits { handover: false, ..dens(3, &[2, 1]) }, 400_000);
}

#[test]
fn a_limit_that_changes_twice_is_kept() {
    holds(dens(2, &[1, 2, 1]), 250_000);
}

#[test]
fn a_limit_that_is_raised_is_kept_without_counting() {
    holds(dens(2, &[0, 2]), 2_000);
    holds(dens(2, &[1, 2]), 20_000);
    holds(dens(2, &[2, 0, 2]), 100_000);
    holds(dens(2, &[3, 1, 2]), 2_000_000);
}

#[test]
fn a_limit_is_kept_beside_programs_without_slots() {
    holds(beside_others(dens(1, &[1])), 800);
    holds(beside_others(dens(1, &[2])), 5_000);
    holds(beside_others(dens(2, &[1])), 30_000);
}

#[test]
fn without_slots_two_dens_start_too_much() {
    is_needed(Rules { slots: false, ..Rules::all() }, SLOTS, &dens(2, &[1]));
}

#[test]
fn any_free_slot_is_one_too_many_beside_a_task_above_the_limit() {
    is_needed(Rules { lowest: false, ..Rules::all() }, LIMIT, &dens(2, &[3, 2]));
}

#[test]
fn a_claim_by_old_settings_passes_the_limit() {
    is_needed(Rules { counts_old_claims: false, ..Rules::all() }, LIMIT, &dens(1, &[2, 1]));
}

#[test]
fn a_claim_by_an_old_look_passes_the_limit() {
    is_needed(Rules { looks_from_asking: false, ..Rules::all() }, LIMIT, &dens(2, &[2, 1]));
}

#[test]
fn a_counted_claim_in_any_slot_hides_from_who_does_not_count() {
    is_needed(Rules { keeps_lowest: false, ..Rules::all() }, LIMIT, &dens(2, &[3, 2]));
}

#[test]
fn a_slot_that_is_handed_over_by_old_settings_passes_the_limit() {
    is_needed(Rules { hands_over_by_new_settings: false, ..Rules::all() }, LIMIT, &dens(1, &[1, 0]));
}

#[test]
fn without_counting_after_a_change_what_others_started_before_is_missed() {
    is_needed(Rules { counts_after_change: false, ..Rules::all() }, LIMIT, &dens(2, &[2, 1]));
}

#[test]
fn who_only_seems_alone_misses_what_others_started_before() {
    is_needed(Rules { alone_is_silence: false, ..Rules::all() }, LIMIT, &dens(2, &[2, 1]));
}

#[test]
fn a_slot_above_the_limit_that_is_handed_over_keeps_the_limit_passed() {
    is_needed(Rules { hands_over: HandsOver::All, ..Rules::all() }, LIMIT, &dens(1, &[2, 1]));
}

#[test]
fn a_slot_that_is_handed_over_beside_one_above_the_limit_keeps_it_passed() {
    is_needed(Rules { hands_over: HandsOver::BelowLimit, ..Rules::all() }, LIMIT, &dens(1, &[2, 1]));
}

#[test]
fn a_slot_that_is_handed_over_within_the_limit_is_free_for_a_moment() {
    is_needed(Rules { hands_over: HandsOver::WithinLimit, ..Rules::all() }, LIMIT, &dens(2, &[3, 2]));
}

#[test]
fn a_slot_that_is_handed_over_while_it_is_counted_passes_the_limit() {
    let rules = Rules { hands_over_uncounted_only: false, ..Rules::all() };
    is_needed(rules.clone(), LIMIT, &dens(2, &[2, 1]));
    is_needed(rules, LIMIT, &beside_others(dens(1, &[1])));
}

#[test]
fn beside_programs_without_slots_who_does_not_count_passes_the_limit() {
    is_needed(Rules { counts_beside_others: false, ..Rules::all() }, LIMIT, &beside_others(dens(1, &[1])));
}

#[test]
fn who_has_not_heard_that_a_limit_was_higher_for_a_moment_passes_it() {
    is_needed(Rules { hears_each_change: false, ..Rules::all() }, LIMIT, &dens(2, &[1, 2, 1]));
}
