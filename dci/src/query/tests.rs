use bson::oid::ObjectId;

use super::*;

const QUEUE: &str = "6b0003bb686c8275d70dc2f1";

fn indexes() -> BTreeSet<Vec<String>> {
    ["_id", "node status queue", "node status queue _id", "queue status"]
        .iter()
        .map(|index| index.split(' ').map(str::to_owned).collect())
        .collect()
}

fn parse(fields: Value, options: Value) -> Result<Listing, HttpError> {
    let map = |value: Value| value.as_object().unwrap().clone();
    let params = Params { fields: map(fields), options: map(options) };
    Listing::parse(&params, &indexes(), None, DateTime::from_millis(100_000)).map_err(HttpError::from)
}

#[test]
fn everything_is_refused_unless_limited_or_counted() {
    for options in [json!({}), json!({"limit": 0}), json!({"limit": "-2"}), json!({"skip": "1"})] {
        let error = parse(json!({}), options).unwrap_err();
        assert!(error.to_string().starts_with("refusing to return everything"));
    }
    assert!(parse(json!({"queue": "", "status": ""}), json!({})).is_err());
    let of_all = parse(json!({"queue": "", "status": "-2"}), json!({})).unwrap().query;
    assert_eq!((of_all.filter, of_all.max_time), (doc! { "status": -2 }, Some(SEARCH_TIME)));
    let of_queue = parse(json!({"queue": QUEUE, "status": ""}), json!({})).unwrap().query;
    assert_eq!(of_queue.max_time, None, "an index has all of them");
    let error = parse(json!({"status": ""}), json!({"limit": 1})).unwrap_err();
    assert_eq!(error.to_string(), "non-indexed params given");
    assert_eq!(parse(json!({}), json!({"limit": "2"})).unwrap().query.limit, Some(2));
    assert!(parse(json!({}), json!({"count": 1})).unwrap().shape.count);
}

#[test]
fn a_negative_limit_is_a_positive_one() {
    let listing = parse(json!({"queue": QUEUE}), json!({"limit": "-2", "skip": 3})).unwrap();
    assert_eq!((listing.query.limit, listing.query.skip), (Some(2), 3));
    assert!(!listing.shape.single);
    assert!(parse(json!({"queue": QUEUE}), json!({"limit": 1})).unwrap().shape.single);
    for wrong in [json!({"limit": "abc"}), json!({"skip": -1}), json!({"skip": 1.5})] {
        assert_eq!(parse(json!({"queue": QUEUE}), wrong).unwrap_err().status(), 400);
    }
}

#[test]
fn when_tasks_were_made_is_in_their_ids() {
    let filter = |fields: Value, options: Value| parse(fields, options).map(|listing| listing.query.filter);
    let id = |text: &str| bson::oid::ObjectId::parse_str(text).unwrap();
    let options = json!({"created_since": "60s", "created_until": 100, "limit": 5});
    let between = doc! { "$gte": id("000000280000000000000000"), "$lte": id("00000063ffffffffffffffff") };
    assert_eq!(filter(json!({}), options.clone()).unwrap(), doc! { "_id": between.clone() });
    let page = json!({"created_since": "60s", "order": "id"});
    let page = parse(json!({"queue": QUEUE}), page).unwrap().page.unwrap();
    assert_eq!(page.of.created.since, Some(DateTime::from_millis(40_000)));
    let one = doc! { "$and": [{ "_id": id(QUEUE) }, { "_id": between }] };
    assert_eq!(filter(json!({"id": QUEUE}), options).unwrap(), one);
    for wrong in [json!({"created_since": "soon"}), json!({"created_until": []})] {
        assert_eq!(filter(json!({"queue": QUEUE}), wrong).unwrap_err().status(), 400);
    }
}

#[test]
fn a_search_with_operators_has_its_time() {
    let time =
        |status: Value| parse(json!({"queue": QUEUE, "status": status}), json!({})).unwrap().query.max_time;
    assert_eq!(time(json!({"$regex": "(a+)+$"})), Some(SEARCH_TIME));
    assert_eq!(parse(json!({"tags": "a"}), json!({})).unwrap().query.max_time, Some(SEARCH_TIME));
    assert_eq!([time(json!(1)), time(json!([1, "2"]))], [None, None]);
}

#[test]
fn fields_are_an_array_or_an_object_or_either_as_text() {
    let projection = |fields: Value| {
        parse(json!({"queue": QUEUE}), json!({ "fields": fields })).map(|listing| listing.query.projection)
    };
    assert_eq!(projection(json!(["status"])).unwrap(), Some(doc! { "status": 1 }));
    assert_eq!(projection(json!("[\"status\"]")).unwrap(), Some(doc! { "status": 1 }));
    assert_eq!(projection(json!("{\"status\":1,\"_id\":0}")).unwrap(), Some(doc! { "_id": 0, "status": 1 }));
    assert_eq!(projection(json!("")).unwrap(), None);
    for wrong in [json!("status"), json!(5), json!([1]), json!({"a": {"$slice": 1}}), json!({"a": "$b"})] {
        assert_eq!(projection(wrong).unwrap_err().status(), 400);
    }
    let shown = |fields: Value| projection(fields).unwrap().unwrap();
    assert_eq!(shown(json!(["has_secure_params"])), doc! { "secure_params.key": 1 });
    assert_eq!(shown(json!({"has_secure_params": true})), doc! { "secure_params.key": true });
    assert_eq!(shown(json!({"has_secure_params": 0})), doc! { "secure_params": 0 });
    for secret in [json!(["secure_params"]), json!({"secure_params": 0}), json!("[\"secure_params.data\"]")] {
        let error = projection(secret).unwrap_err().to_string();
        assert!(error.starts_with("'secure_params' is for plugins only"), "{error}");
    }
}

fn of(fields: Value) -> Result<Option<Document>, String> {
    chosen_fields(Some(&fields)).map_err(|error| error.to_string())
}

#[test]
fn fields_are_names_however_they_are_given() {
    let expected = Ok(Some(doc! { "progress": 1, "status": 1 }));
    for fields in [
        json!("status,progress"),
        json!(" progress , status,"),
        json!(["status", "progress", "status"]),
        json!("[\"status\", \"progress\"]"),
        json!(["status,progress", "id"]),
    ] {
        assert_eq!(of(fields.clone()), expected, "{fields}");
    }
    assert_eq!(of(json!("id")), Ok(Some(doc! { "_id": 1 })));
    assert_eq!(of(json!("has_secure_params")), Ok(Some(doc! { "secure_params.key": 1 })));
    assert_eq!([of(json!(null)), of(json!(""))], [Ok(None), Ok(None)]);
    assert_eq!(chosen_fields_or_status(None).unwrap(), doc! { "status": 1 });
}

#[test]
fn nothing_else_is_a_field() {
    for wrong in
        [json!("$where"), json!(5), json!([5]), json!(","), json!("[1"), json!({ "a": 1 }), json!("a\0b")]
    {
        let error = of(wrong.clone()).unwrap_err();
        assert!(error.starts_with(".fields must be"), "{wrong}: {error}");
    }
    assert!(of(json!("secure_params.data")).unwrap_err().contains("plugins only"));
    let many: Vec<String> = (0..51).map(|number| format!("f{number}")).collect();
    assert!(of(json!(many)).is_err());
}

fn displayed() -> Vec<Vec<String>> {
    shown_indexes(
        &["_id", "node status queue", "node status queue _id", "queue status"]
            .iter()
            .map(|index| index.split(' ').map(str::to_owned).collect())
            .collect(),
    )
}

#[test]
fn contained_indexes_are_not_shown() {
    assert_eq!(displayed(), [vec!["id"], vec!["node", "status", "queue", "id"], vec!["queue", "status"]]);
}

#[test]
fn fields_need_those_before_them() {
    let indexes = displayed();
    for covered in [&["id"][..], &["queue"], &["queue", "status"], &["node", "queue"], &["node", "status"]] {
        assert!(not_covered(covered, &indexes).is_empty(), "{covered:?}");
    }
    assert_eq!(not_covered(&["status"], &indexes), ["status"]);
    assert_eq!(not_covered(&["schedule"], &indexes), ["schedule"]);
    assert!(not_covered(&["schedule", "status"], &with_our_indexes(&indexes)).is_empty());
    let tagged = ["any_tags", "node", "status", "tags"];
    assert!(not_covered(&tagged, &with_our_indexes(&indexes)).is_empty());
    assert_eq!(not_covered(&["tags", "params.a"], &with_our_indexes(&indexes)), ["params.a"]);
    assert_eq!(not_covered(&["$where"], &indexes), ["$where"]);
    assert_eq!(not_covered(&["_id"], &indexes), ["_id"]);
    assert_eq!(not_covered(&["params.commands", "queue"], &indexes), ["params.commands"]);
}

const ID: &str = "6b0003bb686c8275d8013333";

fn asked(options: Value, filter: Document) -> Result<Option<PageQuery>, HttpError> {
    let options = options.as_object().unwrap().clone();
    let limit = options.get("limit").and_then(Value::as_i64);
    let params = Params { options, ..Params::default() };
    page(&params, &TaskQuery { filter, limit, ..TaskQuery::default() }, Created::default())
}

#[test]
fn a_page_is_asked_for_by_its_order_or_its_place() {
    assert_eq!(asked(json!({"limit": 5, "after": "", "order": null}), doc! {}).unwrap(), None);
    let task: TaskId = ID.parse().unwrap();
    for (options, order, position) in [
        (json!({"order": "id"}), Order::Oldest, Position::First),
        (json!({"order": "-id", "after": ID}), Order::Newest, Position::After(task)),
        (json!({"before": ID}), Order::Oldest, Position::Before(task)),
    ] {
        let page = asked(options, doc! {}).unwrap().unwrap();
        assert_eq!((page.order, page.position, page.limit), (order, position, DEFAULT_LIMIT));
    }
    for wrong in [
        json!({"order": "name"}),
        json!({"order": 1}),
        json!({"after": "x"}),
        json!({"after": 1}),
        json!({"after": ID, "before": ID}),
        json!({"order": "id", "limit": 10_001}),
    ] {
        assert_eq!(asked(wrong.clone(), doc! {}).unwrap_err().status(), 400, "{wrong}");
    }
}

#[test]
fn there_are_pages_where_an_index_has_ids_in_order() {
    let queue = ObjectId::new();
    let of = |filter| asked(json!({"order": "id"}), filter).map(|page| page.unwrap().of);
    assert_eq!(of(doc! {}).unwrap(), Selection::default());
    let all = doc! { "queue": queue, "status": { "$in": [1, 2] }, "node": "n" };
    let expected = Selection {
        statuses: Some(vec![1, 2]),
        node: Some(NodeName::new("n")),
        ..Selection::of_queue(QueueId(queue))
    };
    assert_eq!(of(all).unwrap(), expected);
    let tags = doc! { "tags": { "$all": ["a"] } };
    let tagged = of(doc! { "tags": { "$all": ["a"] }, "node": "n" }).unwrap();
    assert_eq!((tagged.tagged, tagged.node), (Some(tags), Some(NodeName::new("n"))));
    for wrong in [
        doc! { "node": "n" },
        doc! { "queue": queue, "node": "n" },
        doc! { "status": 1 },
        doc! { "queue": queue, "status": { "$gt": 1 } },
        doc! { "queue": queue, "status": "x" },
        doc! { "_id": queue },
    ] {
        assert_eq!(of(wrong.clone()).unwrap_err().status(), 400, "{wrong}");
    }
}
