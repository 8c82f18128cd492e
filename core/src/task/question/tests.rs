use bson::oid::ObjectId;
use serde_json::json;

use super::*;

fn parsed(value: Value) -> Result<Question, String> {
    Question::parse(&value).map_err(|why| why.to_string())
}

fn awaiting(fields: Document) -> Awaiting {
    let mut awaiting = doc! { "title": "Go on?", "attempt": 1 };
    awaiting.extend(fields);
    let task = doc! { "_id": ObjectId::new(), "queue": ObjectId::new(), "status": -7, AWAITING: awaiting };
    Awaiting::of(&bson::deserialize_from_document(task).unwrap()).unwrap()
}

#[test]
fn what_is_wrong_with_a_question_is_named() {
    for (value, named) in [
        (json!("Go on?"), "expected an object"),
        (json!({}), "title: "),
        (json!({ "title": "  " }), "title: "),
        (json!({ "title": "x".repeat(1_001) }), "title: "),
        (json!({ "title": "t", "form": [] }), "form: "),
        (json!({ "title": "t", "form": { "type": "nothing" } }), "form: "),
        (json!({ "title": "t", "form": { "$ref": "https://elsewhere" } }), "form: "),
        (json!({ "title": "t", "form": { "title": "x".repeat(70_000) } }), "form: "),
        (json!({ "title": "t", "who": ["role:king"] }), "who: "),
        (json!({ "title": "t", "who": {} }), "who: "),
        (json!({ "title": "t", "deadline": 0 }), "deadline: "),
        (json!({ "title": "t", "deadline": "soon" }), "deadline: "),
        (json!({ "title": "t", "on_deadline": "fail" }), "on_deadline"),
        (json!({ "title": "t", "forms": {} }), "'forms' is unknown"),
    ] {
        let why = parsed(value.clone()).map(|_| "nothing".to_owned()).unwrap_or_else(|why| why);
        assert!(why.contains(named), "{value}: {why}");
    }
    let question = json!({ "title": " t ", "form": { "$ref": "#/$defs/a", "$defs": { "a": {} } },
        "who": ["ann", "role:operator"], "deadline": 60, "on_deadline": "continue" });
    let question = parsed(question).unwrap();
    assert_eq!((question.title.as_str(), question.within, question.deadline), ("t", Some(60.0), None));
    let at = parsed(json!({ "title": "t", "deadline": "2026-11-20T08:24:27Z" })).unwrap();
    assert_eq!(at.deadline.map(DateTime::timestamp_millis), Some(1_795_163_067_000));
}

#[test]
fn who_is_named_may_answer_and_else_operators() {
    let may = |who: &[&str], user, role| awaiting(doc! { "who": who }).may_be_answered_by(user, role);
    assert!(may(&[], Some("eve"), Some(Role::Operator)) && !may(&[], Some("eve"), Some(Role::Submitter)));
    assert!(!may(&[], None, None));
    assert!(may(&["ann"], Some("ann"), Some(Role::Viewer)) && !may(&["ann"], Some("eve"), Some(Role::Admin)));
    let roles = ["role:submitter", "ann"];
    assert!(may(&roles, Some("eve"), Some(Role::Submitter)) && !may(&roles, Some("eve"), Some(Role::Viewer)));
    assert!(!may(&["role:king"], Some("role:king"), Some(Role::Admin)), "a program has put that there");
    assert_eq!(awaiting(doc! {}).who_in_words(), "an operator of its queue");
    let words = awaiting(doc! { "who": ["ann", "role:admin"] }).who_in_words();
    assert_eq!(words, "ann or a user with the role admin");
}

#[test]
fn answers_fit_their_form() {
    let form = doc! { "properties": { "go": { "type": "boolean" } }, "required": ["go"] };
    let awaiting = awaiting(doc! { "form": form });
    let check = |value: Value| awaiting.check(value.as_object().unwrap());
    assert_eq!(check(json!({ "go": true })), Ok(()));
    let wrong = check(json!({ "go": "yes" })).unwrap_err();
    assert_eq!(wrong[0].pointer, "/go");
    assert!(check(json!({})).is_err());
    assert!(check(json!({ "go": true, "more": "x".repeat(70_000) })).is_err());
}

#[test]
fn a_link_is_its_owners_until_its_end() {
    let at = DateTime::from_millis;
    let token = Token::new().unwrap().in_address();
    let link = doc! { "token": token.fingerprint(), "by": "ann", "until": at(5) };
    let awaiting = awaiting(doc! { "links": [link] });
    assert_eq!(awaiting.link_of(&token, at(4)), Some("ann"));
    assert_eq!(awaiting.link_of(&token, at(5)), None);
    assert_eq!(awaiting.link_of(&Token::new().unwrap().in_address(), at(4)), None);
}
