//! What there is: the limit, the tasks that run, and what each DEN knows.

/// How long ago the last change was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Some may not have heard of it.
    New,
    /// All have; some may not have seen what others did before they had.
    Heard,
    /// All have seen that.
    Settled,
}

/// When something was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Age {
    /// Too long ago to be used without counting.
    Old,
    /// Before the last change.
    Before,
    /// When that was new.
    New,
    /// After that.
    Later,
}

/// A task in status 0. All are alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Running {
    /// Its slot; none: another program runs it.
    pub slot: Option<u8>,
    pub den: usize,
    /// A runner has been told of it.
    pub begun: bool,
    /// It was started by one of ours after all had heard of the last change.
    pub late: bool,
}

/// A DEN of ours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Den {
    /// `threads`, and when it was read.
    pub read: Option<(u8, Age)>,
    /// The highest limit since it read it last, if there was a change.
    pub peak: u8,
    /// The highest limit that it has heard of lately, if there was a change.
    pub highest: u8,
    /// There may be programs without slots.
    pub others: bool,
    /// It has not said for long that it is there.
    pub silent: bool,
    pub start: Option<Start>,
}

/// A start on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Start {
    pub slot: u8,
    /// Which another task of this DEN has, that ends.
    pub handed: bool,
    /// It looked before it read `threads`, and this is what it has to be. None: it has been read.
    pub awaits: Option<u8>,
    /// Tasks without a slot were seen.
    pub without: bool,
    /// When that was seen and read by which it was decided.
    pub age: Age,
    /// How far it is.
    pub step: Step,
}

/// How far a start is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    Decided,
    /// The task before has ended in its slot. The same command goes on, but others may look in between.
    SlotFree,
    /// It is written; no runner has been told of it.
    Written,
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// `threads`
    pub limit: u8,
    /// How often the operator has changed it.
    pub changes: usize,
    /// Since the last change.
    pub phase: Phase,
    /// In the order of their starts.
    pub running: Vec<Running>,
    /// Ours, sorted, since their order means nothing.
    pub dens: Vec<Den>,
    /// Another program is there.
    pub others: bool,
    /// It has counted less than `threads`, and will claim.
    pub other_sees_room: bool,
    /// Not in the world: the limit was lowered, or others came.
    pub changed: bool,
}

impl Den {
    /// Tasks may be in slots above the limit, as far as it knows.
    pub(super) fn has_higher(&self) -> bool {
        self.highest > self.read.map_or(0, |(limit, _)| limit)
    }

    pub(super) fn age(&mut self, change: impl Fn(&mut Age)) {
        self.read.iter_mut().for_each(|(_, age)| change(age));
        self.start.iter_mut().for_each(|start| change(&mut start.age));
    }
}

impl State {
    /// What was started before is nobody's fault.
    pub(super) fn change(&mut self) {
        self.phase = Phase::New;
        self.changed = true;
        self.running.iter_mut().for_each(|task| task.late = false);
        self.ages(|age| *age = (*age).min(Age::Before));
    }

    /// What was read then is too old now.
    pub(super) fn forget(&mut self, then: Age) {
        self.ages(|age| {
            if *age <= then {
                *age = Age::Old;
            }
        });
    }

    /// All have heard of the last change.
    pub(super) fn second_passes(&mut self) -> bool {
        let is_new = self.phase == Phase::New;
        if is_new {
            self.phase = Phase::Heard;
            self.forget(Age::Before);
            let others = self.others;
            self.dens.iter_mut().for_each(|den| den.others |= others);
        }
        is_new
    }

    pub(super) fn ages(&mut self, change: impl Fn(&mut Age)) {
        self.dens.iter_mut().for_each(|den| den.age(&change));
    }

    /// When something is read now.
    pub(super) fn now(&self) -> Age {
        if self.phase == Phase::New { Age::New } else { Age::Later }
    }

    /// The task of this DEN in this slot.
    pub(super) fn has(&self, number: usize, slot: u8) -> Option<usize> {
        self.running.iter().position(|task| task.den == number && task.slot == Some(slot) && task.begun)
    }

    pub(super) fn is_free(&self, slot: u8) -> bool {
        self.running.iter().all(|task| task.slot != Some(slot))
    }

    pub(super) fn sees_without_slot(&self) -> bool {
        self.running.iter().any(|task| task.slot.is_none())
    }

    /// Whether a slot is one of those that are tried: of the free ones below this limit the lowest, as many as it leaves.
    pub(super) fn leaves(&self, limit: u8, slot: u8, lowest: bool) -> bool {
        let room = usize::from(limit).saturating_sub(self.running.len());
        let tried = if lowest || room == 0 { room } else { usize::MAX };
        (0..limit).filter(|slot| self.is_free(*slot)).take(tried).any(|free| free == slot)
    }

    /// DENs are alike: they are sorted, by what they know and what they have.
    pub(super) fn normalise(&mut self) {
        let has =
            |number: usize| -> Vec<bool> { self.running.iter().map(|task| task.den == number).collect() };
        let mut order: Vec<(Den, Vec<bool>, usize)> =
            self.dens.drain(..).enumerate().map(|(number, den)| (den, has(number), number)).collect();
        order.sort_unstable();
        for task in &mut self.running {
            // That of others is none of these.
            task.den = order.iter().position(|(.., number)| *number == task.den).unwrap_or(task.den);
        }
        self.dens = order.into_iter().map(|(den, ..)| den).collect();
    }
}
