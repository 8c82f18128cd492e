//! What takes turns in `engines`: the ways to run a plugin, and the bare processes that some of them cannot do without.

use std::path::Path;

use anyhow::Context;

use super::NAME;
use crate::results::Series;
use crate::world::plugins::{CONTAINER, HTTP, PERL, PROGRAM, TRUE, TRUE_PROGRAM, WARM, program_file};

/// What Perl takes to start.
pub const PERL_START: [&str; 3] = ["perl", "-e", "1"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Bare processes: `/bin/true`.
    BareTrue,
    /// A program for each task.
    Exec,
    /// A program for many tasks.
    Warm,
    /// Bare processes: Perl with nothing to do.
    BarePerl,
    /// A Perl module.
    Perl,
    /// Bare processes: the script of [`Way::Program`].
    BareProgram,
    /// A program of Disbatch 4.4.
    Program,
    Container,
    /// A web service.
    Http,
}

impl Way {
    pub const ALL: [Self; 9] = [
        Self::BareTrue,
        Self::Exec,
        Self::Warm,
        Self::BarePerl,
        Self::Perl,
        Self::BareProgram,
        Self::Program,
        Self::Container,
        Self::Http,
    ];

    pub const fn key(self) -> &'static str {
        match self {
            Self::BareTrue => "bare_true",
            Self::Exec => "exec",
            Self::Warm => "warm",
            Self::BarePerl => "bare_perl",
            Self::Perl => "perl",
            Self::BareProgram => "bare_program",
            Self::Program => "program",
            Self::Container => "container",
            Self::Http => "http",
        }
    }

    pub const fn label(self) -> &'static str {
        match self {
            Self::BareTrue => "floor, bare /bin/true",
            Self::Exec => "exec",
            Self::Warm => "exec, warm",
            Self::BarePerl => "floor, bare perl -e 1",
            Self::Perl => "perl",
            Self::BareProgram => "floor, bare script",
            Self::Program => "program",
            Self::Container => "container",
            Self::Http => "http",
        }
    }

    /// The plugin that is run by it. `None`: nothing of ours is.
    pub const fn plugin(self) -> Option<&'static str> {
        match self {
            Self::BareTrue | Self::BarePerl | Self::BareProgram => None,
            Self::Exec => Some(TRUE),
            Self::Warm => Some(WARM),
            Self::Perl => Some(PERL),
            Self::Program => Some(PROGRAM),
            Self::Container => Some(CONTAINER),
            Self::Http => Some(HTTP),
        }
    }

    /// The bare processes that each of its tasks is at least.
    pub const fn floor(self) -> Option<Self> {
        match self {
            Self::Exec => Some(Self::BareTrue),
            Self::Perl => Some(Self::BarePerl),
            Self::Program => Some(Self::BareProgram),
            Self::BareTrue
            | Self::BarePerl
            | Self::BareProgram
            | Self::Warm
            | Self::Container
            | Self::Http => None,
        }
    }

    /// How many tasks it drains where a program for each task drains `tasks`: enough for some seconds.
    pub fn tasks(self, tasks: u32) -> u32 {
        let share = match self {
            Self::Container => 10,
            Self::Http => 4,
            Self::BareTrue
            | Self::Exec
            | Self::Warm
            | Self::BarePerl
            | Self::Perl
            | Self::BareProgram
            | Self::Program => 1,
        };
        (tasks / share).max(1)
    }

    /// The command of a bare process. `folder` is that of the benchmark.
    pub fn command(self, folder: &Path) -> anyhow::Result<Vec<String>> {
        let text = |path: &Path| {
            let text = path.to_str().context("the path of the folder for temporary files is no text")?;
            anyhow::Ok(text.to_owned())
        };
        match self {
            Self::BareTrue => Ok(vec![TRUE_PROGRAM.to_owned()]),
            Self::BarePerl => Ok(PERL_START.map(ToOwned::to_owned).to_vec()),
            Self::BareProgram => {
                let task = folder.join("task.json");
                Ok(vec![text(&program_file(folder))?, "--task".to_owned(), text(&task)?])
            }
            Self::Exec | Self::Warm | Self::Perl | Self::Program | Self::Container | Self::Http => {
                anyhow::bail!("{} is no bare process", self.label())
            }
        }
    }

    pub fn speed(self, width: u32) -> Series {
        self.series(&format!("{width}_wide_per_second"), &format!("{width} wide, per second"))
    }

    /// The CPU time of one task, or process.
    pub fn cpu(self, width: u32) -> Series {
        self.series(&format!("{width}_wide_cpu_ms"), &format!("{width} wide, CPU of each, ms"))
    }

    /// The CPU time that the machine has used for one.
    pub fn machine_cpu(self, width: u32) -> Series {
        let label = format!("{width} wide, CPU of the machine for each, ms");
        self.series(&format!("{width}_wide_machine_cpu_ms"), &label)
    }

    /// How long each task took that was alone; of processes the mean of a round.
    pub fn alone(self) -> Series {
        self.series("alone_ms", "one alone, ms")
    }

    /// The median of that in one round.
    pub fn alone_of_round(self) -> Series {
        self.series("alone_p50_ms", "one alone, p50 of a round, ms")
    }

    fn series(self, key: &str, label: &str) -> Series {
        Series {
            figure: NAME,
            key: format!("{}_{key}", self.key()).into(),
            label: format!("{}, {label}", self.label()).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn all_have_names_of_their_own() {
        let keys: BTreeSet<_> = Way::ALL.into_iter().map(Way::key).collect();
        let labels: BTreeSet<_> = Way::ALL.into_iter().map(Way::label).collect();
        assert_eq!((keys.len(), labels.len()), (Way::ALL.len(), Way::ALL.len()));
    }

    #[test]
    fn whatever_has_no_plugin_has_a_command() {
        for way in Way::ALL {
            assert_eq!(way.plugin().is_none(), way.command(Path::new("/tmp/x")).is_ok(), "{way:?}");
            assert!(way.floor().is_none_or(|floor| floor.plugin().is_none()), "{way:?}");
        }
        let script = Way::BareProgram.command(Path::new("/tmp/x")).unwrap();
        assert_eq!(script[1..], ["--task", "/tmp/x/task.json"]);
    }

    #[test]
    fn slow_ways_get_fewer_tasks_and_never_none() {
        assert_eq!([Way::Exec, Way::Http, Way::Container].map(|way| way.tasks(1000)), [1000, 250, 100]);
        assert_eq!(Way::Container.tasks(3), 1);
    }
}
