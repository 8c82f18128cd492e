//! What alarms say: one alone has a sentence of its own, and several of a kind share one that names what they are about. Pure.

use crate::ui::parts::grouped;

/// So many of a kind are named.
const NAMED: usize = 10;

/// What is the matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A node is not heard of.
    Silent,
    /// A node's processors have far too much to do.
    Overloaded,
    /// Tasks wait for the answer of a person.
    Asks,
    Paused,
    NoThreads,
    NoPlugin,
    /// No node has the plugin.
    NoNode,
    /// Tasks wait for the rate of their queue.
    Rate,
    Stuck,
    /// Most of what ended failed.
    Failing,
    /// More failed than usual.
    Unusual,
}

impl Kind {
    /// Whether it is as somebody wanted it.
    const fn is_meant(self) -> bool {
        matches!(self, Self::Paused | Self::Rate)
    }

    /// What there is to say of several.
    fn of_many(self, count: usize) -> String {
        match self {
            Self::Silent => format!("{count} nodes have not been heard of for a while"),
            Self::Overloaded => format!("The load of {count} nodes is far too high"),
            Self::Asks => format!("Tasks of {count} queues wait for an answer"),
            Self::Paused => format!("{count} queues are paused, and tasks wait in them"),
            Self::NoThreads => format!("Tasks wait in {count} queues whose threads are 0"),
            Self::NoPlugin => format!("Tasks wait in {count} queues without a usable plugin"),
            Self::NoNode => {
                format!("{count} queues are without nodes, as none that is alive has their plugins")
            }
            Self::Rate => format!("Tasks of {count} queues wait for their rates"),
            Self::Stuck => format!("Nothing of {count} queues runs, though tasks wait"),
            Self::Failing => {
                format!("Half of the tasks of {count} queues, or more, failed within the last hour")
            }
            Self::Unusual => format!("More tasks than usual of {count} queues failed lately"),
        }
    }
}

/// Something is the matter with a queue or a node.
#[derive(Debug)]
pub struct Alarm {
    pub kind: Kind,
    /// The queue or node.
    pub name: String,
    /// The sentence for it alone.
    pub alone: String,
    /// What is to be known of it among others of its kind.
    pub detail: String,
    /// Where to go on, and what is there.
    pub link: Option<(String, &'static str)>,
}

/// What is shown.
#[derive(Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether it is as somebody wanted it.
    pub meant: bool,
    pub text: String,
    /// Where to go on.
    pub link: Option<(String, &'static str)>,
    /// What several alarms are about: its name, its address, and what is to be known of it.
    pub about: Vec<(String, Option<String>, String)>,
    /// How many are not named.
    pub more: usize,
}

impl Notice {
    /// One that is about everything.
    pub const fn of_all(text: String, link: (String, &'static str)) -> Self {
        Self { meant: false, text, link: Some(link), about: Vec::new(), more: 0 }
    }

    /// What alarms come to, those of a kind in one, in the order in which kinds come first.
    pub fn all(alarms: Vec<Alarm>) -> Vec<Self> {
        let mut kinds: Vec<(Kind, Vec<Alarm>)> = Vec::new();
        for alarm in alarms {
            match kinds.iter_mut().find(|(kind, _)| *kind == alarm.kind) {
                Some((_, others)) => others.push(alarm),
                None => kinds.push((alarm.kind, vec![alarm])),
            }
        }
        kinds.into_iter().filter_map(|(kind, alarms)| Self::of(kind, alarms)).collect()
    }

    fn of(kind: Kind, mut alarms: Vec<Alarm>) -> Option<Self> {
        let meant = kind.is_meant();
        if alarms.len() == 1 {
            let Alarm { alone, link, .. } = alarms.pop()?;
            return Some(Self { meant, text: alone, link, about: Vec::new(), more: 0 });
        }
        let (text, more) = (kind.of_many(alarms.len()), alarms.len().saturating_sub(NAMED));
        let about = |alarm: Alarm| (alarm.name, alarm.link.map(|(address, _)| address), alarm.detail);
        let about = alarms.into_iter().take(NAMED).map(about).collect();
        Some(Self { meant, text, link: None, about, more })
    }

    /// All of it as text.
    #[cfg(test)]
    pub fn words(&self) -> String {
        let about = |(name, _, detail): &(String, _, String)| match detail.as_str() {
            "" => name.clone(),
            detail => format!("{name} ({detail})"),
        };
        let about: Vec<String> = self.about.iter().map(about).collect();
        let more = if self.more > 0 { self.and_more() } else { String::new() };
        let of = if about.is_empty() { "" } else { ": " };
        format!("{}{of}{}{more}", self.text, about.join(", "))
    }

    /// How many are not named, in words.
    pub fn and_more(&self) -> String {
        format!(" and {} more", grouped(self.more as u64))
    }
}
