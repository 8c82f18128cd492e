use bson::doc;

use super::*;

fn config(enabled: &str) -> Balance {
    let text = format!(r#"{{"mongohost":"h","database":"d","balance":{{"enabled":{enabled}}}}}"#);
    disbatch_core::config::Config::parse(&text, std::path::Path::new("/c.json")).unwrap().balance
}

fn html(stored: Option<Document>, known: &[&str]) -> String {
    let known: Vec<String> = known.iter().map(|name| (*name).to_owned()).collect();
    let now = DateTime::from_millis(1_795_163_067_344);
    page(stored, &known, config("1"), now).render().unwrap()
}

#[test]
fn the_page_shows_times_tiers_and_how_it_goes() {
    let html = html(
        Some(doc! {
            "max_tasks": { "* 07:00": 5, "0 7:5": "9", "never": 1 },
            "queues": [["last"], ["first", "<gone>"]],
            "disabled": 1_795_163_068_i64, "status": "WARNING", "message": "unknown queue <gone>",
            "timestamp": 1_795_163_000_i64,
        }),
        &["first", "last", "free<1>"],
    );
    for part in [
        "<a href=\"/balance\" aria-current=\"page\">Balance</a>",
        "<span class=\"status busy\">WARNING</span>",
        "unknown queue &#60;gone&#62;",
        "datetime=\"2026-11-20T08:24:28Z\"",
        "value=\"07:00\"",
        "value=\"07:05\"",
        "value=\"never\"",
        "data-queue=\"&#60;gone&#62;\"",
        "no such queue",
        "data-queue=\"free&#60;1&#62;\"",
        "<svg class=\"week\"",
        "&#34;queues&#34;:[[&#34;last&#34;],[&#34;first&#34;,&#34;&#60;gone&#62;&#34;]]",
        "action=\"/ui/balance/disable\" method=\"post\"",
        "<button name=\"enable\" value=\"1\"",
    ] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    assert!(
        html.find("data-queue=\"first\"").unwrap() < html.find("data-queue=\"last\"").unwrap(),
        "the default is last"
    );
    assert!(!html.contains("<gone>") && !html.contains(" style="), "{html}");
}

#[test]
fn an_empty_database_says_what_to_do() {
    let html = html(None, &[]);
    assert!(!html.contains("name=\"enable\""), "it works: {html}");
    for part in ["Nothing has been set yet.", "There are no queues yet.", "data-revision=\"\""] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    let now = DateTime::from_millis(0);
    let off = page(None, &[], config("0"), now).render().unwrap();
    assert!(off.contains("switched off"), "{off}");
}

#[test]
fn names_and_times_are_text() {
    let nasty = "<script>'\"".repeat(1000);
    let html = html(
        Some(doc! { "queues": [[&nasty]], "max_tasks": { &nasty: 1 }, "status": &nasty, "message": &nasty }),
        &[],
    );
    let body = html.split("<main").nth(1).unwrap();
    assert!(!body.contains("<script") && body.contains("&#60;script&#62;&#39;&#34;"), "it is text");
}

#[test]
fn times_are_read_as_they_are_meant() {
    let row = |key: &str| time_row(key, 1);
    assert_eq!((row("* 7:5").time, row("6 23:59").day), ("07:05".to_owned(), "6".to_owned()));
    for odd in ["", "7 07:00", "* 24:00", "* 07:60", "07:00", "* x"] {
        assert_eq!(row(odd).odd.as_deref(), Some(odd));
    }
}

fn week(entries: &[(&str, i64)]) -> Week {
    Week::of(&entries.iter().map(|(time, most)| ((*time).to_owned(), *most)).collect::<Vec<_>>())
}

fn rows(entries: &[(&str, i64)]) -> Vec<(String, String, u64)> {
    week(entries).rows
}

#[test]
fn one_limit_holds_until_the_next_and_over_the_end_of_the_week() {
    let told = |from: &str, until: &str, limit| (from.to_owned(), until.to_owned(), limit);
    assert_eq!(
        rows(&[("2 07:00", 5), ("5 18:30", 20)]),
        [
            told("Monday 00:00", "Tuesday 07:00", 20),
            told("Tuesday 07:00", "Friday 18:30", 5),
            told("Friday 18:30", "Monday 00:00", 20),
        ]
    );
    assert_eq!(rows(&[("* 00:00", 3)]), [told("Monday 00:00", "Monday 00:00", 3)]);
    assert_eq!(rows(&[("* 07:00", 1), ("* 19:00", 2)]).len(), 15);
    assert!(rows(&[("never", 1)]).is_empty());
}

#[test]
fn the_picture_is_of_the_same() {
    let week = week(&[("1 12:00", 10), ("1 18:00", 0)]);
    assert_eq!(week.area, "M0.0 100V100.0H72.0V100zM72.0 100V8.0H108.0V100zM108.0 100V100.0H1008.0V100z");
    let html = week.render().unwrap();
    for part in
        ["viewBox=\"0 0 1008 100\"", "From 0 to 10 tasks may run.", "Monday 12:00", "<th scope=\"col\">"]
    {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    let empty = Week::of(&[]).render().unwrap();
    assert!(empty.contains("There is no time yet") && !empty.contains("NaN"), "{empty}");
    assert!(!self::week(&[("* 00:00", i64::MAX)]).area.contains("inf"));
}

fn of(fields: Value) -> (Value, Vec<(String, String)>) {
    let known = ["mail", "reports"].map(str::to_owned).into();
    let (problems, document, _) = checked(fields.as_object().unwrap(), &known);
    (document, problems.into_iter().map(|problem| (problem.at, problem.text)).collect())
}

#[test]
fn what_is_right_becomes_the_document_with_the_default_tier_first() {
    let fields = json!({
        "times": [{"day": "*", "time": "7:00", "most": "5"}, {"day": "0", "time": "23:59", "most": 0}],
        "tiers": [["mail"], []], "default": ["reports"],
    });
    let expected = json!({ "max_tasks": {"* 07:00": 5, "0 23:59": 0}, "queues": [["reports"], ["mail"]] });
    assert_eq!(of(fields), (expected, vec![]));
    let empty = json!({ "max_tasks": {}, "queues": [] });
    assert_eq!(of(json!({})), (empty.clone(), vec![]));
    assert_eq!(of(json!({ "tiers": [[]], "default": [] })), (empty, vec![]));
}

#[test]
fn what_is_wrong_is_said_where_it_is() {
    let row = |day: &str, time: &str, most: &str| json!({"day": day, "time": time, "most": most});
    let (document, problems) = of(json!({
        "times": [row("*", "", "5"), row("8", "07:00", "5"), row("1", "07:00", "-1"), row("1", "07:00", "2"),
            row("1", "7:00", "3"), row("2", "08:00", "")],
        "tiers": [["mail", "<gone>"], ["mail"]], "default": "odd",
    }));
    let places: Vec<&str> = problems.iter().map(|(at, _)| at.as_str()).collect();
    assert_eq!(
        places,
        [
            "times/0/time",
            "times/1/time",
            "times/2/most",
            "times/4/time",
            "times/5/most",
            "queues/<gone>",
            "queues/mail"
        ]
    );
    assert_eq!(document["max_tasks"], json!({ "1 07:00": 2 }));
}
