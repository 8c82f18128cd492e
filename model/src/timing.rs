//! Why a guard is in time: the clocks of one runner, its guard and the database, tick by tick.
//!
//! The other model takes for granted that a plugin is gone when its lease is over. This one shows what that rests
//! on: the guard counts from the moment at which a renewal was sent, not from its answer, and on a clock that does
//! not stand still while the host sleeps. All clocks run at the same rate here; that hosts differ a little, and that
//! killing takes a moment, is what a margin is for.

use stateright::{Model, Property};

/// The length of a lease, in ticks. An answer takes from none to all of it.
const LEASE: i8 = 4;

/// A plugin is gone when its lease is over, or its host sleeps.
pub const IN_TIME: &str = "no plugin works after its lease";
/// The guard does have to act.
pub const ACTS: &str = "the guard ends a plugin";

/// The rules; each can be left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The guard counts from the sending of a renewal; otherwise from its answer.
    pub from_sending: bool,
    /// The clock of the guard counts sleep (`CLOCK_BOOTTIME`); otherwise it does not (`CLOCK_MONOTONIC`).
    pub counts_sleep: bool,
}

/// All clocks, as the time that is left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Clocks {
    /// Until the lease is over, by the clock of the database.
    pub lease: i8,
    /// Until the guard ends the plugin, by its own clock.
    pub guard: i8,
    /// A renewal that is on its way.
    pub renewal: Option<Renewal>,
    /// The plugin works.
    pub plugin: bool,
    /// The host sleeps: nothing on it moves.
    pub asleep: bool,
}

/// A renewal that was sent and not yet answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Renewal {
    /// Ticks since it was sent, by the runner's clock.
    pub age: i8,
    /// The database has carried it out.
    pub done: bool,
}

/// What can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Time passes.
    Tick,
    /// The runner sends a renewal.
    Send,
    /// The database carries it out.
    Renew,
    /// The answer arrives.
    Answer,
    /// The guard ends the plugin.
    Kill,
    /// The host falls asleep.
    Sleep,
    /// The host wakes up.
    Wake,
}

impl Model for Timing {
    type State = Clocks;
    type Action = Event;

    fn init_states(&self) -> Vec<Clocks> {
        vec![Clocks { lease: LEASE, guard: LEASE, renewal: None, plugin: true, asleep: false }]
    }

    fn actions(&self, _: &Clocks, events: &mut Vec<Event>) {
        use Event::{Answer, Kill, Renew, Send, Sleep, Tick, Wake};
        events.extend([Tick, Send, Renew, Answer, Kill, Sleep, Wake]);
    }

    fn next_state(&self, last: &Clocks, event: Event) -> Option<Clocks> {
        let mut next = last.clone();
        let due = last.plugin && !last.asleep && last.guard <= 0;
        let possible = match event {
            Event::Tick => {
                self.tick(&mut next);
                !due
            }
            Event::Send => {
                next.renewal = Some(Renewal { age: 0, done: false });
                last.plugin && !last.asleep && last.renewal.is_none()
            }
            Event::Renew => {
                next.lease = LEASE;
                next.renewal = last.renewal.map(|renewal| Renewal { done: true, ..renewal });
                last.lease >= 0 && last.renewal.is_some_and(|renewal| !renewal.done)
            }
            Event::Answer => {
                let renewal = next.renewal.take()?;
                next.guard = if self.from_sending { LEASE - renewal.age } else { LEASE };
                renewal.done && !last.asleep
            }
            Event::Kill => {
                next.plugin = false;
                due
            }
            Event::Sleep | Event::Wake => {
                next.asleep = event == Event::Sleep;
                last.asleep != next.asleep
            }
        };
        possible.then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            // A guard that is due acts before time passes, so a host that has just woken up is in time.
            Property::always(IN_TIME, |_, clocks: &Clocks| {
                clocks.lease >= 0 || !clocks.plugin || clocks.asleep || clocks.guard <= 0
            }),
            Property::sometimes(ACTS, |_, clocks: &Clocks| !clocks.plugin),
        ]
    }
}

impl Timing {
    /// The clocks stop one tick after the end, so that there are not endlessly many states.
    fn tick(&self, clocks: &mut Clocks) {
        clocks.lease = (clocks.lease - 1).max(-1);
        if clocks.asleep && !self.counts_sleep {
            return;
        }
        clocks.guard = (clocks.guard - 1).max(-1);
        if let Some(renewal) = &mut clocks.renewal {
            renewal.age = (renewal.age + 1).min(LEASE + 1);
        }
    }
}
