//! Whether all is well, and what to do where it is not: each check asks for something that is cheap to tell, and says what it found.

mod fleet;

use std::time::Duration;

use disbatch_core::config::Role;
use disbatch_core::database_info::{Server, Topology};
use disbatch_core::doctor::{Disk, Fault, IndexFault, Member, Missing};
use disbatch_core::store::StoreError;
use disbatch_values::words;
use disbatch_wire::explanations::{Diagnosis, Finding};

use crate::state::State;
use crate::ui::nodes::Now;
use crate::ui::parts::bytes;
use fleet::Fleet;

/// So many findings of one check are told one by one.
const MOST: usize = 20;

/// A schedule that should have fired longer ago is late.
const LATE: Duration = Duration::from_secs(60);

words! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Level {
        /// It could not be found out.
        Skipped = "skipped",
        Ok = "ok",
        Warning = "warning",
        Error = "error",
    }
}

type Findings = Vec<(Level, Finding)>;

#[derive(Debug)]
struct Check {
    name: &'static str,
    findings: Findings,
}

impl Check {
    const fn new(name: &'static str) -> Self {
        Self { name, findings: Vec::new() }
    }

    fn add(&mut self, level: Level, subject: Option<&str>, text: impl Into<String>, advice: &str) {
        let finding = Finding {
            check: self.name.to_owned(),
            level: level.as_str().to_owned(),
            subject: subject.map(str::to_owned),
            text: text.into(),
            advice: (!advice.is_empty()).then(|| advice.to_owned()),
        };
        self.findings.push((level, finding));
    }

    /// The worst ones first; if there are none, that all is well, in these words.
    fn end(mut self, fine: impl Into<String>) -> Findings {
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
    let (nodes, queues, now, late, has_users) = futures::try_join!(
        store.list_nodes(),
        store.list_queues(),
        Now::read(store),
        store.late_schedules(LATE),
        store.has_users(),
    )?;
    let fleet = Fleet::new(&nodes, now);
    let findings = [
        check_server(&server),
        check_replica_set(members.as_deref()),
        check_rights(rights.as_deref()),
        check_indexes(&indexes.0, &indexes.1),
        check_disk(disk),
        fleet.clocks(),
        fleet.nodes(),
        fleet.versions(),
        fleet.plugins(),
        fleet.queues(&queues),
        fleet::schedules(&late),
        users(has_users),
    ];
    let findings: Findings = findings.into_iter().flatten().collect();
    let worst = findings.iter().map(|(level, _)| *level).max().unwrap_or(Level::Ok).max(Level::Ok);
    Ok(Diagnosis {
        level: worst.as_str().to_owned(),
        findings: findings.into_iter().map(|(_, finding)| finding).collect(),
    })
}

fn users(are_there: bool) -> Findings {
    let mut check = Check::new("users");
    if !are_there {
        let text = "authentication is disabled: whoever reaches this server may do everything";
        check.add(Level::Warning, None, text, "Make an administrator: disbatch user add NAME --role admin.");
    }
    check.end("everybody has to log in")
}

/// A server that takes longer to say what it is makes everything slow.
const SLOW: Duration = Duration::from_millis(100);

/// How far behind the primary a member may be: of those that count for a majority, writes wait for half.
const BEHIND: Duration = Duration::from_secs(10);
const FAR_BEHIND: Duration = Duration::from_secs(60);

/// Percent of the disk.
const FULL: u64 = 85;
const VERY_FULL: u64 = 95;

fn check_server(server: &Server) -> Findings {
    let mut check = Check::new("database");
    let ms = server.answered_in.as_secs_f64() * 1000.0;
    if server.answered_in > SLOW {
        let text = format!("it took {ms:.0} ms to answer a question that costs it nothing");
        check.add(Level::Warning, None, text, "Look at the load of mongod and at the network to it.");
    }
    let setup = match &server.topology {
        Topology::Standalone => {
            let text = "MongoDB is a standalone server: it has no change streams, so tasks are polled for, and no second copy of anything";
            let advice = "Make it a replica set, of one member if need be: docs/operators.md.";
            check.add(Level::Warning, None, text, advice);
            "standalone".to_owned()
        }
        Topology::ReplicaSet { name, primary: None, .. } => {
            let text = format!("the replica set {name} has no primary: nothing can be written");
            let advice = "See why with rs.status(): a majority of its members must be up.";
            check.add(Level::Error, None, text, advice);
            format!("replica set {name}")
        }
        Topology::ReplicaSet { name, .. } => format!("replica set {name}"),
        Topology::Sharded => "sharded cluster".to_owned(),
    };
    check.end(format!("MongoDB {}, {setup}, answered within {ms:.1} ms", server.version))
}

fn check_replica_set(members: Option<&[Member]>) -> Findings {
    let mut check = Check::new("replica_set");
    let Some(members) = members else {
        let advice = "Where there is one: grant the role clusterMonitor on admin to the user of this server, to have it looked at.";
        check.add(Level::Skipped, None, "its members are not known to this server", advice);
        return check.end("");
    };
    for member in members {
        let name = Some(&member.name[..]);
        if !member.healthy {
            let text = format!("it is {}", member.state);
            check.add(Level::Error, name, text, "Start it, or look at the network to it.");
        } else if !["PRIMARY", "SECONDARY", "ARBITER"].contains(&&member.state[..]) {
            let text = format!("it is in the state {}", member.state);
            check.add(Level::Warning, name, text, "It should become a secondary by itself; see its log.");
        }
        let lag = member.lag.unwrap_or_default();
        if lag >= BEHIND {
            let level = if lag >= FAR_BEHIND { Level::Error } else { Level::Warning };
            let text = format!("it is {} s behind the primary", lag.as_secs());
            let advice = "Writes wait for a majority of the members: see what slows it down.";
            check.add(level, name, text, advice);
        }
    }
    check.end(format!("members that are up to date: {}", members.len()))
}

fn check_rights(missing: Option<&[Missing]>) -> Findings {
    let mut check = Check::new("rights");
    let Some(missing) = missing else {
        return check.end("MongoDB asks nobody who they are, so everybody may do everything in it");
    };
    for of in missing {
        let on = of
            .collection
            .map_or_else(|| "all collections".to_owned(), |name| format!("the collection {name}"));
        let text = format!("this server's user of MongoDB may not {} on {on}", of.actions.join(", "));
        let advice = "Run disbatch create-users again, which grants what this release needs.";
        check.add(Level::Error, of.collection, text, advice);
    }
    check.end("this server's user of MongoDB has all rights that it needs")
}

fn check_indexes(faults: &[IndexFault], unseen: &[&str]) -> Findings {
    let mut check = Check::new("indexes");
    for fault in faults {
        let (what, advice) = match fault.fault {
            Fault::Missing => {
                ("is missing", "A DEN creates it at its start; if it was refused, its log says why.")
            }
            Fault::Building => ("is being built", "Wait: it counts from when it has been built."),
            Fault::NotUnique => {
                ("is not unique, as it should be", "Drop it, and start a DEN again, which creates it.")
            }
        };
        let level = match (fault.fault, fault.grave) {
            (Fault::Building, _) | (_, false) => Level::Warning,
            (Fault::Missing | Fault::NotUnique, true) => Level::Error,
        };
        let subject = format!("{}.{}", fault.collection, fault.index);
        let text = format!("the index {} of {} {what}", fault.index, fault.collection);
        check.add(level, Some(&subject), text, advice);
    }
    if !unseen.is_empty() {
        let text = format!(
            "the indexes of {} collections cannot be seen by this server's user of MongoDB",
            unseen.len()
        );
        let advice = "Grant it the role read on the database, to have them looked at.";
        check.add(Level::Skipped, None, text, advice);
    }
    check.end("all indexes are there")
}

fn check_disk(disk: Option<Disk>) -> Findings {
    let mut check = Check::new("disk");
    let Some(disk) = disk else {
        let advice =
            "Grant the action dbStats on the database to the user of this server, to have it looked at.";
        check.add(Level::Skipped, None, "the disk of MongoDB is not known to this server", advice);
        return check.end("");
    };
    let percent = u64::try_from(u128::from(disk.used) * 100 / u128::from(disk.total.max(1))).unwrap_or(100);
    let text =
        format!("the disk of MongoDB is used to {percent} %: {} of {}", bytes(disk.used), bytes(disk.total));
    if percent >= FULL {
        let level = if percent >= VERY_FULL { Level::Error } else { Level::Warning };
        let advice = "Archive or delete what has ended (retention of queues), or give MongoDB more room.";
        check.add(level, None, text.clone(), advice);
    }
    check.end(text)
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

    fn words(findings: &Findings) -> Vec<(&str, &str)> {
        findings.iter().map(|(_, finding)| (&finding.level[..], &finding.text[..])).collect()
    }

    #[test]
    fn a_server_says_how_it_is_set_up() {
        let with = |topology| Server {
            version: "6.0.5".to_owned(),
            topology,
            answered_in: Duration::from_millis(1),
        };
        let set = |primary: Option<&str>| Topology::ReplicaSet {
            name: "rs0".to_owned(),
            members: vec![],
            primary: primary.map(str::to_owned),
        };
        assert_eq!(
            words(&check_server(&with(set(Some("a"))))),
            [("ok", "MongoDB 6.0.5, replica set rs0, answered within 1.0 ms")]
        );
        assert_eq!(words(&check_server(&with(set(None))))[0].0, "error");
        assert_eq!(words(&check_server(&with(Topology::Standalone)))[0].0, "warning");
        let slow = Server { answered_in: Duration::from_secs(1), ..with(Topology::Sharded) };
        assert_eq!(
            words(&check_server(&slow)),
            [("warning", "it took 1000 ms to answer a question that costs it nothing")]
        );
    }

    #[test]
    fn members_that_are_down_or_behind_are_named() {
        let member = |name: &str, state: &str, lag: Option<u64>| Member {
            name: name.to_owned(),
            state: state.to_owned(),
            healthy: !state.starts_with('('),
            lag: lag.map(Duration::from_secs),
        };
        let fine = [member("a", "PRIMARY", None), member("b", "SECONDARY", Some(2))];
        assert_eq!(words(&check_replica_set(Some(&fine))), [("ok", "members that are up to date: 2")]);
        let bad = [
            member("b", "SECONDARY", Some(12)),
            member("c", "SECONDARY", Some(90)),
            member("d", "(not reachable/healthy)", None),
            member("e", "RECOVERING", None),
        ];
        let found = check_replica_set(Some(&bad));
        let subjects: Vec<(&str, &str)> =
            found.iter().map(|(_, f)| (&f.level[..], f.subject.as_deref().unwrap_or_default())).collect();
        assert_eq!(subjects, [("error", "c"), ("error", "d"), ("warning", "b"), ("warning", "e")]);
        assert_eq!(words(&check_replica_set(None))[0].0, "skipped");
    }

    #[test]
    fn indexes_that_keep_limits_matter_more() {
        let fault = |fault, grave| IndexFault { collection: "tasks", index: "a_1".to_owned(), fault, grave };
        let faults =
            [fault(Fault::Missing, false), fault(Fault::NotUnique, true), fault(Fault::Building, true)];
        let found = check_indexes(&faults, &["nodes"]);
        let levels: Vec<&str> = found.iter().map(|(_, finding)| &finding.level[..]).collect();
        assert_eq!(levels, ["error", "warning", "warning", "skipped"]);
        assert_eq!(words(&check_indexes(&[], &[])), [("ok", "all indexes are there")]);
    }

    #[test]
    fn a_disk_is_full_before_nothing_fits() {
        let used = |used| words(&check_disk(Some(Disk { total: 1000, used })))[0].0.to_owned();
        assert_eq!([used(0), used(849), used(850), used(951)], ["ok", "ok", "warning", "error"]);
        assert_eq!(words(&check_disk(None))[0].0, "skipped");
    }

    #[test]
    fn rights_are_told_by_name() {
        let missing = [Missing { collection: Some("tasks"), actions: vec!["insert", "update"] }];
        let found = check_rights(Some(&missing));
        assert_eq!(
            words(&found),
            [("error", "this server's user of MongoDB may not insert, update on the collection tasks")]
        );
        assert_eq!((words(&check_rights(Some(&[])))[0].0, words(&check_rights(None))[0].0), ("ok", "ok"));
    }
}
