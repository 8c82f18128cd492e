//! The commands about schedules and calendars.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use disbatch_values::secure::SecureParams;
use disbatch_wire::calendars::CalendarDays;
use disbatch_wire::liberal::Seconds;
use disbatch_wire::schedules::{Backfill, ScheduleChange};
use serde::Serialize;

use crate::input;

#[derive(Debug, Subcommand)]
pub enum ScheduleCommand {
    /// Show the schedules
    List(ScheduleFilter),
    /// Show one for people
    Show(OneSchedule),
    /// Make one
    Create(Box<NewSchedule>),
    /// Change one; what is not named stays as it is
    Update(Box<ScheduleUpdate>),
    /// Delete one; the tasks that it has made stay
    Delete(OneSchedule),
    /// Have it make no tasks by itself until `resume`
    Pause(OneSchedule),
    /// Have it make tasks by itself again
    Resume(OneSchedule),
    /// Have it make a task now, whatever else of it runs
    Run(OneSchedule),
    /// Show its runs, the latest first, archived ones among them
    Runs(RunsOptions),
    /// Have it make the tasks that are missing between two times
    Backfill(BackfillOptions),
    /// Show when it makes its next tasks, or when one would
    Preview(PreviewOptions),
    /// Make schedules of the jobs of another scheduler, all of them or none
    Import(ImportedJobs),
}

#[derive(Debug, Args)]
pub struct OneSchedule {
    /// The schedule's name or id
    pub schedule: String,
}

#[derive(Debug, Subcommand)]
pub enum CalendarCommand {
    /// Show the calendars
    List,
    /// Show the days of one
    Show {
        /// The calendar's name
        calendar: String,
    },
    /// Make one, or give it other days
    Set {
        /// The calendar's name
        calendar: String,
        #[command(flatten)]
        days: CalendarDays,
    },
    /// Delete one that no schedule goes by
    Delete {
        /// The calendar's name
        calendar: String,
    },
}

#[derive(Debug, Default, Args)]
pub struct ScheduleFilter {
    /// Those of this queue, by its name or id
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Those of this tenant
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// Those that are paused
    #[arg(long, conflicts_with = "active")]
    pub paused: bool,
    /// Those that are not paused
    #[arg(long)]
    pub active: bool,
}

#[derive(Debug, Args)]
pub struct RunsOptions {
    /// The schedule's name or id
    pub schedule: String,
    /// Those for times before this: ISO 8601, or seconds since 1970
    #[arg(long, value_name = "WHEN")]
    pub before: Option<String>,
}

#[derive(Debug, Args)]
pub struct NewSchedule {
    /// A name that no other schedule has
    pub name: String,
    #[command(flatten)]
    pub settings: ScheduleSettings,
}

#[derive(Debug, Args)]
pub struct ScheduleUpdate {
    /// The schedule's name or id
    pub schedule: String,
    /// Call it so from now on
    #[arg(long, value_name = "NAME")]
    pub rename: Option<String>,
    /// Back to the default: zone, start, options.timeout and so on; repeated for others
    #[arg(long, value_name = "FIELD")]
    pub unset: Vec<String>,
    /// Only if it has this revision, as `schedule show` prints it
    #[arg(long, value_name = "N")]
    pub rev: Option<i64>,
    #[command(flatten)]
    pub settings: ScheduleSettings,
}

/// What a schedule is to do.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Schedules")]
pub struct ScheduleSettings {
    /// Take the fields from this file, a JSON object as `schedule show --format json` prints one; options on the
    /// command line come first. `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// When: five fields (minute, hour, day, month, day of the week), six with seconds first, or @daily and such;
    /// repeated for others. Without it, only `schedule run` makes tasks
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    pub cron: Vec<String>,
    #[command(flatten)]
    pub fields: ScheduleChange,
    #[command(flatten)]
    pub calendars: CalendarRules,
    /// Parameters of its tasks as one JSON object, in place of all that there are
    #[arg(long, value_name = "JSON")]
    pub params: Option<String>,
    /// A parameter as text; repeated for others. Those that are not named stay as they are
    #[arg(long, value_name = "NAME=TEXT", conflicts_with = "params")]
    pub param: Vec<String>,
    /// Give the plugin the JSON object in this file, which is encrypted and shown to nobody; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub secure_params_file: Option<PathBuf>,
    #[command(flatten)]
    pub options: OptionsOfTasks,
    /// What the file of secure parameters has.
    #[arg(skip)]
    pub secure_params: Option<SecureParams>,
}

/// What the tasks of a schedule have, as the API has it.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub struct OptionsOfTasks {
    /// End an attempt that takes longer
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<Seconds>,
    /// Time for the plugin between SIGTERM and SIGKILL
    #[arg(long, value_name = "TIME")]
    pub grace: Option<Seconds>,
    /// Try a task that fails so often at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_attempts: Option<u32>,
    /// Before others of the queue if it is higher: -1000 to 1000
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub priority: Option<i64>,
    /// Whose turn it is, in a fair queue
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// What its tasks must hold: NAME, NAME/shared or NAME/3; repeated for others
    #[arg(long = "lock", value_name = "LOCK")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<String>,
    /// What its tasks are found by, as customer=7; repeated for others
    #[arg(long = "tag", value_name = "TAG")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// Which calendars a schedule goes by.
#[derive(Debug, Clone, Default, Args)]
pub struct CalendarRules {
    /// Not on the days of this calendar; repeated for others
    #[arg(long, value_name = "CALENDAR")]
    pub exclude: Vec<String>,
    /// Only on the days of this calendar; repeated for others
    #[arg(long, value_name = "CALENDAR")]
    pub only: Vec<String>,
}

impl ScheduleSettings {
    /// The same with what is in the file of secure parameters. To be called once, as it may be standard input.
    pub fn with_secure_params(mut self) -> anyhow::Result<Self> {
        if let Some(path) = &self.secure_params_file {
            let both = input::is_stdin(path) && self.file.as_deref().is_some_and(input::is_stdin);
            anyhow::ensure!(!both, "--file and --secure-params-file cannot both be standard input");
            self.secure_params = input::secure_params(path)?;
        }
        Ok(self)
    }
}

/// A stretch of time whose tasks are to be made.
#[derive(Debug, Args)]
pub struct BackfillOptions {
    /// The schedule's name or id
    pub schedule: String,
    #[command(flatten)]
    pub times: Backfill,
    /// Only print which times these are
    #[arg(long)]
    pub preview: bool,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct PreviewOptions {
    /// The schedule's name or id
    #[arg(required_unless_present = "cron", conflicts_with_all = ["cron", "zone", "exclude", "only"])]
    pub schedule: Option<String>,
    /// When, in place of a schedule; repeated for others
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    pub cron: Vec<String>,
    /// The time zone of --cron [default: UTC]
    #[arg(long, value_name = "ZONE")]
    pub zone: Option<String>,
    #[command(flatten)]
    pub calendars: CalendarRules,
    /// From this time on [default: now]
    #[arg(long, value_name = "WHEN")]
    pub after: Option<String>,
    /// So many times
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub next: u32,
}

/// Jobs of another scheduler.
#[derive(Debug, Args)]
pub struct ImportedJobs {
    /// A file with a list of documents as JSON, or with one on each line; `-` for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The queue of all of them [default: the one that has the job's worker as its plugin]
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::tests::subcommand;

    #[test]
    fn what_a_schedule_does_is_read() {
        let words = ["create", "nightly", "--queue", "mail", "--cron", "0 3 * * *", "--cron", "@monthly"];
        let more = ["--jitter", "5m", "--exclude", "holidays", "--lock", "db/shared", "--priority", "-5"];
        let words = [&words[..], &more].concat();
        let ScheduleCommand::Create(new) = subcommand(&words).unwrap() else { panic!() };
        let settings = &new.settings;
        assert_eq!((new.name.as_str(), &settings.fields.queue), ("nightly", &"mail".parse().ok()));
        assert_eq!(settings.cron, ["0 3 * * *", "@monthly"]);
        assert_eq!((&settings.fields.jitter, settings.options.priority), (&"300".parse().ok(), Some(-5)));
        assert_eq!((settings.calendars.exclude.len(), settings.options.locks.len()), (1, 1));
    }

    #[test]
    fn mistakes_are_told_before_anything_is_sent() {
        for (words, message) in [
            (&["create"][..], "NAME"),
            (&["create", "a", "--jitter", "soon"], "is no length of time"),
            (&["create", "a", "--params", "{}", "--param", "b=1"], "cannot be used with"),
            (&["backfill", "a"], "--from"),
            (&["backfill", "a", "--from", "0", "--most", "1001"], "1001"),
            (&["preview"], "required"),
            (&["preview", "a", "--cron", "@daily"], "cannot be used with"),
            (&["preview", "a", "--zone", "UTC"], "cannot be used with"),
            (&["list", "--paused", "--active"], "cannot be used with"),
            (&["run"], "SCHEDULE"),
            (&["create", "a", "--paused=no"], "--paused"),
        ] {
            let error = subcommand::<ScheduleCommand>(words).unwrap_err();
            assert!(error.contains(message), "{words:?}: {error}");
        }
    }

    #[test]
    fn one_input_is_for_one_file() {
        let settings = ScheduleSettings {
            file: Some("-".into()),
            secure_params_file: Some("-".into()),
            ..ScheduleSettings::default()
        };
        let error = settings.with_secure_params().unwrap_err().to_string();
        assert!(error.contains("cannot both be standard input"), "{error}");
        assert!(ScheduleSettings::default().with_secure_params().is_ok());
    }
}
