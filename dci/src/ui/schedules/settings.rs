//! The settings of a schedule as its page lists them.

use std::time::Duration;

use askama::Template;
use askama::filters::HtmlSafe;
use bson::Bson;
use disbatch_core::schedules::Schedule;

use super::{cron, words};
use crate::json::{self, Dates};

/// What people have set, and what the plugin has saved.
#[derive(Template)]
#[template(path = "schedule/settings.html")]
pub struct SettingList {
    when: Vec<(&'static str, String)>,
    what: Vec<(&'static str, String)>,
    params: String,
    storage: Option<String>,
}

impl HtmlSafe for SettingList {}

impl SettingList {
    /// Those of a schedule.
    pub fn of(schedule: &Schedule) -> Self {
        let (settings, spec) = (&schedule.settings, &schedule.settings.spec);
        let shown = schedule.shown();
        let length = |length: Duration| (!length.is_zero()).then(|| format!("{} s", length.as_secs()));
        let calendars: Vec<String> =
            spec.calendars.iter().map(|used| format!("{} {}", used.rule.as_str(), used.name)).collect();
        let when = [
            ("times", Some(cron(schedule))),
            ("zone", Some(spec.zone.name().to_owned())),
            ("skipped by the clock", Some(spec.gap.as_str().to_owned())),
            ("twice on the clock", Some(spec.fold.as_str().to_owned())),
            ("not before", spec.start.map(|at| words::there(&spec.zone, at))),
            ("not after", spec.end.map(|at| words::there(&spec.zone, at))),
            ("jitter", length(spec.jitter)),
            ("calendars", Some(calendars.join(", "))),
            ("overlap", Some(settings.overlap.as_str().to_owned())),
            ("catch up", length(settings.catch_up)),
        ];
        let has_secure = settings.options.secure_params.is_some();
        let what = [
            ("options", shown.get("options").map(compact)),
            ("secure parameters", has_secure.then(|| "for the plugin alone".to_owned())),
            ("owner", settings.owner.clone()),
            ("tenant", settings.tenant.clone()),
            ("revision", Some(schedule.rev.to_string())),
            ("made", schedule.created.map(words::utc)),
            ("changed", schedule.changed.map(words::utc)),
        ];
        Self {
            when: filled(when),
            what: filled(what),
            params: pretty(&Bson::from(settings.params.clone())),
            storage: schedule.storage.as_ref().filter(|storage| **storage != Bson::Null).map(pretty),
        }
    }
}

fn filled<const N: usize>(facts: [(&'static str, Option<String>); N]) -> Vec<(&'static str, String)> {
    let facts = facts.into_iter().filter_map(|(name, value)| Some((name, value?)));
    facts.filter(|(_, value)| !value.is_empty()).collect()
}

fn compact(value: &Bson) -> String {
    json::compact(&json::from_bson(value, Dates::Text))
}

fn pretty(value: &Bson) -> String {
    json::pretty(&json::from_bson(value, Dates::Text)).trim_end().to_owned()
}

#[cfg(test)]
pub mod tests {
    use bson::doc;

    use super::*;

    /// Some of them.
    pub fn list() -> SettingList {
        SettingList {
            when: filled([("times", Some("0 3 * * *".into())), ("jitter", None)]),
            what: vec![],
            params: pretty(&Bson::from(doc! { "a": "<b>" })),
            storage: Some("{}".into()),
        }
    }

    #[test]
    fn what_is_not_set_is_left_out() {
        let html = list().render().unwrap();
        assert!(html.contains("<dt>times</dt><dd>0 3 * * *</dd>") && !html.contains("jitter"), "{html}");
        assert!(html.contains("What its plugin has saved"), "{html}");
    }
}
