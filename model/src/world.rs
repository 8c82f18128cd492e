//! What happens to our processes: time, the database, the operator, and Perl.

use crate::model::Action;
use crate::protocol::{OnLostLease, Protocol};
use crate::runner::guards;
use crate::state::{Claim, Database, Lease, Phase, Plugin, Runner, State, Status, Task};

/// Makes the step if it is possible now. None: it is one of somebody else.
pub fn step(protocol: &Protocol, state: &mut State, action: &Action) -> Option<bool> {
    Some(match *action {
        Action::LeaseEnds(task) => lease_ends(protocol, state, task),
        Action::SetLimit(limit) => {
            state.limit = limit;
            true
        }
        Action::DatabaseGoes => {
            let possible = protocol.setting.outages && state.database != Database::Down;
            state.database = Database::Down;
            possible
        }
        Action::DatabaseReturns => {
            let possible = state.database == Database::Down;
            state.database = Database::Back;
            possible
        }
        Action::DatabaseStays => database_stays(state),
        Action::PerlCount(den) => {
            let room = state.counted() < usize::from(state.limit);
            state.perl_dens[usize::from(den)].sees_room = room;
            room
        }
        Action::PerlClaim(den, task) => perl_claim(state, den, task),
        _ => return None,
    })
}

/// Time passes. By the end of a lease the guard has acted, unless the runner lives and is to go on without the
/// database, and the database is what is missing.
fn lease_ends(protocol: &Protocol, state: &mut State, number: u8) -> bool {
    let setting = &protocol.setting;
    let away = setting.partitions || state.database == Database::Down;
    let excused =
        |runner: &Runner| away && setting.on_lost_lease == OnLostLease::Keep && runner.phase != Phase::Dead;
    let too_early = match state.tasks[usize::from(number)].lease {
        Lease::None | Lease::Over => true,
        Lease::Claim => false,
        Lease::Valid => state.runners_of(number).any(|runner| guards(protocol, runner) && !excused(runner)),
    };
    state.tasks[usize::from(number)].lease = Lease::Over;
    !too_early && (setting.stalls || setting.crashes || away)
}

/// A whole lease has passed: each runner that is well has renewed, and the guards of the others have acted.
fn database_stays(state: &mut State) -> bool {
    let late = state.runners.iter().any(|runner| {
        runner.phase != Phase::Launched
            && runner.plugin != Plugin::Gone
            && state.is_current(&runner.claim)
            && state.task(&runner.claim).lease == Lease::Over
    });
    let possible = state.database == Database::Back && !late;
    state.database = Database::Up;
    possible
}

/// A Perl DEN claims and launches, whatever has changed since it counted.
fn perl_claim(state: &mut State, den: u8, number: u8) -> bool {
    let den = &mut state.perl_dens[usize::from(den)];
    den.sees_room = false;
    let task = &mut state.tasks[usize::from(number)];
    *task = Task { status: Status::Claimed, node: Some(den.node), claim: task.claim + 1, ..task.clone() };
    let claim = Claim { task: number, node: den.node, attempt: task.attempt, instance: None, id: task.claim };
    state.order.push(number);
    state.runners.push(Runner {
        claim,
        ours: false,
        phase: Phase::Launched,
        plugin: Plugin::NotYet,
        confirmed: None,
    });
    true
}
