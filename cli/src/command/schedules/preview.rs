//! `disbatch schedule preview`

use serde_json::{Value, json};

use super::fields::{point, uses};
use super::{given, path};
use crate::api::{Client, segment};
use crate::args::{ListingOptions, PreviewOptions};
use crate::command::life::advise;
use crate::output::{Column, Cut, Screen, Table, document, plain, print, visible};

const TABLE: Table = Table {
    columns: &[
        Column { title: "Time (UTC)", cell: |time| plain(time.get("at")), cut: Cut::Never },
        Column { title: "There", cell: |time| plain(time.get("local")), cut: Cut::Never },
        Column { title: "Offset", cell: |time| plain(time.get("offset")), cut: Cut::Never },
    ],
    noun: "times",
};

/// Prints when a schedule makes its next tasks, or when one of these times would.
pub async fn run(client: &Client, options: &PreviewOptions, listing: &ListingOptions) -> anyhow::Result<()> {
    let after = options.after.as_deref().map(point);
    let answer = match &options.schedule {
        Some(schedule) => {
            let after = after.map(|after| format!("&.after={}", segment(&plain(Some(&after)))));
            let query = format!("?.limit={}{}", options.next, after.unwrap_or_default());
            client.get(&format!("{}/preview{query}", path(schedule)?), None).await
        }
        None => {
            let body = given(vec![
                ("cron", Some(json!(options.cron))),
                ("zone", options.zone.clone().map(Value::from)),
                ("calendars", uses(&options.exclude, &options.only)),
                (".limit", Some(options.next.into())),
                (".after", after),
            ]);
            client.post("/schedules/preview", &Value::Object(body)).await
        }
    };
    print(&document(&answer.map_err(advise)?, listing, |answer| text(answer, Screen::of_stdout()))?)
}

fn text(answer: &Value, screen: Screen) -> String {
    let mut text = times(answer.get("times"), screen);
    for change in answer.get("changes").and_then(Value::as_array).into_iter().flatten() {
        let part = |name: &str| visible(&plain(change.get(name)));
        text.push_str(&format!(
            "At {} UTC the offset of {} goes from {} to {}.\n",
            part("at"),
            visible(&plain(answer.get("zone"))),
            part("before"),
            part("after")
        ));
    }
    text
}

/// Times as a table.
pub fn times(times: Option<&Value>, screen: Screen) -> String {
    TABLE.render(times.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default(), screen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_changes_of_the_clock_are_told() {
        let answer = json!({
            "zone": "Europe/Berlin",
            "times": [{ "at": "2027-03-27T01:30:00", "local": "2027-03-27T02:30:00", "offset": "+01:00" }],
            "changes": [{ "at": "2027-03-28T01:00:00", "before": "+01:00", "after": "+02:00" }],
        });
        let told = text(&answer, Screen::default());
        assert!(told.contains("2027-03-27T01:30:00 | 2027-03-27T02:30:00 | +01:00 | \n"), "{told}");
        let end = "1 total times.\nAt 2027-03-28T01:00:00 UTC the offset of Europe/Berlin goes from +01:00 to +02:00.\n";
        assert!(told.ends_with(end), "{told}");
        assert!(text(&json!({}), Screen::default()).ends_with("0 total times.\n"));
    }
}
