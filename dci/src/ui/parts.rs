//! Pieces of pages that are shown as markup of their own: `{{ piece }}` in a template. What they show is text.

use std::fmt::Write as _;
use std::time::Duration;

use askama::Template;
use askama::filters::{HtmlSafe, HtmlSafeOutput};
use bson::{Bson, DateTime, Document};
use disbatch_core::model::date_time;
use serde_json::{Value, json};

use crate::json::date_text;
use crate::ui::overview::throughput::Span;
use crate::ui::{plain, zone};

/// A time. Pages with script tell how long ago it is, unless it is to be exact; without, it is in the zone of the reader.
#[derive(Debug, Clone, Default, PartialEq, Eq, Template)]
#[template(path = "parts/when.html")]
pub struct When {
    iso: Option<String>,
    text: String,
    is_exact: bool,
    /// Scripts leave out the day if that is today, and it has no seconds.
    is_short: bool,
}

impl HtmlSafe for When {}

impl When {
    /// What is stored: also a time that is an integer, and text that is none.
    pub fn of(value: Option<&Bson>) -> Self {
        time_of(value).map_or_else(|| Self { text: plain(value), ..Self::default() }, Self::at)
    }

    pub fn at(at: DateTime) -> Self {
        Self::in_zone(at, |clock| format!("{clock} {}", zone::name()))
    }

    /// The same, told as clocks show it. The zone stands elsewhere, see [`zone::mark`].
    pub fn exact(value: Option<&Bson>) -> Self {
        time_of(value).map_or_else(|| Self::of(value), Self::exactly)
    }

    pub fn exactly(at: DateTime) -> Self {
        Self { is_exact: true, ..Self::in_zone(at, |clock| clock) }
    }

    /// The same without seconds.
    pub fn short(value: Option<&Bson>) -> Self {
        let exact = Self::exact(value);
        if !exact.is_exact {
            return exact;
        }
        Self { text: exact.text.get(..16).unwrap_or(&exact.text).to_owned(), is_short: true, ..exact }
    }

    fn in_zone(at: DateTime, told: impl FnOnce(String) -> String) -> Self {
        match date_text(at) {
            Some(text) => {
                Self { iso: Some(format!("{text}Z")), text: told(zone::clock(at)), ..Self::default() }
            }
            None => Self { text: at.to_string(), ..Self::default() },
        }
    }

    /// A link to the page that tells what else happened then; nothing if no time is known.
    pub fn what_else(&self) -> HtmlSafeOutput<String> {
        let link = |iso| format!("<a href=\"/moments?at={iso}\">What else happened then</a>");
        HtmlSafeOutput(self.iso.as_ref().map(link).unwrap_or_default())
    }

    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

pub fn time_of(value: Option<&Bson>) -> Option<DateTime> {
    value.and_then(date_time)
}

pub fn when(at: &Option<DateTime>) -> When {
    at.map(When::at).unwrap_or_default()
}

/// A state as a symbol and a word; the style sheet has the symbols of tones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Template)]
#[template(path = "parts/pill.html")]
pub struct Pill {
    /// A class of the style sheet: a tone (`good`, `bad`, `busy`, `info`, `idle`) or a word that has one.
    pub tone: &'static str,
    pub word: &'static str,
}

impl HtmlSafe for Pill {}

/// A small picture of numbers over time: what ended as an area, what failed of it as bars.
#[derive(Debug, Clone, Default, PartialEq, Eq, Template)]
#[template(path = "parts/spark.html")]
pub struct Spark {
    width: usize,
    height: usize,
    pub label: String,
    area: String,
    bars: String,
}

impl HtmlSafe for Spark {}

impl Spark {
    /// One with a place for each of the pairs: how many ended, and how many of these failed. `label` says it in words.
    pub fn new(numbers: &[(u64, u64)], label: String) -> Self {
        const HEIGHT: usize = 24;
        let most = numbers.iter().map(|(ended, _)| *ended).max().unwrap_or(0).max(1);
        let y = |number: u64| HEIGHT as f64 * (1.0 - number.min(most) as f64 / most as f64);
        let mut spark = Self { width: numbers.len().max(2) - 1, height: HEIGHT, label, ..Self::default() };
        if numbers.iter().all(|(ended, _)| *ended == 0) {
            return spark;
        }
        let _infallible = write!(spark.area, "M0 {HEIGHT}");
        for (at, (ended, failed)) in numbers.iter().enumerate() {
            let _infallible = write!(spark.area, "L{at} {:.1}", y(*ended));
            if *failed > 0 {
                // A failure among very many is to be seen all the same.
                let top = y(*failed).min(HEIGHT as f64 - 2.0);
                let left = (at as f64 - 0.4).max(0.0);
                let _infallible = write!(spark.bars, "M{left:.1} {HEIGHT}V{top:.1}h.8V{HEIGHT}z");
            }
        }
        let _infallible = write!(spark.area, "L{} {HEIGHT}z", numbers.len() - 1);
        spark
    }
}

/// A whole number, by however many references a template has it.
pub trait Figure {
    fn figure(&self) -> u64;
}

impl Figure for u64 {
    fn figure(&self) -> u64 {
        *self
    }
}

impl Figure for i64 {
    /// Nothing is less than none.
    fn figure(&self) -> u64 {
        u64::try_from(*self).unwrap_or(0)
    }
}

impl<T: Figure> Figure for &T {
    fn figure(&self) -> u64 {
        (**self).figure()
    }
}

/// 1234567 as 1,234,567.
pub fn grouped(number: impl Figure) -> String {
    let mut rest = number.figure();
    let mut groups = Vec::new();
    while rest >= 1000 {
        groups.push(format!(",{:03}", rest % 1000));
        rest /= 1000;
    }
    groups.into_iter().rev().fold(rest.to_string(), |text, group| text + &group)
}

/// A number in a table: nothing is not to catch the eye.
pub fn number(number: impl Figure) -> HtmlSafeOutput<String> {
    HtmlSafeOutput(match number.figure() {
        0 => "<span class=\"zero\">0</span>".to_owned(),
        number => grouped(number),
    })
}

/// `1 task`, `3 tasks`
pub fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The beginning of a text that may be long, for where it is only to be recognised.
pub fn cut(text: &str, most: usize) -> String {
    disbatch_values::text::cut(text, most, "…")
}

/// A length of time in its largest unit, for people: `3 min`.
pub fn rough(seconds: u64) -> String {
    let units = [(86_400, "d"), (3600, "h"), (60, "min")];
    let (length, unit) = units.into_iter().find(|(length, _)| seconds >= *length).unwrap_or((1, "s"));
    format!("{} {unit}", seconds / length)
}

/// Bytes in the largest binary unit that leaves a whole part.
pub fn bytes(count: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let step = count.max(1).ilog2() / 10;
    let whole = count >> (10 * step);
    let unit = units[step as usize % units.len()];
    if step > 0 && whole < 10 {
        let tenths = ((count >> (10 * (step - 1))) & 1023) * 10 / 1024;
        return format!("{whole}.{tenths} {unit}");
    }
    format!("{whole} {unit}")
}

#[derive(Debug)]
pub struct Chart {
    /// What it is of, as addresses have it.
    pub of: &'static str,
    pub title: &'static str,
    /// What is seen without script. Its label is the same in words.
    pub picture: Spark,
}

#[derive(Debug, Template)]
#[template(path = "parts/charts.html")]
pub struct Charts {
    /// The address of the page.
    pub place: String,
    /// The address of the list of the tasks that they are of.
    pub tasks: String,
    pub span: Span,
    pub charts: Vec<Chart>,
}

impl HtmlSafe for Charts {}

/// What a script draws: a line, a line of dashes, an area, a layer upon those after it, or bars for each of the series, in a tone of the
/// style sheet.
pub fn drawn(
    times: impl Iterator<Item = DateTime>,
    (unit, every, words): (&str, Duration, String),
    series: impl IntoIterator<Item = (impl Into<String>, &'static str, &'static str, Value)>,
) -> Value {
    let seconds: Vec<i64> = times.map(|at| at.timestamp_millis().div_euclid(1000)).collect();
    let series: Vec<Value> = series
        .into_iter()
        .map(|(label, kind, tone, values)| json!({ "label": label.into(), "kind": kind, "tone": tone, "values": values }))
        .collect();
    json!({ "times": seconds, "unit": unit, "every": every.as_secs(), "words": words, "series": series })
}

/// Milliseconds in at most two units: `0.02 s`, `12.3 s`, `3 min 5 s`, `2 h 5 min`, `3 d 4 h`.
pub fn precise(millis: i64) -> String {
    let millis = millis.max(0).unsigned_abs();
    let seconds = millis / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds % 86_400 / 3600, seconds % 3600 / 60);
    match (days, hours, minutes) {
        (0, 0, 0) if millis < 1000 => format!("0.{:02} s", millis / 10),
        (0, 0, 0) => format!("{seconds}.{} s", millis % 1000 / 100),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a float cast saturates, which is what is wanted")]
pub fn precise_seconds(seconds: f64) -> String {
    precise((seconds * 1000.0) as i64)
}

/// A limit in seconds, in its two largest units at most, as people set it: `2 h`, `90 s`.
pub fn limit_span(seconds: f64) -> String {
    if seconds < 120.0 { format!("{seconds} s") } else { disbatch_wire::seconds::words(seconds) }
}

/// How long a task waited from when its first attempt could have started until its last one did.
pub fn waited(task: &Document) -> Option<String> {
    let at = |field: &str| time_of(task.get(field));
    let ready = at("run_at").max(at("ctime"))?.timestamp_millis();
    Some(precise(at("started")?.timestamp_millis().saturating_sub(ready)))
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn times_are_told_to_machines_too() {
        let at = Bson::DateTime(DateTime::from_millis(1_795_163_067_344));
        let html = When::of(Some(&at)).render().unwrap();
        assert_eq!(html, "<time datetime=\"2026-11-20T08:24:27Z\">2026-11-20 08:24:27 UTC</time>");
        assert_eq!(When::of(Some(&Bson::Int64(1_795_163_067))).render().unwrap(), html);
        assert_eq!(When::of(Some(&Bson::from("<soon>"))).render().unwrap(), "&#60;soon&#62;");
        assert!(When::of(None).is_empty() && !When::of(Some(&at)).is_empty());
        let exact = When::exact(Some(&at)).render().unwrap();
        assert_eq!(exact, "<time datetime=\"2026-11-20T08:24:27Z\" data-exact>2026-11-20 08:24:27</time>");
        let short = When::short(Some(&at)).render().unwrap();
        assert_eq!(
            short,
            "<time datetime=\"2026-11-20T08:24:27Z\" data-exact=\"short\">2026-11-20 08:24</time>"
        );
        assert_eq!(When::exact(Some(&Bson::from("<soon>"))).render().unwrap(), "&#60;soon&#62;");
    }

    #[tokio::test]
    async fn times_are_in_the_zone_of_whom_the_page_is_for() {
        let berlin = disbatch_core::schedules::Zone::named("Europe/Berlin").unwrap();
        let at = DateTime::from_millis(1_795_163_067_344);
        let html = zone::within(berlin, async { When::at(at).render().unwrap() }).await;
        assert_eq!(html, "<time datetime=\"2026-11-20T08:24:27Z\">2026-11-20 09:24:27 Europe/Berlin</time>");
    }

    #[test]
    fn pictures_are_of_what_they_are_given() {
        let spark = Spark::new(&[(0, 0), (4, 1), (2, 0)], "6 ended, <1> failed".into());
        assert_eq!((spark.width, spark.area.as_str()), (2, "M0 24L0 24.0L1 0.0L2 12.0L2 24z"));
        assert_eq!(spark.bars, "M0.6 24V18.0h.8V24z");
        assert!(spark.render().unwrap().contains("aria-label=\"6 ended, &#60;1&#62; failed\""));
        for empty in [&[][..], &[(0, 0)], &[(0, 0), (0, 0)]] {
            let spark = Spark::new(empty, String::new());
            assert!(spark.area.is_empty() && spark.width > 0, "{spark:?}");
        }
        let extreme = Spark::new(&[(u64::MAX, u64::MAX), (1, 1)], String::new());
        assert!(!extreme.area.contains("NaN"), "{extreme:?}");
    }

    #[test]
    fn numbers_are_written_for_people() {
        let numbers = [0_u64, 7, 1_000, 1_234_007];
        assert_eq!(numbers.map(grouped), ["0", "7", "1,000", "1,234,007"]);
        assert_eq!(
            numbers.each_ref().map(|n| number(n).to_string())[..2],
            ["<span class=\"zero\">0</span>", "7"]
        );
        assert_eq!([cut("ééé", 2), cut("éé", 2), cut("", 0)], ["éé…", "éé", ""]);
        assert_eq!([0, 59, 60, 7_199, 200_000].map(rough), ["0 s", "59 s", "1 min", "1 h", "2 d"]);
        assert_eq!(
            [0, 1023, 1024, 1536, 20 << 30, u64::MAX].map(bytes),
            ["0 bytes", "1023 bytes", "1.0 KiB", "1.5 KiB", "20 GiB", "15 EiB"]
        );
    }

    #[test]
    fn a_task_waits_from_when_it_could_start() {
        let at = |ms: i64| DateTime::from_millis(1_795_163_067_344 + ms);
        let of = |task: Document| waited(&task);
        assert_eq!(of(doc! { "ctime": at(0), "started": at(5_000) }), Some("5.0 s".into()));
        assert_eq!(
            of(doc! { "ctime": at(0), "run_at": at(4_000), "started": at(5_000) }),
            Some("1.0 s".into())
        );
        assert_eq!(of(doc! { "ctime": at(9_000), "started": at(5_000) }), Some("0.00 s".into()));
        assert_eq!(of(doc! { "ctime": at(0) }), None);
        assert_eq!(of(doc! { "ctime": "then", "started": at(0) }), None);
    }

    #[test]
    fn limits_are_as_people_set_them() {
        let words = [5.0, 0.5, 90.0, 120.0, 7_200.0, 7_260.0, 90_061.0].map(limit_span);
        assert_eq!(words, ["5 s", "0.5 s", "90 s", "2 min", "2 h", "2 h 1 min", "1 d 1 h"]);
    }

    #[test]
    fn lengths_have_two_units_at_most() {
        let lengths = [-5, 0, 27, 1_000, 12_345, 61_000, 3_700_000, 90_000_000, i64::MAX];
        let texts = lengths.map(precise);
        let expected = ["0.00 s", "0.00 s", "0.02 s", "1.0 s", "12.3 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"];
        assert_eq!(texts[..8], expected);
        assert!(texts[8].ends_with(" h"), "{}", texts[8]);
    }
}
