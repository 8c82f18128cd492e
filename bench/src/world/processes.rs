//! What the kernel says of processes. Linux only.

use std::collections::BTreeMap;
use std::fs;

use anyhow::Context;
use bson::doc;
use disbatch_core::model::whole_number;
use mongodb::Database;

/// A second of CPU time has so many of the kernel's ticks, on every architecture of today.
pub const TICKS_PER_SECOND: f64 = 100.0;

/// Memory of processes, in MiB.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Memory {
    /// Everything that is mapped and in memory.
    pub rss: f64,
    /// The same, with what several processes share divided among them.
    pub pss: f64,
}

/// A DEN's descendants, by what they are: its children are runners, theirs are guards, theirs are plugins.
#[derive(Debug, Clone, Default)]
pub struct Family {
    /// Process ids of runners.
    pub runners: Vec<i32>,
    /// Process ids of guards.
    pub guards: Vec<i32>,
    /// Process ids of plugins.
    pub plugins: Vec<i32>,
}

impl Family {
    /// That of the DEN with this process id.
    pub fn of(den: i32) -> anyhow::Result<Self> {
        let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for (pid, stat) in Stat::of_all()? {
            children.entry(stat.parent).or_default().push(pid);
        }
        let of_all = |parents: &[i32]| -> Vec<i32> {
            parents.iter().filter_map(|parent| children.get(parent)).flatten().copied().collect()
        };
        let runners = of_all(&[den]);
        let guards = of_all(&runners);
        Ok(Self { plugins: of_all(&guards), runners, guards })
    }
}

/// The CPU time that a node and its server have used so far, in seconds, by who has used it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cpu {
    pub den: f64,
    /// Its runners, with all of the families of those that have ended.
    pub runners: f64,
    /// Their guards, with the plugins of those that have ended.
    pub guards: f64,
    /// Plugins, and what they have started, as far as it was waited for.
    pub plugins: f64,
    pub mongod: f64,
}

impl Cpu {
    /// That of the DEN and of the server with these process ids. Each number may be a hundredth of a second too low for each
    /// process that lives.
    pub fn of(den: i32, mongod: i32) -> anyhow::Result<Self> {
        let all = Stat::of_all()?;
        Ok(Self { mongod: cpu_seconds(mongod).context("mongod has ended")?, ..Self::of_family(&all, den) })
    }

    fn of_family(all: &BTreeMap<i32, Stat>, den: i32) -> Self {
        let below = |parents: &[i32]| -> Vec<i32> {
            all.iter().filter(|(_, stat)| parents.contains(&stat.parent)).map(|(pid, _)| *pid).collect()
        };
        let sum = |pids: &[i32], ticks: fn(&Stat) -> u32| {
            let ticks: u32 = pids.iter().filter_map(|pid| all.get(pid)).map(ticks).sum();
            f64::from(ticks) / TICKS_PER_SECOND
        };
        let (own, of_ended) = (|stat: &Stat| stat.ticks, |stat: &Stat| stat.of_ended);
        let runners = below(&[den]);
        let guards = below(&runners);
        let plugins = f64::from(ticks_of_families(all, &below(&guards))) / TICKS_PER_SECOND;
        Self {
            den: sum(&[den], own),
            runners: sum(&runners, own) + sum(&[den], of_ended),
            guards: sum(&guards, own) + sum(&runners, of_ended),
            plugins: plugins + sum(&guards, of_ended),
            mongod: 0.0,
        }
    }

    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            den: self.den - before.den,
            runners: self.runners - before.runners,
            guards: self.guards - before.guards,
            plugins: self.plugins - before.plugins,
            mongod: self.mongod - before.mongod,
        }
    }
}

/// What some processes occupy together. Those that have ended occupy nothing.
pub fn memory(pids: &[i32]) -> Memory {
    let each = pids.iter().filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok());
    each.map(|text| parse_memory(&text))
        .fold(Memory::default(), |sum, one| Memory { rss: sum.rss + one.rss, pss: sum.pss + one.pss })
}

/// How many seconds of CPU time a process has used. `None` if it has ended.
pub fn cpu_seconds(pid: i32) -> Option<f64> {
    Some(f64::from(Stat::read(pid)?.ticks) / TICKS_PER_SECOND)
}

/// How many seconds of CPU time processes and all their descendants have used, with those that have ended, if somebody of
/// the family has waited for them.
pub fn cpu_of_families(heads: &[i32]) -> anyhow::Result<f64> {
    Ok(f64::from(ticks_of_families(&Stat::of_all()?, heads)) / TICKS_PER_SECOND)
}

fn ticks_of_families(all: &BTreeMap<i32, Stat>, heads: &[i32]) -> u32 {
    let (mut ticks, mut next) = (0, heads.to_vec());
    while let Some(pid) = next.pop() {
        let Some(stat) = all.get(&pid) else { continue };
        ticks += stat.ticks + stat.of_ended;
        next.extend(all.iter().filter(|(_, stat)| stat.parent == pid).map(|(child, _)| *child));
    }
    ticks
}

/// How many seconds of CPU time the children of this process have used that it has waited for.
pub fn cpu_of_ended_children() -> anyhow::Result<f64> {
    let own = Stat::read(i32::try_from(std::process::id())?).context("this needs Linux")?;
    Ok(f64::from(own.of_ended) / TICKS_PER_SECOND)
}

pub async fn server_pid(database: &Database) -> anyhow::Result<i32> {
    let status = database.run_command(doc! { "serverStatus": 1 }).await?;
    Ok(i32::try_from(status.get("pid").and_then(whole_number).context("the server tells no pid")?)?)
}

fn parse_memory(rollup: &str) -> Memory {
    let mib = |key: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(key))?;
        let kib: u32 = line.split_whitespace().next()?.parse().ok()?;
        Some(f64::from(kib) / 1024.0)
    };
    Memory { rss: mib("Rss:").unwrap_or_default(), pss: mib("Pss:").unwrap_or_default() }
}

#[derive(Debug, PartialEq)]
struct Stat {
    parent: i32,
    /// What it has used itself.
    ticks: u32,
    /// What its children have used that have ended and were waited for, with theirs.
    of_ended: u32,
}

impl Stat {
    /// Those of all processes. One that has ended meanwhile is left out.
    fn of_all() -> anyhow::Result<BTreeMap<i32, Self>> {
        let mut all = BTreeMap::new();
        for entry in fs::read_dir("/proc").context("this needs Linux")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            if let Some(stat) = Self::read(pid) {
                all.insert(pid, stat);
            }
        }
        Ok(all)
    }

    fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name in parentheses may hold anything, so the fields are counted from the last parenthesis.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |number: usize| fields.get(number)?.parse::<u32>().ok();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            ticks: ticks(11)? + ticks(12)?,
            of_ended: ticks(13)? + ticks(14)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_hold_parentheses() {
        let text = "12 (a) b) S 7 12 12 0 -1 4194304 100 0 0 0 30 12 5 3 20 0 1 0 100 1 1 1";
        assert_eq!(Stat::parse(text), Some(Stat { parent: 7, ticks: 42, of_ended: 8 }));
        assert_eq!(Stat::parse("nonsense"), None);
    }

    #[test]
    fn a_family_is_everybody_below_its_head_with_those_that_have_ended() {
        let stat = |parent: i32, ticks: u32, of_ended: u32| Stat { parent, ticks, of_ended };
        let all = BTreeMap::from([
            (1, stat(0, 1000, 1000)),
            (2, stat(1, 1, 2)),
            (3, stat(2, 4, 0)),
            (4, stat(3, 8, 16)),
            (5, stat(1, 32, 64)),
        ]);
        assert_eq!(ticks_of_families(&all, &[2]), 1 + 2 + 4 + 8 + 16);
        assert_eq!(ticks_of_families(&all, &[3, 5]), 4 + 8 + 16 + 32 + 64);
        assert_eq!(ticks_of_families(&all, &[9]), 0);
    }

    #[test]
    fn cpu_time_is_told_by_who_has_used_it() {
        let stat = |parent: i32, ticks: u32, of_ended: u32| Stat { parent, ticks, of_ended };
        let all = BTreeMap::from([
            (1, stat(0, 9_000, 9_000)),
            (2, stat(1, 100, 0)),
            (3, stat(2, 200, 0)),
            (4, stat(2, 200, 300)),
            (5, stat(3, 400, 1_000)),
            (6, stat(4, 500, 0)),
            (7, stat(6, 2_000, 10)),
            (8, stat(7, 90, 0)),
        ]);
        let used = Cpu::of_family(&all, 2);
        assert_eq!(used, Cpu { den: 1.0, runners: 4.0, guards: 12.0, plugins: 31.0, mongod: 0.0 });
        assert_eq!(used.since(used), Cpu::default());
    }

    #[test]
    fn memory_is_read_in_kib() {
        let text = "55d0-7ffe ---p 00000000 00:00 0  [rollup]\nRss:      2048 kB\nPss:       512 kB\n";
        assert_eq!(parse_memory(text), Memory { rss: 2.0, pss: 0.5 });
        assert_eq!(memory(&[]), Memory::default());
    }

    #[test]
    fn this_process_is_a_child_of_its_parent() {
        let own = i32::try_from(std::process::id()).unwrap();
        let parent = Stat::read(own).unwrap().parent;
        assert!(Family::of(parent).unwrap().runners.contains(&own));
        assert!(memory(&[own]).rss > 0.0);
        assert!(cpu_seconds(own).is_some());
    }
}
