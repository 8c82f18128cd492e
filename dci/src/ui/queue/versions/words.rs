//! What the panel says, and what its buttons are called.

use disbatch_core::canary::{LEAST, Side, WORSE_BELOW, percent, probability};
use disbatch_core::series::Sides;

use super::{Returned, Tried, VersionChoice, Versions};
use crate::ui::parts::When;

impl Versions {
    /// What runs all tasks but those of the canary.
    pub(super) fn baseline(&self) -> String {
        match &self.pinned {
            Some(version) => format!("Version {version}"),
            None => "What each node finds first".to_owned(),
        }
    }

    pub(super) fn unpinned(&self) -> String {
        format!("{} pins no version.", self.name)
    }

    /// Of a button that tries a version on a part of the tasks.
    pub(super) fn trial(&self, known: &VersionChoice, share: &f64) -> String {
        if known.is_tried {
            format!("Try {} instead", percent(*share))
        } else {
            format!("Try {} on {}", known.version, percent(*share))
        }
    }

    pub(super) fn trying(&self, known: &VersionChoice, share: &f64) -> String {
        format!("{} of the tasks of {} are run by version {}.", percent(*share), self.name, known.version)
    }

    pub(super) fn rolled_out(&self, version: impl std::fmt::Display) -> String {
        format!("All tasks of {} are run by version {version}.", self.name)
    }
}

impl VersionChoice {
    /// Which nodes have it.
    pub(super) fn words(&self) -> String {
        const NAMED: usize = 5;
        let names: Vec<&str> = self.nodes.iter().take(NAMED).map(String::as_str).collect();
        match self.nodes.len() {
            count if count > NAMED => format!("{count} nodes"),
            _ => names.join(", "),
        }
    }
}

impl Tried {
    pub(super) fn began(&self) -> When {
        When::at(self.canary.began)
    }

    pub(super) fn share(&self) -> String {
        percent(self.canary.share)
    }

    /// What is compared with the others.
    pub(super) fn title(&self) -> String {
        format!("Version {}, {} of the tasks", self.canary.version, self.share())
    }

    /// What is to be said of the comparison.
    pub(super) fn verdict(&self) -> String {
        let Sides { canary, others } = self.sides;
        if canary.ended < LEAST {
            let left = LEAST - canary.ended;
            return format!("It is not judged yet: {left} more of its attempts must end before that.");
        }
        let p = probability(canary, others);
        format!(
            "By chance alone, as many failures or more would be among its attempts with a probability of {p:.4}. \
             Below {WORSE_BELOW} it is taken back."
        )
    }
}

impl Returned {
    pub(super) fn p(&self) -> String {
        format!("{:.1e}", self.p)
    }
}

/// The part that failed.
pub(super) fn rate(side: &Side) -> String {
    percent(side.rate())
}
