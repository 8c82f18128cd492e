//! Whether every state can still come to a good end, which a property of single states or paths cannot say.

use std::collections::HashMap;
use std::hash::Hash;

use stateright::Model;

/// How many states there are, and one from which no path leads to a good end, if there is such a state.
#[must_use]
pub fn stuck<M>(model: &M, is_good: impl Fn(&M::State) -> bool) -> (usize, Option<M::State>)
where
    M: Model,
    M::State: Clone + Eq + Hash,
{
    let mut states = model.init_states();
    let mut numbers: HashMap<M::State, usize> = states.iter().cloned().zip(0..).collect();
    let mut from: Vec<Vec<usize>> = vec![Vec::new(); states.len()];
    let mut next = 0;
    while next < states.len() {
        for after in model.next_states(&states[next]) {
            let number = *numbers.entry(after).or_insert_with_key(|after| {
                states.push(after.clone());
                from.push(Vec::new());
                states.len() - 1
            });
            from[number].push(next);
        }
        next += 1;
    }
    let mut good: Vec<bool> = states.iter().map(is_good).collect();
    let mut ahead: Vec<usize> = (0..states.len()).filter(|&number| good[number]).collect();
    while let Some(number) = ahead.pop() {
        for &before in &from[number] {
            if !std::mem::replace(&mut good[before], true) {
                ahead.push(before);
            }
        }
    }
    let stuck = good.iter().position(|good| !good).map(|number| states.swap_remove(number));
    (good.len(), stuck)
}
