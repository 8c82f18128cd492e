//! What there is: documents of slots, tasks in them, commands on their way, and what each DEN knows.

/// All orders of none, one, and two.
const ORDERS: [&[&[usize]]; 3] = [&[&[]], &[&[0]], &[&[0, 1], &[1, 0]]];

/// The fence of a holder, by the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fence {
    /// Its starts are made.
    Ahead,
    /// They are refused, save what has compared the time before.
    Passed,
    /// None is made any more, and others know it.
    Gone,
}

/// What a DEN knows of a slot under its present id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum View {
    NotOurs,
    /// It has it, and no task of its own is in it.
    Free,
    /// A task is in it, or may be.
    Used,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Den {
    /// Its present id.
    pub holder: usize,
    /// Of each slot.
    pub views: Vec<View>,
}

/// A task that is claimed or runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Task {
    pub slot: usize,
    /// Under which it was started.
    pub holder: usize,
    /// Not in the world: it came by a handover.
    pub handed: bool,
}

/// A command that the server has not done yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Command {
    pub kind: Kind,
    pub slot: usize,
    pub holder: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Insert,
    /// The holder deletes its document.
    Release,
    /// Somebody else does.
    TakeBack,
    Start,
    /// The end of the task in the slot, then a start.
    HandOver,
    /// A start whose fence the server has compared; the task before has ended. Others may look in between.
    Write {
        handed: bool,
    },
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    /// The holder that the document of each slot names, if there is one.
    pub documents: Vec<Option<usize>>,
    /// Not in the world: the last document was deleted by somebody else.
    pub taken_back: Vec<bool>,
    /// Of each holder.
    pub fences: Vec<Fence>,
    pub dens: Vec<Den>,
    pub tasks: Vec<Task>,
    pub commands: Vec<Command>,
}

impl State {
    /// A DEN draws a new id. It has no slot under that.
    pub(super) fn draw(&mut self, den: usize) {
        self.dens[den].holder = self.fences.len();
        self.dens[den].views.fill(View::NotOurs);
        self.fences.push(Fence::Ahead);
    }

    /// A DEN sends a command, if it knows the first of a slot, and knows the second then.
    pub(super) fn send(&mut self, kind: Kind, den: usize, slot: usize, views: [View; 2]) -> bool {
        let den = &mut self.dens[den];
        self.commands.push(Command { kind, slot, holder: den.holder });
        std::mem::replace(&mut den.views[slot], views[1]) == views[0]
    }

    /// A command of this DEN is on its way, as far as it knows.
    pub(super) fn is_under_way(&self, den: usize, slot: usize, is: impl Fn(Kind) -> bool) -> bool {
        let holder = self.dens[den].holder;
        self.commands.iter().any(|it| it.slot == slot && it.holder == holder && is(it.kind))
    }

    pub(super) fn may_start(&self, den: usize, slot: usize) -> bool {
        let starts = |kind| matches!(kind, Kind::Start | Kind::HandOver | Kind::Write { .. });
        self.is_under_way(den, slot, starts)
    }

    /// DENs are alike, and slots, and holders: of all ways to number them, the first. Holders that nothing names are forgotten.
    pub(super) fn normalise(&mut self) {
        let [dens, slots] = [self.dens.len(), self.documents.len()].map(|count| ORDERS[count]);
        let ways = dens.iter().flat_map(|dens| slots.iter().map(move |slots| (dens, slots)));
        if let Some(first) = ways.map(|(dens, slots)| self.numbered(dens, slots)).min() {
            *self = first;
        }
    }

    /// The same with the DENs and slots in this order, and holders as they come in it.
    fn numbered(&self, dens: &[usize], slots: &[usize]) -> Self {
        let place = |slot: usize| slots.iter().position(|it| *it == slot).unwrap_or(slot);
        let mut tasks: Vec<Task> =
            self.tasks.iter().map(|task| Task { slot: place(task.slot), ..*task }).collect();
        tasks.sort_unstable();
        let mut commands: Vec<Command> =
            self.commands.iter().map(|it| Command { slot: place(it.slot), ..*it }).collect();
        commands.sort_unstable();
        let mut holders: Vec<usize> = Vec::new();
        let mut number = |holder: usize| {
            holders.iter().position(|it| *it == holder).unwrap_or_else(|| {
                holders.push(holder);
                holders.len() - 1
            })
        };
        let den = |den: &usize| {
            let Den { holder, views } = &self.dens[*den];
            Den { holder: number(*holder), views: slots.iter().map(|slot| views[*slot]).collect() }
        };
        let dens = dens.iter().map(den).collect();
        let documents = slots.iter().map(|slot| self.documents[*slot].map(&mut number)).collect();
        tasks.iter_mut().for_each(|task| task.holder = number(task.holder));
        commands.iter_mut().for_each(|it| it.holder = number(it.holder));
        tasks.sort_unstable();
        commands.sort_unstable();
        Self {
            documents,
            taken_back: slots.iter().map(|slot| self.taken_back[*slot]).collect(),
            fences: holders.iter().map(|holder| self.fences[*holder]).collect(),
            dens,
            tasks,
            commands,
        }
    }
}
