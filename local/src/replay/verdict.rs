//! What is made of a run that was replayed among others.

use disbatch_cli::args::seconds;
use disbatch_cli::args::{FailOn, Limits};
use disbatch_compare::{Comparison, Measured, Speed, Thresholds};
use serde_json::{Value, json};

/// A run that was replayed, or was to be.
#[derive(Debug)]
pub struct Tried {
    /// Which of all it is.
    pub number: usize,
    /// The task's id; the name of the file if that is no bundle.
    pub task: String,
    pub attempt: i64,
    pub plugin: String,
    /// What came out, or why it could not be replayed.
    pub outcome: Result<Comparison, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Same,
    Faster,
    Slower,
    Different,
    NotReplayable,
}

impl Verdict {
    pub const ALL: [Self; 5] = [Self::Same, Self::Faster, Self::Slower, Self::Different, Self::NotReplayable];

    pub const fn word(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Different => "different",
            Self::NotReplayable => "not replayable",
        }
    }

    /// Whether the exit status says so.
    fn fails(self, on: &[FailOn]) -> bool {
        match self {
            Self::Same | Self::Faster => false,
            Self::Slower => on.contains(&FailOn::Slower),
            Self::Different => on.is_empty() || on.contains(&FailOn::Different),
            Self::NotReplayable => on.contains(&FailOn::NotReplayable),
        }
    }
}

impl Tried {
    pub fn verdict(&self, limits: &Limits) -> Verdict {
        match &self.outcome {
            Err(_) => Verdict::NotReplayable,
            Ok(comparison) if !comparison.is_same() => Verdict::Different,
            Ok(comparison) => match comparison.duration.speed(&thresholds(limits)) {
                Speed::Same => Verdict::Same,
                Speed::Faster => Verdict::Faster,
                Speed::Slower => Verdict::Slower,
            },
        }
    }

    /// The verdict with what is behind it.
    pub fn words(&self, limits: &Limits) -> String {
        let verdict = self.verdict(limits);
        let why = match &self.outcome {
            Err(why) => why.clone(),
            Ok(comparison) => comparison.different().join(", "),
        };
        if why.is_empty() { verdict.word().to_owned() } else { format!("{}: {why}", verdict.word()) }
    }

    fn duration(&self) -> Measured {
        let none = Measured { was: None, is: None };
        self.outcome.as_ref().map_or(none, |comparison| comparison.duration.clone())
    }

    /// How long it took, then and now, and what that means.
    pub fn times(&self) -> [String; 3] {
        let duration = self.duration();
        let text = |time: Option<f64>| time.map_or_else(String::new, seconds::words);
        [text(duration.was), text(duration.is), duration.change()]
    }

    fn json(&self, limits: &Limits) -> Value {
        let mut all = match &self.outcome {
            Ok(comparison) => comparison.json(),
            Err(why) => json!({ "why": why }),
        };
        if let Some(all) = all.as_object_mut() {
            let verdict = self.verdict(limits).word();
            let own = json!({ "task": self.task, "attempt": self.attempt, "plugin": self.plugin, "verdict": verdict });
            all.extend(own.as_object().cloned().unwrap_or_default());
        }
        all
    }
}

fn thresholds(limits: &Limits) -> Thresholds {
    let Limits { slower_than, faster_than, noise } = *limits;
    Thresholds { slower_than, faster_than, noise: noise.as_secs_f64() }
}

/// All of them, in their order.
#[derive(Debug)]
pub struct Verdicts<'a> {
    pub all: &'a [Tried],
    pub limits: &'a Limits,
}

impl Verdicts<'_> {
    pub fn count(&self, verdict: Verdict) -> usize {
        self.all.iter().filter(|tried| tried.verdict(self.limits) == verdict).count()
    }

    /// How many times as long as then they took, the one in the middle; of those that came out the same.
    pub fn median(&self) -> Option<f64> {
        let is_same = |tried: &&Tried| tried.outcome.as_ref().is_ok_and(Comparison::is_same);
        let ratio = |tried: &Tried| {
            let Measured { was, is } = tried.duration();
            was.zip(is).filter(|(was, _)| *was > 0.0).map(|(was, is)| is / was)
        };
        let mut ratios: Vec<f64> = self.all.iter().filter(is_same).filter_map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied()
    }

    /// Whether one of them is what must not be.
    pub fn fail(&self, on: &[FailOn]) -> bool {
        self.all.iter().any(|tried| tried.verdict(self.limits).fails(on))
    }

    pub fn json(&self) -> Value {
        let mut json = json!({
            "runs": self.all.iter().map(|tried| tried.json(self.limits)).collect::<Vec<_>>(),
            "median": self.median(),
        });
        if let Some(json) = json.as_object_mut() {
            let counts =
                Verdict::ALL.map(|verdict| (verdict.word().replace(' ', "_"), self.count(verdict).into()));
            json.extend(counts);
        }
        json
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn limits() -> Limits {
        Limits { slower_than: 50.0, faster_than: 33.0, noise: Duration::from_millis(100) }
    }

    #[test]
    fn the_limits_of_the_command_are_those_of_shadows() {
        let words = ["disbatch", "replay", "a.tar"].map(Into::into);
        let arguments = disbatch_cli::args::parse(&mut words.to_vec()).unwrap();
        let Some(disbatch_cli::args::Command::Replay(options)) = arguments.command else { panic!() };
        assert_eq!(thresholds(&options.many.limits), Thresholds::default());
    }

    #[test]
    fn what_must_not_be_is_said() {
        assert!(Verdict::Different.fails(&[]) && !Verdict::Slower.fails(&[]) && !Verdict::Same.fails(&[]));
        assert!(Verdict::Slower.fails(&[FailOn::Slower]) && !Verdict::Different.fails(&[FailOn::Slower]));
        assert!(Verdict::NotReplayable.fails(&[FailOn::NotReplayable]));
        let failed = |number| Tried {
            number,
            task: "t".to_owned(),
            attempt: 1,
            plugin: "P".to_owned(),
            outcome: Err("no plugin".to_owned()),
        };
        let (all, limits) = ([failed(0), failed(1)], limits());
        let verdicts = Verdicts { all: &all, limits: &limits };
        let json = verdicts.json();
        assert_eq!(
            (&json["not_replayable"], &json["same"], &json["median"]),
            (&json!(2), &json!(0), &Value::Null)
        );
        assert_eq!(json["runs"][1]["why"], json!("no plugin"));
        assert_eq!(all[0].words(&limits), "not replayable: no plugin");
    }
}
