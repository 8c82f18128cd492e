//! Who keeps `threads`, where a start is one write and nobody counts after it.
//!
//! Slots do: each is given once, and there are as many as `threads`. Three things they do not keep, and each has rules. A limit that
//! is lowered leaves tasks in slots above it. Settings that were read before the change may still be used. And programs that know
//! nothing of slots take tasks beside them. So a DEN counts after a claim, as the other model has it, while one of these may be the
//! case, and hands a slot over only while none is.
//!
//! # What holds
//!
//! *Of all tasks that were begun and run together, look at the one that was started last. If it is one of ours, and was started later
//! than [`Phase::New`] after the last change, no more run than `threads`.* ([`LIMIT`].) And ours never exceed it at all as long as it
//! is not lowered and there are no others ([`SLOTS`]).
//!
//! # Why
//!
//! Once all have heard of a lower limit, no further task stays in a slot above it: what is claimed by older settings is counted, and
//! kept only in a slot that the count still leaves. So what runs above the limit only becomes less. Who does not count has looked since
//! then, and knows of all that is left of it. Beside so many tasks above the limit, all who know of them use the same slots below it.
//!
//! # Time
//!
//! A change is new for as long as what was read before it may be used without counting: a second. When that is over, all have heard of
//! it ([`Action::Second`]). When what was seen before that is too old as well, nobody counts because of it any more
//! ([`Action::Settled`]). A process may stand still at any time until all that it knows is too old ([`Action::StandStill`]). Nothing says
//! how long that takes; it is for the implementation that its times are in this order.
//!
//! # What is left out
//!
//! The two readings of a count, which the other model has. Several claims at once: each has its answer here before the next.

pub mod state;

use stateright::{Model, Property};

use self::state::{Age, Den, Phase, Running, Start, State, Step};

/// No more than `threads` run, if the last of them is ours and was started after all had heard of the limit.
pub const LIMIT: &str = "what is started after all have heard of a limit keeps it";
/// No more of ours than `threads`, as long as it stays, and nobody else is there.
pub const SLOTS: &str = "slots keep a limit that stays";
/// Some path has as many tasks run as may.
pub const FULL: &str = "all slots are used";
/// Some path has a slot go from task to task in one write.
pub const HANDED: &str = "a slot is handed over";

/// The rules. Each is a switch, so that a test can show what goes wrong without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// A slot is given once.
    pub slots: bool,
    /// Of the free slots, the lowest are tried, as many as the limit leaves.
    pub lowest: bool,
    /// A claim is counted if what it was decided by is too old when its answer comes.
    pub counts_old_claims: bool,
    /// The age of a look counts from when it was asked for.
    pub looks_from_asking: bool,
    /// A claim that is counted is kept only in a slot that it could still be tried for: others may have chosen theirs without having
    /// seen it.
    pub keeps_lowest: bool,
    /// A start in the slot of another task is given back if what it was decided by is too old when its answer comes.
    pub hands_over_by_new_settings: bool,
    /// It is counted while a limit that is not settled was higher.
    pub counts_after_change: bool,
    /// A DEN that is alone, and need not count because of a change, knows that others stand still.
    pub alone_is_silence: bool,
    /// A DEN hears what the limit was for a moment, also if it is by then what it was before.
    pub hears_each_change: bool,
    /// It is counted as long as there may be programs without slots.
    pub counts_beside_others: bool,
    /// Slots are handed over only where it is not counted.
    pub hands_over_uncounted_only: bool,
    /// Which slots are handed over.
    pub hands_over: HandsOver,
}

/// Which slots are handed over, as far as the limit is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandsOver {
    All,
    /// Those below it.
    BelowLimit,
    /// Those below it, while no more tasks run.
    WithinLimit,
    /// All, while no task is seen in a slot that is not below it.
    NoneAbove,
}

impl Rules {
    /// All of them.
    #[must_use]
    pub fn all() -> Self {
        Self {
            slots: true,
            lowest: true,
            counts_old_claims: true,
            looks_from_asking: true,
            keeps_lowest: true,
            hands_over_by_new_settings: true,
            counts_after_change: true,
            alone_is_silence: true,
            hears_each_change: true,
            counts_beside_others: true,
            hands_over_uncounted_only: true,
            hands_over: HandsOver::NoneAbove,
        }
    }
}

/// What is checked: rules in a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub rules: Rules,
    /// How many DENs there are.
    pub dens: usize,
    /// The first `threads`, then what the operator sets it to, one after the other, whenever that is.
    pub limits: Vec<u8>,
    /// A DEN of another program may come, which counts, then claims, and has no slots.
    pub others: bool,
    /// Slots may be handed over.
    pub handover: bool,
}

/// One atomic step. The numbers are places in the lists of [`State`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The operator sets `threads`.
    SetLimit(u8),
    /// Another program comes.
    OtherComes,
    OtherCounts,
    /// It claims and runs a task.
    OtherClaims,
    /// A second after the last change: what was read before it is too old.
    Second,
    /// Some seconds more: what was read before that is too old.
    Settled,
    /// A DEN stands still until all that it knows is too old.
    StandStill(usize),
    /// A DEN stands still until nobody reckons with it any more.
    FallSilent(usize),
    /// A DEN finds that it is alone.
    Alone(usize),
    /// A DEN reads `threads`, and who is there.
    Read(usize),
    /// A DEN looks what runs, and means to start a task in this slot by a claim.
    Claim(usize, u8),
    /// The same, if `threads` turns out to be this when it reads it.
    ClaimIf(usize, u8, u8),
    /// A DEN looks what runs, and means to end a task, and to start another one in this slot of it.
    HandOver(usize, u8),
    /// The same, if `threads` turns out to be this when it reads it.
    HandOverIf(usize, u8, u8),
    /// A DEN has that written.
    Write(usize),
    /// A DEN has its answer: it tells a runner, or counts first, or gives the start back.
    Answer(usize),
    /// A task ends.
    End(usize),
}

impl Model for Limits {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            limit: self.limits[0],
            changes: 0,
            phase: Phase::Settled,
            running: Vec::new(),
            dens: vec![Den { silent: true, ..Den::default() }; self.dens],
            others: false,
            other_sees_room: false,
            changed: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        use Action::{
            Alone, Answer, Claim, ClaimIf, End, FallSilent, HandOver, HandOverIf, OtherClaims, OtherComes,
            OtherCounts, Read, Second, SetLimit, Settled, StandStill, Write,
        };
        actions.extend(self.limits.get(state.changes + 1).map(|limit| SetLimit(*limit)));
        actions.extend([OtherComes, OtherCounts, OtherClaims, Second, Settled]);
        actions.extend((0..state.running.len()).map(End));
        for (number, den) in state.dens.iter().enumerate() {
            actions.extend([Read(number), StandStill(number), FallSilent(number), Alone(number)]);
            if let Some(start) = den.start {
                actions.push(if start.step == Step::Written { Answer(number) } else { Write(number) });
                continue;
            }
            for slot in 0..self.most() {
                actions.extend([Claim(number, slot), HandOver(number, slot)]);
                // What it will be is what it is, or becomes.
                for limit in &self.limits[state.changes..] {
                    actions.extend([ClaimIf(number, slot, *limit), HandOverIf(number, slot, *limit)]);
                }
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let possible = match action {
            Action::SetLimit(limit) => {
                state.limit = limit;
                state.changes += 1;
                state.change();
                let highest = last.limit.max(limit);
                state.dens.iter_mut().for_each(|den| den.peak = den.peak.max(highest));
                true
            }
            Action::OtherComes => {
                state.others = true;
                state.change();
                self.others && !last.others
            }
            Action::OtherCounts => {
                state.other_sees_room = true;
                state.others && !last.other_sees_room && state.running.len() < usize::from(state.limit)
            }
            Action::OtherClaims => {
                state.other_sees_room = false;
                state.running.push(Running { slot: None, den: self.dens, begun: true, late: false });
                last.other_sees_room
            }
            Action::Second => state.second_passes(),
            Action::FallSilent(den) => {
                state.forget(Age::Later);
                state.second_passes();
                !std::mem::replace(&mut state.dens[den].silent, true)
            }
            Action::Settled => {
                state.forget(Age::New);
                state.dens.iter_mut().for_each(|den| den.highest = 0);
                std::mem::replace(&mut state.phase, Phase::Settled) == Phase::Heard
            }
            Action::StandStill(den) => {
                state.dens[den].age(|age| *age = Age::Old);
                state.dens[den] != last.dens[den]
            }
            Action::Alone(den) => self.find_alone(&mut state, den),
            Action::Read(den) => self.read(&mut state, den),
            Action::Claim(den, slot) => self.claim(&mut state, den, slot, None),
            Action::ClaimIf(den, slot, limit) => self.claim(&mut state, den, slot, Some(limit)),
            Action::HandOver(den, slot) => self.hand_over(&mut state, den, slot, None),
            Action::HandOverIf(den, slot, limit) => self.hand_over(&mut state, den, slot, Some(limit)),
            Action::Write(den) => self.write(&mut state, den),
            Action::Answer(den) => self.answer(&mut state, den),
            Action::End(task) => state.running.remove(task).begun,
        };
        if !possible || state.running.len() > usize::from(self.most()) {
            return None;
        }
        state.normalise();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(LIMIT, |_, state: &State| {
                let begun = || state.running.iter().filter(|task| task.begun);
                !begun().next_back().is_some_and(|last| last.late)
                    || begun().count() <= usize::from(state.limit)
            }),
            Property::always(SLOTS, |_, state: &State| {
                state.changed || state.running.len() <= usize::from(state.limit)
            }),
            Property::sometimes(FULL, |_, state: &State| state.running.len() == usize::from(state.limit)),
            Property::sometimes(HANDED, |_, state: &State| {
                state
                    .dens
                    .iter()
                    .filter_map(|den| den.start)
                    .any(|start| start.handed && start.step == Step::Written)
            }),
        ]
    }
}

impl Limits {
    /// So many tasks are looked at together: no limit has more slots, and it takes no more to exceed one that was lowered.
    fn most(&self) -> u8 {
        let highest = self.limits.iter().max().copied().unwrap_or(0);
        if self.limits.len() > 1 { highest } else { highest + 1 }
    }

    fn read(&self, state: &mut State, number: usize) -> bool {
        let (limit, others, age) = (state.limit, state.others, state.now());
        let is_settled = state.phase == Phase::Settled;
        let den = &mut state.dens[number];
        let before = den.clone();
        let peak = std::mem::take(&mut den.peak);
        let was = den.read.map_or(0, |(read, _)| read);
        let highest = if self.rules.hears_each_change { peak } else { was };
        if !is_settled {
            den.highest = den.highest.max(highest);
        }
        den.read = Some((limit, age));
        den.others |= others;
        den.silent = false;
        if let Some(start) = den.start.filter(|start| start.awaits.is_some()) {
            let is_handed = start.handed && self.may_hand_over(den, start.without);
            let age = if self.rules.looks_from_asking { start.age } else { age };
            let goes_on = start.awaits == Some(limit) && (is_handed || !start.handed);
            den.start = goes_on.then_some(Start { awaits: None, age, ..start });
        }
        before != *den
    }

    /// Nobody else has said for long that it is there. Who comes later reads `threads` after that.
    fn find_alone(&self, state: &mut State, number: usize) -> bool {
        let mut others = state.dens.iter().enumerate().filter(|(other, _)| *other != number);
        let is_alone = !self.rules.alone_is_silence || others.all(|(_, den)| den.silent);
        let den = &mut state.dens[number];
        is_alone && den.has_higher() && std::mem::take(&mut den.highest) > 0
    }

    /// Whether it is counted whatever has been read when.
    fn counts(&self, den: &Den, without: bool) -> bool {
        (self.rules.counts_after_change && den.has_higher())
            || (self.rules.counts_beside_others && (den.others || without))
    }

    fn may_hand_over(&self, den: &Den, without: bool) -> bool {
        !(self.rules.hands_over_uncounted_only && self.counts(den, without))
    }

    /// By which limit it is decided now, and how old that is. `guess`: it is read later.
    fn decides(state: &State, number: usize, guess: Option<u8>) -> Option<(u8, Age)> {
        let now = state.now();
        match guess {
            Some(limit) => Some((limit, now)),
            None => state.dens[number].read.filter(|(_, age)| *age != Age::Old),
        }
    }

    fn claim(&self, state: &mut State, number: usize, slot: u8, guess: Option<u8>) -> bool {
        let Some((limit, age)) = Self::decides(state, number, guess) else { return false };
        let possible = state.leaves(limit, slot, self.rules.lowest);
        let without = state.sees_without_slot();
        let start = Start { slot, handed: false, awaits: guess, without, age, step: Step::Decided };
        state.dens[number].start = Some(start);
        possible
    }

    fn hand_over(&self, state: &mut State, number: usize, slot: u8, guess: Option<u8>) -> bool {
        let Some((limit, age)) = Self::decides(state, number, guess) else { return false };
        let without = state.sees_without_slot();
        let may_be_handed = match self.rules.hands_over {
            HandsOver::All => true,
            HandsOver::BelowLimit => slot < limit,
            HandsOver::WithinLimit => slot < limit && state.running.len() <= usize::from(limit),
            HandsOver::NoneAbove => {
                state.running.iter().filter_map(|task| task.slot).all(|slot| slot < limit)
            }
        };
        // What it hears when it reads is looked at then.
        let may_be_handed =
            may_be_handed && (guess.is_some() || self.may_hand_over(&state.dens[number], without));
        let possible = self.handover && limit > 0 && may_be_handed && state.has(number, slot).is_some();
        let start = Start { slot, handed: true, awaits: guess, without, age, step: Step::Decided };
        state.dens[number].start = Some(start);
        possible
    }

    /// Ends first. A start that finds its slot taken is refused.
    fn write(&self, state: &mut State, number: usize) -> bool {
        let Some(start) = state.dens[number].start.filter(|start| start.awaits.is_none()) else {
            return false;
        };
        if start.handed && start.step == Step::Decided {
            if let Some(ended) = state.has(number, start.slot) {
                state.running.remove(ended);
            }
            state.dens[number].start = Some(Start { step: Step::SlotFree, ..start });
            return true;
        }
        if self.rules.slots && !state.is_free(start.slot) {
            state.dens[number].start = None;
            return true;
        }
        let late = state.phase != Phase::New;
        state.running.push(Running { slot: Some(start.slot), den: number, begun: false, late });
        state.dens[number].start = Some(Start { step: Step::Written, ..start });
        true
    }

    fn answer(&self, state: &mut State, number: usize) -> bool {
        let Some(start) = state.dens[number].start.take() else { return false };
        let of_it = |task: &Running| task.slot == Some(start.slot) && task.den == number && !task.begun;
        let Some(at) = state.running.iter().position(of_it) else { return false };
        let task = state.running.remove(at);
        let is_old = start.age == Age::Old;
        let begins = if start.handed {
            !(is_old && self.rules.hands_over_by_new_settings)
        } else if (is_old && self.rules.counts_old_claims) || self.counts(&state.dens[number], start.without)
        {
            let has_room = state.running.len() < usize::from(state.limit);
            has_room && (!self.rules.keeps_lowest || state.leaves(state.limit, start.slot, true))
        } else {
            true
        };
        if begins {
            state.running.insert(at, Running { begun: true, ..task });
        }
        true
    }
}
