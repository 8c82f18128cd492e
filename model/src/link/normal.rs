//! The normal form of a state, so that the model is finite and small: attempts, claims, instances and assignments
//! only matter by their order, and who comes first in a list of runners or writes does not matter at all.

use super::state::{Claim, Phase, Run, Runner, State, ToDen, ToRunner, Write};

/// A number that only matters by its order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Number {
    Attempt(usize),
    Claim(usize),
    Instance,
    Assignment,
}

impl State {
    /// Brings the state to its normal form.
    pub(super) fn normalise(&mut self) {
        let tasks = self.tasks.len();
        let of_tasks = (0..tasks).flat_map(|task| [Number::Attempt(task), Number::Claim(task)]);
        for which in of_tasks.chain([Number::Instance, Number::Assignment]) {
            // No attempt is another thing than the first.
            let mut used = vec![0; usize::from(matches!(which, Number::Attempt(_)))];
            self.visit(which, &mut |number| used.push(*number));
            used.sort_unstable();
            used.dedup();
            let mut rank = 0;
            self.visit(which, &mut |number| {
                rank = used.binary_search(number).unwrap_or_default();
                *number = u8::try_from(rank).unwrap_or(u8::MAX);
            });
        }
        self.late.sort_unstable();
        self.den.untold.sort_unstable();
        for attendant in self.runners.iter_mut().filter_map(|runner| runner.attendant.as_mut()) {
            attendant.writes.sort_unstable();
        }
        self.runners.sort();
    }

    /// The highest number of an assignment.
    pub(super) fn last_assignment(&mut self) -> u8 {
        let mut last = 0;
        self.visit(Number::Assignment, &mut |number| last = last.max(*number));
        last
    }

    /// The highest number of a claim of this task.
    pub(super) fn last_claim(&mut self, task: usize) -> u8 {
        let mut last = 0;
        self.visit(Number::Claim(task), &mut |number| last = last.max(*number));
        last
    }

    /// The highest number of an instance.
    pub(super) fn last_instance(&mut self) -> u8 {
        let mut last = 0;
        self.visit(Number::Instance, &mut |number| last = last.max(*number));
        last
    }

    fn visit(&mut self, which: Number, see: &mut impl FnMut(&mut u8)) {
        for (place, task) in self.tasks.iter_mut().enumerate() {
            match which {
                Number::Attempt(of) if of == place => {
                    see(&mut task.attempt);
                    see(&mut task.attempt_before);
                }
                Number::Claim(of) if of == place => see(&mut task.claim),
                Number::Instance => task.instance.iter_mut().for_each(&mut *see),
                Number::Assignment => task.holder.iter_mut().for_each(&mut *see),
                Number::Attempt(_) | Number::Claim(_) => {}
            }
        }
        if which == Number::Instance {
            see(&mut self.den.instance);
        }
        if let Some(claim) = &mut self.den.claimed {
            in_claim(claim, which, see);
        }
        self.den.untold.iter_mut().for_each(|write| in_write(write, which, see));
        for write in &mut self.late {
            in_write(write, which, see);
        }
        for runner in &mut self.runners {
            in_runner(runner, which, see);
        }
    }
}

fn in_claim(claim: &mut Claim, which: Number, see: &mut impl FnMut(&mut u8)) {
    match which {
        Number::Attempt(task) if task == claim.task => see(&mut claim.attempt),
        Number::Claim(task) if task == claim.task => see(&mut claim.id),
        Number::Instance => see(&mut claim.instance),
        Number::Attempt(_) | Number::Claim(_) | Number::Assignment => {}
    }
}

fn in_run(run: &mut Run, which: Number, see: &mut impl FnMut(&mut u8)) {
    in_claim(&mut run.claim, which, see);
    in_number(&mut run.at, which, see);
}

fn in_write(write: &mut Write, which: Number, see: &mut impl FnMut(&mut u8)) {
    in_run(&mut write.run, which, see);
    in_number(&mut write.about, which, see);
}

fn in_number(number: &mut u8, which: Number, see: &mut impl FnMut(&mut u8)) {
    if which == Number::Assignment {
        see(number);
    }
}

fn in_runner(runner: &mut Runner, which: Number, see: &mut impl FnMut(&mut u8)) {
    match &mut runner.phase {
        Phase::Idle => {}
        Phase::Assigned(run)
        | Phase::Starting(run)
        | Phase::Started(run)
        | Phase::Working(run)
        | Phase::Storing(run) => in_run(run, which, see),
    }
    runner.plugin.iter_mut().for_each(|run| in_run(run, which, see));
    runner.told.iter_mut().for_each(|number| in_number(number, which, see));
    for message in &mut runner.inbox {
        match message {
            ToRunner::Assign(run, _) => in_run(run, which, see),
            ToRunner::Held(about, _) | ToRunner::Lost(about) | ToRunner::Ended(about) => {
                in_number(about, which, see);
            }
            ToRunner::Go(_) | ToRunner::Gone => {}
        }
    }
    for ToDen::Taken(about) | ToDen::Renew(about) | ToDen::Finish(about) in &mut runner.said {
        in_number(about, which, see);
    }
    if let Some(attendant) = &mut runner.attendant {
        attendant.current.iter_mut().for_each(|run| in_run(run, which, see));
        attendant.next.iter_mut().for_each(|next| in_run(&mut next.run, which, see));
        attendant.writes.iter_mut().for_each(|write| in_write(write, which, see));
    }
}
