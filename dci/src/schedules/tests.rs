use std::collections::BTreeSet;
use std::time::Duration;

use bson::doc;
use bson::oid::ObjectId;
use disbatch_core::secrets::new_key;

use super::*;

fn with_options(options: Value) -> Params {
    Params { options: options.as_object().unwrap().clone(), ..Params::default() }
}

#[test]
fn limits_and_revisions_are_numbers() {
    let limit = |options: Value| with_options(options).whole::<PreviewOptions>().map(|options| options.limit);
    assert_eq!(limit(json!({ "limit": "", "pretty": 1 })).unwrap(), None);
    assert_eq!(limit(json!({ "limit": "5" })).unwrap(), Some(Whole(5)));
    for wrong in [json!(0), json!(1001), json!(-1)] {
        let error = limit(json!({ "limit": wrong })).unwrap_err().to_string();
        assert_eq!(error, ".limit must be from 1 to 1000");
    }
    assert_eq!(revision(&with_options(json!({}))).unwrap(), None);
    assert_eq!(revision(&with_options(json!({ "rev": "7" }))).unwrap(), Some(7));
    for wrong in [json!("x"), json!(true), json!([])] {
        assert!(revision(&with_options(json!({ "rev": wrong }))).is_err());
    }
    let error = changed_meanwhile(4);
    assert!(error.status() == 409 && error.json().contains("\"rev\":4"), "{}", error.json());
}

#[test]
fn a_queue_is_found_within_reach_alone() {
    let queue = |tenant: &str| -> Queue {
        let id = ObjectId::from_bytes([1; 12]);
        bson::deserialize_from_document(doc! { "_id": id, "name": "mail", "tenant": tenant }).unwrap()
    };
    let id = QueueId(ObjectId::from_bytes([1; 12]));
    let reach = |queues: &[QueueId], tenants: &[&str], only: Option<&[QueueId]>| Reach::Some {
        queues: queues.iter().copied().collect(),
        tenants: tenants.iter().map(|tenant| (*tenant).to_owned()).collect(),
        only: only.map(|only| only.iter().copied().collect::<BTreeSet<_>>()),
    };
    assert!(is_within(&Reach::All, &queue("acme")));
    assert!(is_within(&reach(&[id], &[], None), &queue("acme")));
    assert!(is_within(&reach(&[], &["acme"], Some(&[id])), &queue("acme")));
    assert!(!is_within(&reach(&[], &["acme"], None), &queue("other")));
    assert!(!is_within(&reach(&[id], &[], Some(&[])), &queue("acme")));
}

fn params(fields: Value, options: Value) -> Params {
    let map = |value: Value| value.as_object().unwrap().clone();
    Params { fields: map(fields), options: map(options) }
}

fn queue() -> Queue {
    let id = ObjectId::from_bytes([1; 12]);
    bson::deserialize_from_document(doc! { "_id": id, "name": "mail", "tenant": "acme" }).unwrap()
}

fn of(before: Option<&Settings>, fields: Value) -> Result<Settings, HttpError> {
    let (params, queue) = (params(fields, json!({})), queue());
    let given = Given::read(&params)?;
    let options = before.map(|before| &before.options);
    let options = given.options(&params, queue.id, &Keys::default(), options)?;
    given.settings(before, (&queue, options), Some("alice"))
}

fn message(fields: Value) -> String {
    let error = of(None, fields).unwrap_err();
    assert_eq!(error.status(), 400);
    error.json()
}

#[test]
fn json_and_forms_say_the_same() {
    let by_json = of(
        None,
        json!({
            "name": "nightly", "description": "at night", "params": { "n": 1 }, "cron": ["0 3 * * *", "@monthly"],
            "zone": "Europe/Berlin", "gap": "skip", "fold": "last", "jitter": 30, "start": "2026-11-20T00:00:00Z",
            "calendars": [{ "name": "fairs", "use": "only" }, { "name": "holidays", "use": "exclude" }],
            "overlap": "queue", "catch_up": 3600, "options": { "timeout": 60, "max_attempts": 3 },
        }),
    );
    let by_form = of(
        None,
        json!({
            "name": "nightly", "description": "at night", "params": "{\"n\":1}", "cron": "0 3 * * *\r\n\r\n@monthly\r\n",
            "zone": "Europe/Berlin", "gap": "skip", "fold": "last", "jitter": "30", "start": "2026-11-20", "end": "",
            "calendars.only": "fairs", "calendars.exclude": ["", "holidays"], "overlap": "queue", "catch_up": "3600",
            "options.timeout": "60", "options.max_attempts": "3", "options.grace": "",
        }),
    );
    let (by_json, mut by_form) = (by_json.unwrap(), by_form.unwrap());
    // They come in the order of their names.
    by_form.spec.calendars.reverse();
    assert_eq!(by_json, by_form);
    assert_eq!((by_json.tenant.as_deref(), by_json.owner.as_deref()), (Some("acme"), Some("alice")));
    assert_eq!(by_json.options.timeout, Some(Duration::from_secs(60)));
}

#[test]
fn a_change_leaves_what_is_not_given_and_null_takes_back() {
    let before = of(
        None,
        json!({
            "name": "nightly", "cron": "@daily", "zone": "Europe/Berlin", "jitter": 5, "params": { "n": 1 },
            "options": { "timeout": 60, "grace": 5 }, "overlap": "allow", "description": "x",
        }),
    );
    let before = before.unwrap();
    assert_eq!(of(Some(&before), json!({})).unwrap(), before);
    let after = of(
        Some(&before),
        json!({
            "cron": "@hourly", "zone": null, "params": null, "description": "", "overlap": "",
            "options": { "grace": null, "max_attempts": 2 },
        }),
    );
    let after = after.unwrap();
    assert_eq!((after.spec.zone.name(), after.spec.jitter), ("UTC", Duration::from_secs(5)));
    assert_eq!((after.params, after.description.as_str(), after.overlap), (doc! {}, "", Overlap::Skip));
    assert_eq!((after.options.timeout, after.options.grace), (before.options.timeout, None));
    assert_eq!(after.options.max_attempts, Some(2));
    assert!(of(Some(&before), json!({ "name": null })).is_err(), "a name must be there");
}

#[test]
fn a_schedule_without_times_is_started_by_people_alone() {
    for nothing in
        [json!({ "name": "a" }), json!({ "name": "a", "cron": "\n" }), json!({ "name": "a", "cron": null })]
    {
        assert!(of(None, nothing).unwrap().spec.is_manual());
    }
    let before = of(None, json!({ "name": "a", "cron": "@daily" })).unwrap();
    assert!(of(Some(&before), json!({ "cron": "" })).unwrap().spec.is_manual());
}

#[test]
fn a_schedule_is_that_of_its_queues_tenant_or_of_its_own() {
    let nobodys: Queue =
        bson::deserialize_from_document(doc! { "_id": ObjectId::from_bytes([2; 12]), "name": "shared" })
            .unwrap();
    let of = |before: Option<&Settings>, queue: &Queue, fields: Value| {
        let given = Given::read(&params(fields, json!({}))).unwrap();
        given
            .settings(before, (queue, TaskOptions::default()), None)
            .map(|settings| (settings.tenant.clone(), settings))
    };
    let (tenant, own) = of(None, &nobodys, json!({ "name": "a", "tenant": "ibm" })).unwrap();
    assert_eq!(tenant.as_deref(), Some("ibm"));
    assert_eq!(of(Some(&own), &nobodys, json!({ "description": "x" })).unwrap().0.as_deref(), Some("ibm"));
    assert_eq!(of(Some(&own), &nobodys, json!({ "tenant": null })).unwrap().0, None);
    let theirs = queue();
    assert_eq!(of(Some(&own), &theirs, json!({})).unwrap().0.as_deref(), Some("acme"));
    let (_, moved) = of(Some(&own), &theirs, json!({})).unwrap();
    assert_eq!(of(Some(&moved), &nobodys, json!({})).unwrap().0.as_deref(), Some("acme"), "it stays theirs");
    let error = of(None, &theirs, json!({ "name": "a", "tenant": "ibm" })).unwrap_err();
    assert_eq!(error.to_string(), "tenant: the queue is that of another tenant");
}

#[test]
fn what_is_wrong_is_named() {
    let base = |more: Value| {
        let mut fields = json!({ "name": "a", "cron": "@daily" });
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fields
    };
    for (more, part) in [
        (json!({ "cron": "61 * * * *" }), "cron: the field minute: '61'"),
        (json!({ "cron": 5 }), "cron: "),
        (json!({ "tenant": [] }), "tenant must be"),
        (json!({ "zone": "Mars" }), "zone: 'Mars'"),
        (json!({ "jitter": "soon" }), "jitter: expected whole seconds"),
        (json!({ "start": "soon" }), "start must be a time"),
        (json!({ "calendars": "[" }), "calendars is not JSON"),
        (json!({ "name": "" }), "name must be given"),
        (json!({ "name": "new" }), "name must not be new or preview"),
        (json!({ "params": "{" }), "params is not JSON"),
        (json!({ "params": [1] }), "params must be a JSON object"),
        (json!({ "params": { "a.b": 1 } }), "keys must not be empty or contain a dot"),
        (json!({ "overlap": "never" }), "overlap must be \\\"allow\\\""),
        (json!({ "catch_up": 0.5 }), "catch_up must be whole seconds"),
        (json!({ "description": 5 }), "description must be text"),
        (json!({ "options": { "timeout": 0 } }), "options.timeout must be more than 0"),
        (json!({ "options": { "unique": "k" } }), "unknown param in options"),
        (json!({ "options": 5 }), "options must be a JSON object"),
        (json!({ "colour": "red" }), "unknown param"),
        (json!({ "calendars.never": "x" }), "unknown param"),
    ] {
        let told = message(base(more.clone()));
        assert!(told.contains(part), "{more}: {told}");
    }
}

#[test]
fn secure_parameters_stay_until_others_come_or_they_are_taken_away() {
    let (key, queue) = (new_key().unwrap(), QueueId(ObjectId::from_bytes([1; 12])));
    let keys = Keys::of(Some(key.as_str()), None).unwrap();
    let read = |options: Value, before: Option<&TaskOptions>| {
        let params = params(json!({}), options);
        let given = Given::default();
        (given.has_settings(&params), given.options(&params, queue, &keys, before).unwrap().secure_params)
    };
    let (is_change, sealed) = read(json!({ "secure_params": { "pin": 1234 } }), None);
    assert!(is_change && sealed.is_some());
    let before = TaskOptions { secure_params: sealed.clone(), ..TaskOptions::default() };
    assert_eq!(read(json!({}), Some(&before)), (false, sealed.clone()));
    assert_eq!(read(json!({ "secure_params": "" }), Some(&before)), (false, sealed));
    assert_eq!(read(json!({ "secure_params": null }), Some(&before)), (true, None));
}

#[test]
fn times_may_be_days_or_minutes() {
    let at = |text: &str| moment("from", &json!(text)).map(|at| at.timestamp_millis() / 1000).ok();
    assert_eq!(
        [at("2026-11-20"), at("2026-11-20T08:24"), at("2026-11-20 08:24")],
        [Some(1_795_132_800), Some(1_795_163_040), Some(1_795_163_040)]
    );
    assert_eq!([at("1795163067"), at("soon")], [Some(1_795_163_067), None]);
}
