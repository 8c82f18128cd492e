use bson::doc;

use super::*;

fn check(fields: Value) -> Result<Document, String> {
    let known = ["q1", "q2", "7", "a b"].map(str::to_owned).into();
    checked(fields.as_object().unwrap(), Some(&known))
}

#[test]
fn numbers_as_text_are_stored_as_numbers() {
    let fields =
        json!({"max_tasks": {"* 07:00": 1, "6 23:59": "5"}, "queues": [["q1", 7], []], "disabled": "9"});
    let stored =
        doc! { "max_tasks": { "* 07:00": 1, "6 23:59": 5 }, "queues": [["q1", "7"], []], "disabled": 9 };
    assert_eq!(check(fields).unwrap(), stored);
    let empty = json!({"max_tasks": {}, "queues": [], "disabled": null});
    assert_eq!(check(empty).unwrap(), doc! { "max_tasks": {}, "queues": [], "disabled": Bson::Null });
}

#[test]
fn it_is_not_disabled_until_a_time_that_has_passed() {
    let now = DateTime::from_millis(1_795_163_067_344);
    let of = |until: Bson| has_passed(&doc! { "disabled": until }, now);
    assert!(of(Bson::Int32(1000)) && of(Bson::Int64(1_795_163_066)));
    assert!(!of(Bson::Int64(1_795_163_067)) && !of(Bson::Int64(4_102_444_800)));
    assert!(!of(Bson::Int32(0)) && !of(Bson::Null), "nothing is meant");
    assert!(!has_passed(&doc! {}, now));
}

#[test]
fn what_was_stored_may_be_odd() {
    let of = |fields: Value| checked(fields.as_object().unwrap(), None);
    let odd = json!({"max_tasks": {"0 7:5": 1, "never": 2}, "queues": [["gone"], []]});
    let stored = doc! { "max_tasks": { "0 7:5": 1, "never": 2 }, "queues": [["gone"], []] };
    assert_eq!(of(odd).unwrap(), stored);
    for wrong in [
        json!({"max_tasks": {"never": "x"}, "queues": []}),
        json!({"max_tasks": {"nul\0": 1}, "queues": []}),
        json!({"max_tasks": {}, "queues": "x"}),
    ] {
        assert!(of(wrong.clone()).is_err(), "{wrong}");
    }
}

#[test]
fn mistakes_name_the_key() {
    let queues = |queues: Value| check(json!({"max_tasks": {}, "queues": queues})).unwrap_err();
    for wrong in [json!("q1"), json!(["q1"]), json!([[["q1"]]]), json!([["no"]]), json!([["q1"], ["q1"]])] {
        assert!(queues(wrong.clone()).starts_with("'queues' "), "{wrong}");
    }
    let max_tasks = |max: Value| check(json!({"max_tasks": max, "queues": []})).unwrap_err();
    for time in ["7 07:00", "* 24:00", "* 7:00", "07:00", "* 07:60", "*07:00", "é 07:00"] {
        assert!(max_tasks(json!({ time: 1 })).contains("must look like"), "{time}");
    }
    for number in [json!(1.1), json!(-1), json!("x"), json!(null), json!("99999999999999999999")] {
        assert!(max_tasks(json!({ "* 07:00": number })).contains("no non-negative integer"));
    }
    assert!(max_tasks(json!("foo")).starts_with("'max_tasks' must be"));
    assert_eq!(check(json!({"max_tasks": {}})).unwrap_err(), "'queues' is missing");
    let disabled = check(json!({"max_tasks": {}, "queues": [], "disabled": "abc"})).unwrap_err();
    assert!(disabled.starts_with("'disabled' must be"));
    assert!(check(json!({"foo": 1})).unwrap_err().starts_with("'foo' is unknown"));
}

fn end(fields: Value) -> Result<Option<i64>, String> {
    let now = DateTime::from_millis(1_795_163_067_344);
    until(fields.as_object().unwrap(), now).map_err(|error| error.to_string())
}

#[test]
fn the_end_is_told_in_hours_or_as_a_time() {
    assert_eq!(end(json!({"hours": "8", "until": ""})), Ok(Some(1_795_163_067 + 8 * 3600)));
    assert_eq!(end(json!({"until": "2026-11-20T08:25"})), Ok(Some(1_795_163_100)));
    assert_eq!(end(json!({"until": "2026-11-20", "at": "08:25"})), Ok(Some(1_795_163_100)));
    assert_eq!(end(json!({"until": "2026-11-21", "at": ""})), Ok(Some(1_795_219_200)));
    assert_eq!(end(json!({"until": "2026-11-20T08:25:01.000Z"})), Ok(Some(1_795_163_101)));
    assert_eq!(end(json!({"until": "1795163068"})), Ok(Some(1_795_163_068)));
    assert_eq!(end(json!({"enable": "1", "until": ""})), Ok(None));
    assert_eq!(said(None), "QueueBalance works again.");
    assert_eq!(said(Some(1_795_163_067)), "QueueBalance is disabled until 2026-11-20 08:24:27 UTC.");
}

#[test]
fn what_is_no_end_is_refused() {
    let wrong = [
        (json!({}), "say until when"),
        (json!({"until": "", "enable": "0"}), "say until when"),
        (json!({"until": "2026-11-20T08:24"}), "this time has passed"),
        (json!({"until": "soon"}), "until must be a time"),
        (json!({"until": "2026-11-21", "at": "8 PM"}), "until must be a time"),
        (json!({"hours": "0"}), "hours must be an integer"),
        (json!({"hours": "99999999999"}), "hours must be an integer"),
        (json!({"enable": "x"}), "enable must be true or false"),
    ];
    for (fields, message) in wrong {
        let error = end(fields.clone()).unwrap_err();
        assert!(error.starts_with(message), "{fields}: {error}");
    }
}
