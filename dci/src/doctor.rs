//! Whether all is well, and what to do where it is not: each check asks for something that is cheap to tell, and says what it found.

mod database;
mod fleet;

use std::time::Duration;

use disbatch_core::config::Role;
use disbatch_core::store::StoreError;
use disbatch_wire::doctor::{Diagnosis, Finding};

use crate::state::State;
use crate::ui::node_state::Now;
use fleet::Fleet;

/// So many findings of one check are told one by one.
const MOST: usize = 20;

/// A schedule that should have fired longer ago is late.
const LATE: Duration = Duration::from_secs(60);

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// It could not be found out.
    Skipped,
    Ok,
    Warning,
    Error,
}

impl Level {
    const fn word(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// What a check finds.
#[derive(Debug)]
struct Check {
    name: &'static str,
    findings: Vec<(Level, Finding)>,
}

impl Check {
    const fn new(name: &'static str) -> Self {
        Self { name, findings: Vec::new() }
    }

    fn add(&mut self, level: Level, subject: Option<&str>, text: impl Into<String>, advice: &str) {
        let finding = Finding {
            check: self.name.to_owned(),
            level: level.word().to_owned(),
            subject: subject.map(str::to_owned),
            text: text.into(),
            advice: (!advice.is_empty()).then(|| advice.to_owned()),
        };
        self.findings.push((level, finding));
    }

    /// The worst ones first; if there are none, that all is well, in these words.
    fn end(mut self, fine: impl Into<String>) -> Vec<(Level, Finding)> {
        if self.findings.is_empty() {
            self.add(Level::Ok, None, fine, "");
        }
        self.findings.sort_by_key(|(level, _)| std::cmp::Reverse(*level));
        let worst = self.findings[0].0;
        let more = self.findings.len().saturating_sub(MOST);
        self.findings.truncate(MOST);
        if more > 0 {
            self.add(worst, None, format!("and {more} more"), "");
        }
        self.findings
    }
}

/// Carries all of them out.
///
/// # Errors
/// The database cannot be reached: that is what is wrong, then.
pub async fn diagnose(state: &State) -> Result<Diagnosis, StoreError> {
    let store = &state.store;
    let (server, members, rights, indexes, disk) = futures::try_join!(
        store.about_server(),
        store.replica_members(),
        store.missing_rights(Role::DisbatchWeb),
        store.index_faults(),
        store.server_disk(),
    )?;
    let (nodes, queues, time, late, has_users) = futures::try_join!(
        store.list_nodes(),
        store.list_queues(),
        store.server_time(),
        store.late_schedules(LATE),
        store.has_users(),
    )?;
    let fleet = Fleet::new(&nodes, Now { server: time, host: store.now() });
    let findings = [
        database::server(&server),
        database::replica_set(members.as_deref()),
        database::rights(rights.as_deref()),
        database::indexes(&indexes.0, &indexes.1),
        database::disk(disk),
        fleet.clocks(),
        fleet.nodes(),
        fleet.versions(),
        fleet.plugins(),
        fleet.queues(&queues),
        fleet::schedules(&late),
        users(has_users),
    ];
    let findings: Vec<(Level, Finding)> = findings.into_iter().flatten().collect();
    let worst = findings.iter().map(|(level, _)| *level).max().unwrap_or(Level::Ok).max(Level::Ok);
    Ok(Diagnosis {
        level: worst.word().to_owned(),
        findings: findings.into_iter().map(|(_, finding)| finding).collect(),
    })
}

fn users(are_there: bool) -> Vec<(Level, Finding)> {
    let mut check = Check::new("users");
    if !are_there {
        check.add(
            Level::Warning,
            None,
            "authentication is disabled: whoever reaches this server may do everything",
            "Make an administrator: disbatch user add NAME --role admin.",
        );
    }
    check.end("everybody has to log in")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_comes_first_and_many_are_cut() {
        assert_eq!(Check::new("a").end("fine")[0].1.text, "fine");
        let mut check = Check::new("a");
        check.add(Level::Warning, Some("w"), "t", "do");
        for _ in 0..30 {
            check.add(Level::Error, None, "e", "");
        }
        let found = check.end("fine");
        assert_eq!((found.len(), &found[0].1.level[..], &found[20].1.text[..]), (21, "error", "and 11 more"));
        assert_eq!(found[20].0, Level::Error);
    }
}
