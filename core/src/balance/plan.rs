//! The arithmetic of `QueueBalance`: which limit is in force, and how many threads each queue gets of it.
//! No I/O.

use std::collections::{BTreeMap, HashSet};

use bson::{Bson, Document};

use super::BalanceDocument;

const DAY: u16 = 24 * 60;

/// Why the settings cannot be worked with, in the words that `/monitoring` shows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("exactly one entry allowed in balance collection, but found {0}")]
    NotOneDocument(usize),
    #[error("balance collection does not contain key '{0}'")]
    Missing(&'static str),
    #[error("balance collection value for 'queues' is not an ARRAY of ARRAYs")]
    NotTiers,
    #[error("balance collection value for 'max_tasks' is not an object of times and numbers")]
    NotTimes,
    #[error("max_tasks: '{0}' is no time: expected '<0-6 or *> HH:MM'")]
    NotATime(String),
}

/// What operators have set, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub timetable: Timetable,
    /// Names of queues; see [`allot`] for the order. No name comes twice.
    pub tiers: Vec<Vec<String>>,
    /// Until when nothing is to be balanced, in seconds since 1970.
    pub disabled: Option<i64>,
}

impl Settings {
    pub fn read(documents: Vec<Document>) -> Result<Self, SettingsError> {
        let count = documents.len();
        let Ok([document]) = <[Document; 1]>::try_from(documents) else {
            return Err(SettingsError::NotOneDocument(count));
        };
        let present = |key| document.get(key).filter(|value| **value != Bson::Null);
        let times = present("max_tasks").ok_or(SettingsError::Missing("max_tasks"))?;
        let tiers = present("queues").ok_or(SettingsError::Missing("queues"))?;
        if !tiers.as_array().is_some_and(|tiers| tiers.iter().all(|tier| tier.as_array().is_some())) {
            return Err(SettingsError::NotTiers);
        }
        let entries = times.as_document().map(Document::len);
        let read = BalanceDocument::from(document);
        if entries != Some(read.max_tasks.len()) {
            return Err(SettingsError::NotTimes);
        }
        let mut seen = HashSet::new();
        let once = |tier: Vec<String>| tier.into_iter().filter(|name| seen.insert(name.clone())).collect();
        Ok(Self {
            timetable: Timetable::read(&read.max_tasks)?,
            tiers: read.queues.into_iter().map(once).collect(),
            disabled: read.disabled,
        })
    }
}

/// A minute of the week in local time: 0 is Sunday 00:00.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WeekMinute(u16);

impl WeekMinute {
    /// `day` counts from Sunday, 0. `None` outside of a week.
    pub fn new(day: u8, hour: u8, minute: u8) -> Option<Self> {
        let legal = day < 7 && hour < 24 && minute < 60;
        legal.then(|| Self(u16::from(day) * DAY + u16::from(hour) * 60 + u16::from(minute)))
    }
}

/// How many tasks may run, by time of the week.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timetable(BTreeMap<WeekMinute, u64>);

impl Timetable {
    /// Reads `max_tasks`. An entry for `*` is one for each day, unless the day has one for the same time.
    pub fn read(entries: &[(String, i64)]) -> Result<Self, SettingsError> {
        let mut times = BTreeMap::new();
        let (every_day, one_day): (Vec<_>, Vec<_>) =
            entries.iter().partition(|(time, _)| time.trim_start().starts_with('*'));
        for (time, limit) in every_day.into_iter().chain(one_day) {
            let minutes = minutes(time).ok_or_else(|| SettingsError::NotATime(time.clone()))?;
            times.extend(minutes.into_iter().map(|minute| (minute, u64::try_from(*limit).unwrap_or(0))));
        }
        Ok(Self(times))
    }

    /// The limit in force: that of the latest entry at or before `now`, going back over the start of the week
    /// if need be. `None` for an empty timetable.
    pub fn limit_at(&self, now: WeekMinute) -> Option<u64> {
        self.0.range(..=now).next_back().or_else(|| self.0.iter().next_back()).map(|(_, limit)| *limit)
    }
}

fn minutes(time: &str) -> Option<Vec<WeekMinute>> {
    let (day, clock) = time.trim().split_once(char::is_whitespace)?;
    let (hour, minute) = clock.trim_start().split_once(':')?;
    let (hour, minute) = (hour.parse().ok()?, minute.parse().ok()?);
    match day {
        "*" => (0..7).map(|day| WeekMinute::new(day, hour, minute)).collect(),
        day => Some(vec![WeekMinute::new(day.parse().ok()?, hour, minute)?]),
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Demand {
    /// Tasks that wait to be claimed.
    pub queued: u64,
    /// Tasks that are claimed or running.
    pub running: u64,
}

/// Divides `limit` among the queues of `tiers`. Returns the `threads` of each, in the same shape.
///
/// The first tier is the default one and comes last: it gets what the queued tasks of all others leave. Of
/// the others, an earlier one comes first. As running tasks are not stopped, a tier can only have what those
/// before it neither hold nor were given. No queue gets more than it has queued, and all together never get
/// more than `limit`.
pub fn allot(limit: u64, tiers: &[Vec<Demand>]) -> Vec<Vec<u64>> {
    let Some((default, others)) = tiers.split_first() else { return Vec::new() };
    let wanted = sum(others.iter().flatten().map(|demand| demand.queued));
    let left = limit.saturating_sub(wanted);
    // The remainder goes to whoever wants more, in the order of the tier; so does every `fill` below.
    let share = |demand: &Demand| demand.queued.min(left / default.len().max(1) as u64);
    let mut allotted = vec![fill(left, default, share)];
    let mut taken = held(default, &allotted[0]);
    for tier in others {
        let left = limit.saturating_sub(taken);
        let threads = fill(left, tier, |demand| demand.queued.min(left) / tier.len().max(1) as u64);
        taken = taken.saturating_add(held(tier, &threads));
        allotted.push(threads);
    }
    allotted
}

/// Gives each queue its `share`, and what is left of `available` to those that want more, in order.
fn fill(available: u64, tier: &[Demand], share: impl Fn(&Demand) -> u64) -> Vec<u64> {
    let mut threads: Vec<u64> = tier.iter().map(share).collect();
    let mut left = available.saturating_sub(sum(threads.iter().copied()));
    for (threads, demand) in threads.iter_mut().zip(tier) {
        let more = left.min(demand.queued - *threads);
        *threads += more;
        left -= more;
    }
    threads
}

/// What a tier takes: what runs, or what may run if that is more.
fn held(tier: &[Demand], threads: &[u64]) -> u64 {
    sum(tier.iter().zip(threads).map(|(demand, threads)| demand.running.max(*threads)))
}

fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests;
