//! The key `warm` of a manifest: a plugin that takes task after task in one process.

use std::fmt;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Unexpected, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

/// After so many tasks a warm plugin is replaced, unless its manifest says otherwise.
const TASKS: u32 = 1000;

/// After so many seconds without a task it is ended, unless its manifest says otherwise.
const IDLE_S: f64 = 60.0;

/// The longest time that can be asked for, in seconds: a year.
const LONGEST_S: f64 = 365.0 * 86_400.0;

const MOST_AT_A_TIME: u32 = 1000;

const LONGEST_WAIT_MS: u32 = 60_000;

const ANY: u32 = u32::MAX;

const MEBIBYTE: u64 = 1024 * 1024;

/// Without a limit of its own, a plugin may grow to so many times of what it had after its first task.
const GROWTH: u64 = 4;

/// And to this in any case, in bytes.
const GROWTH_FLOOR: u64 = 64 * MEBIBYTE;

/// How long one process of a warm plugin is kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Warm {
    pub tasks: u32,
    /// The most memory that it may have after a task, in bytes. None: see [`Warm::most_memory`].
    pub memory: Option<u64>,
    pub idle: Duration,
    pub folder: bool,
    pub batch: Option<Batch>,
}

/// Several tasks for one process at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with max and wait_ms")]
pub struct Batch {
    /// The most tasks that a process has not answered.
    #[serde(deserialize_with = "count::<_, 1, MOST_AT_A_TIME>")]
    pub max: u32,
    /// How long the first of them may wait for others, in milliseconds.
    #[serde(default, deserialize_with = "count::<_, 0, LONGEST_WAIT_MS>")]
    pub wait_ms: u32,
}

impl Batch {
    pub fn wait(&self) -> Duration {
        Duration::from_millis(self.wait_ms.into())
    }
}

impl Default for Warm {
    fn default() -> Self {
        let idle = Duration::from_secs_f64(IDLE_S);
        Self { tasks: TASKS, memory: None, idle, folder: true, batch: None }
    }
}

impl Warm {
    /// The most memory that a process may have after a task and get another one, in bytes. `first`: what it had
    /// after its first task. Without a limit in the manifest that is four times as much, and at least 64 MiB.
    pub fn most_memory(&self, first: u64) -> u64 {
        self.memory.unwrap_or_else(|| first.saturating_mul(GROWTH).max(GROWTH_FLOOR))
    }
}

/// The key's value: `true`, `false` or an object with limits.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Warm>, D::Error> {
    deserializer.deserialize_any(Value)
}

pub fn serialize<S: Serializer>(warm: &Option<Warm>, serializer: S) -> Result<S::Ok, S::Error> {
    let Some(warm) = warm else { return serializer.serialize_bool(false) };
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry("tasks", &warm.tasks)?;
    if let Some(memory) = warm.memory {
        map.serialize_entry("memory_mb", &(memory / MEBIBYTE))?;
    }
    map.serialize_entry("idle_s", &warm.idle.as_secs_f64())?;
    if !warm.folder && warm.batch.is_none() {
        map.serialize_entry("folder", &false)?;
    }
    if let Some(batch) = &warm.batch {
        map.serialize_entry("batch", batch)?;
    }
    map.end()
}

struct Value;

impl<'de> Visitor<'de> for Value {
    type Value = Option<Warm>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("true, false or an object with tasks, memory_mb, idle_s, folder and batch")
    }

    fn visit_bool<E: Error>(self, warm: bool) -> Result<Self::Value, E> {
        Ok(warm.then(Warm::default))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let limits = Limits::deserialize(MapAccessDeserializer::new(map))?;
        let Limits { tasks, memory_mb: memory, idle_s: idle, folder, batch } = limits;
        if folder == Some(true) && batch.is_some() {
            return Err(A::Error::custom(
                "folder is not to be true beside batch: one process works on tasks of several folders then",
            ));
        }
        let folder = folder.unwrap_or(batch.is_none());
        Ok(Some(Warm { tasks, memory, idle, folder, batch }))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    #[serde(default = "default_tasks", deserialize_with = "count::<_, 1, ANY>")]
    tasks: u32,
    #[serde(default, deserialize_with = "memory")]
    memory_mb: Option<u64>,
    #[serde(default = "default_idle", deserialize_with = "idle")]
    idle_s: Duration,
    #[serde(default, deserialize_with = "given")]
    folder: Option<bool>,
    #[serde(default, deserialize_with = "given")]
    batch: Option<Batch>,
}

/// What is not null.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

fn default_tasks() -> u32 {
    TASKS
}

fn default_idle() -> Duration {
    Warm::default().idle
}

/// Reads a whole number from 0 or 1 to something.
struct Count(u32, u32);

impl Visitor<'_> for Count {
    type Value = u32;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "an integer from {} to {}", self.0, self.1)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u32, E> {
        let wrong = || E::invalid_value(Unexpected::Unsigned(number), &self);
        u32::try_from(number).ok().filter(|count| (self.0..=self.1).contains(count)).ok_or_else(wrong)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u32, E> {
        Err(E::invalid_value(Unexpected::Signed(number), &self))
    }
}

struct Seconds;

impl Visitor<'_> for Seconds {
    type Value = Duration;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a number of seconds, more than 0 and at most a year")
    }

    fn visit_f64<E: Error>(self, seconds: f64) -> Result<Duration, E> {
        if seconds > 0.0 && seconds <= LONGEST_S {
            return Ok(Duration::from_secs_f64(seconds));
        }
        Err(E::invalid_value(Unexpected::Float(seconds), &self))
    }

    fn visit_u64<E: Error>(self, seconds: u64) -> Result<Duration, E> {
        match u32::try_from(seconds).map(f64::from) {
            Ok(number) if number > 0.0 && number <= LONGEST_S => Ok(Duration::from_secs(seconds)),
            _ => Err(E::invalid_value(Unexpected::Unsigned(seconds), &self)),
        }
    }

    fn visit_i64<E: Error>(self, seconds: i64) -> Result<Duration, E> {
        Err(E::invalid_value(Unexpected::Signed(seconds), &self))
    }
}

fn count<'de, D: Deserializer<'de>, const LEAST: u32, const MOST: u32>(
    deserializer: D,
) -> Result<u32, D::Error> {
    deserializer.deserialize_any(Count(LEAST, MOST))
}

fn memory<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    count::<_, 1, ANY>(deserializer).map(|mebibytes| Some(u64::from(mebibytes) * MEBIBYTE))
}

fn idle<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    deserializer.deserialize_any(Seconds)
}

#[cfg(test)]
mod tests {
    use super::super::Manifest;
    use super::super::tests::parse as parse_key;
    use super::*;

    fn parse(warm: &str) -> Result<Option<Warm>, String> {
        parse_key("warm", warm).map(|manifest| manifest.warm)
    }

    #[test]
    fn a_process_for_each_task_is_the_default() {
        let manifest = Manifest::parse(r#"{ "name": "A", "command": ["a"] }"#).unwrap();
        assert_eq!(manifest.warm, None);
        assert_eq!(parse("false").unwrap(), None);
    }

    #[test]
    fn limits_have_defaults() {
        let idle = Duration::from_secs(60);
        let default = Warm { tasks: 1000, memory: None, idle, folder: true, batch: None };
        assert_eq!(parse("true").unwrap(), Some(default));
        assert_eq!(parse("{}").unwrap(), Some(default));
        let set = parse(r#"{ "tasks": 1, "memory_mb": 100, "idle_s": 0.5, "folder": false }"#).unwrap();
        let idle = Duration::from_millis(500);
        let expected = Warm { tasks: 1, memory: Some(100 << 20), idle, folder: false, batch: None };
        assert_eq!(set, Some(expected));
        assert_eq!(
            parse(r#"{ "idle_s": 3 }"#).unwrap(),
            Some(Warm { idle: Duration::from_secs(3), ..default })
        );
    }

    #[test]
    fn a_process_may_get_several_tasks_at_a_time() {
        let batch = |text: &str| parse(text).unwrap().unwrap();
        let read = batch(r#"{ "batch": { "max": 64, "wait_ms": 2 } }"#);
        assert_eq!((read.batch, read.folder), (Some(Batch { max: 64, wait_ms: 2 }), false));
        assert_eq!(read.batch.unwrap().wait(), Duration::from_millis(2));
        assert_eq!(batch(r#"{ "batch": { "max": 1 }, "folder": false }"#).batch.unwrap().wait_ms, 0);
    }

    #[test]
    fn memory_may_grow_fourfold_but_small_plugins_may_grow_more() {
        assert_eq!(Warm::default().most_memory(1 << 20), 64 << 20);
        assert_eq!(Warm::default().most_memory(100 << 20), 400 << 20);
        assert_eq!(Warm { memory: Some(7), ..Warm::default() }.most_memory(100 << 20), 7);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases = [
            ("1", "warm: invalid type: integer `1`, expected true, false or an object with tasks"),
            ("null", "warm: invalid type: null, expected true"),
            (r#"{ "tasks": 0 }"#, "warm.tasks: invalid value: integer `0`, expected an integer from 1"),
            (r#"{ "tasks": -1 }"#, "warm.tasks: invalid value: integer `-1`, expected an integer from 1"),
            (r#"{ "tasks": "9" }"#, "warm.tasks: invalid type: string \"9\", expected an integer from 1"),
            (
                r#"{ "memory_mb": 1.5 }"#,
                "warm.memory_mb: invalid type: floating point `1.5`, expected an int",
            ),
            (r#"{ "idle_s": 0 }"#, "warm.idle_s: invalid value: integer `0`, expected a number of seconds"),
            (
                r#"{ "idle_s": 1e99 }"#,
                "warm.idle_s: invalid value: floating point `1e+99`, expected a number",
            ),
            (r#"{ "folder": 1 }"#, "warm.folder: invalid type: integer `1`, expected a boolean"),
            (r#"{ "batch": { "max": 64 }, "folder": true }"#, "warm: folder is not to be true beside batch"),
            (
                r#"{ "batch": true }"#,
                "warm.batch: invalid type: boolean `true`, expected an object with max and wait_ms",
            ),
            (r#"{ "batch": {} }"#, "warm.batch: missing field `max`"),
            (
                r#"{ "batch": { "max": 0 } }"#,
                "warm.batch.max: invalid value: integer `0`, expected an integer from 1 to 1000",
            ),
            (
                r#"{ "batch": { "max": 1001 } }"#,
                "warm.batch.max: invalid value: integer `1001`, expected an integer from 1 to 1000",
            ),
            (
                r#"{ "batch": { "max": 1, "wait_ms": -1 } }"#,
                "warm.batch.wait_ms: invalid value: integer `-1`, expected an integer from 0 to 60000",
            ),
            (
                r#"{ "batch": { "max": 1, "wait": 1 } }"#,
                "warm.batch.wait: unknown field `wait`, expected `max`",
            ),
            (r#"{ "task": 5 }"#, "warm.task: unknown field `task`, expected one of `tasks`, `memory_mb`"),
        ];
        for (warm, expected) in cases {
            let error = parse(warm).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
