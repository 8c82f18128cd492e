//! What schemas say of values.

use serde_json::json;

use super::*;

fn soon() -> Instant {
    Instant::now() + LONGEST_CHECK
}

fn schema(schema: &Value) -> Schema {
    Schema::compile(schema).unwrap()
}

/// What is wrong, each as `pointer text`.
fn problems(of: &Value, value: &Value) -> Vec<String> {
    match schema(of).check(value, soon()) {
        Ok(()) => Vec::new(),
        Err(Wrong::Problems(all)) => all.iter().map(|one| format!("{} {}", one.pointer, one.text)).collect(),
        Err(Wrong::TooLong) => vec!["too long".to_owned()],
    }
}

#[test]
fn all_mistakes_are_told_with_their_place() {
    let of = json!({
        "type": "object", "required": ["n", "to"], "additionalProperties": false,
        "properties": {
            "n": { "type": "integer", "minimum": 1 },
            "mode": { "enum": ["fast", "slow"] },
            "to": { "type": "object", "properties": { "city/town": { "type": "string", "minLength": 1 } } },
            "list": { "type": "array", "items": { "type": "number" }, "uniqueItems": true },
        },
    });
    assert!(
        problems(&of, &json!({ "n": 1, "to": { "city/town": "B" }, "mode": "fast", "list": [1, 2.5] }))
            .is_empty()
    );
    let wrong = json!({ "n": 0, "mode": "zzz", "to": { "city/town": "" }, "list": ["x", 1, 1.0], "modes": 1, "colour": 2 });
    assert_eq!(
        problems(&of, &wrong),
        [
            "/colour is unknown",
            "/list/0 must be of type number, and is string",
            "/list must not have the same item twice",
            "/mode must be one of \"fast\", \"slow\"",
            "/modes is unknown: did you mean mode?",
            "/n must be at least 1",
            "/to/city~1town must have at least 1 character",
        ]
    );
    assert_eq!(
        problems(&of, &json!({ "n": "1" })),
        ["/to must be given", "/n must be of type integer, and is string"]
    );
    assert_eq!(problems(&of, &json!([])), [" must be of type object, and is array"]);
}

#[test]
fn no_more_than_twenty_are_told() {
    let of = json!({ "items": { "type": "string" } });
    assert_eq!(problems(&of, &json!(vec![1; 500])).len(), MOST_PROBLEMS);
    let of = json!({ "required": (0..50).map(|n| format!("p{n}")).collect::<Vec<_>>() });
    assert_eq!(problems(&of, &json!({})).len(), MOST_PROBLEMS);
}

/// Each has a value that fits, and one that does not.
fn assert_understood(rows: impl IntoIterator<Item = (Value, Value, Value)>) {
    for (of, right, wrong) in rows {
        assert!(problems(&of, &right).is_empty(), "{of} is to take {right}: {:?}", problems(&of, &right));
        assert_eq!(problems(&of, &wrong).len(), 1, "{of} is to refuse {wrong}");
    }
}

#[test]
fn keywords_of_values_and_lists_are_understood() {
    assert_understood([
        (json!({ "type": ["string", "null"] }), json!(null), json!(1)),
        (json!({ "type": "integer" }), json!(5.0), json!(5.5)),
        (json!({ "const": { "a": [1] } }), json!({ "a": [1.0] }), json!({ "a": [2] })),
        (json!({ "maximum": 5 }), json!(5), json!(5.1)),
        (json!({ "exclusiveMinimum": 5 }), json!(6), json!(5)),
        (json!({ "minimum": 5, "exclusiveMinimum": true }), json!(6), json!(5)),
        (json!({ "maximum": 5, "exclusiveMaximum": true }), json!(4), json!(5)),
        (json!({ "multipleOf": 0.1 }), json!(0.3), json!(0.35)),
        (json!({ "multipleOf": 7 }), json!(21), json!(22)),
        (json!({ "maxLength": 2 }), json!("öö"), json!("ööö")),
        (json!({ "pattern": "^\\d{2}$" }), json!("42"), json!("٤٢")),
        (json!({ "pattern": "b+" }), json!("abbc"), json!("ac")),
        (json!({ "prefixItems": [{ "type": "string" }], "items": false }), json!(["a"]), json!(["a", 1])),
        (json!({ "items": [{ "type": "string" }], "additionalItems": false }), json!(["a"]), json!(["a", 1])),
        (json!({ "contains": { "const": 1 } }), json!([2, 1]), json!([2])),
        (json!({ "contains": { "const": 1 }, "maxContains": 1 }), json!([2, 1]), json!([1, 1])),
        (json!({ "minItems": 1, "maxItems": 2 }), json!([1]), json!([1, 2, 3])),
    ]);
}

#[test]
fn keywords_of_objects_and_of_schemas_are_understood() {
    assert_understood([
        (
            json!({ "patternProperties": { "^x": { "type": "integer" } } }),
            json!({ "y": "a" }),
            json!({ "x": "a" }),
        ),
        (json!({ "additionalProperties": { "type": "integer" } }), json!({ "y": 1 }), json!({ "y": "a" })),
        (json!({ "propertyNames": { "maxLength": 1 } }), json!({ "y": 1 }), json!({ "yy": 1 })),
        (json!({ "maxProperties": 1 }), json!({ "y": 1 }), json!({ "y": 1, "z": 2 })),
        (json!({ "dependentRequired": { "a": ["b"] } }), json!({ "b": 1 }), json!({ "a": 1 })),
        (json!({ "dependencies": { "a": ["b"] } }), json!({ "a": 1, "b": 1 }), json!({ "a": 1 })),
        (json!({ "dependentSchemas": { "a": { "required": ["b"] } } }), json!({}), json!({ "a": 1 })),
        (json!({ "allOf": [{ "minimum": 1 }, { "maximum": 2 }] }), json!(2), json!(3)),
        (json!({ "anyOf": [{ "const": 1 }, { "type": "string" }] }), json!("x"), json!(2)),
        (json!({ "oneOf": [{ "minimum": 1 }, { "maximum": 5 }] }), json!(7), json!(3)),
        (json!({ "not": { "type": "null" } }), json!(1), json!(null)),
        (json!({ "anyOf": [{ "minItems": 1 }, { "type": "null" }] }), json!([1]), json!([])),
        (json!({ "$ref": "#/$defs/a", "$defs": { "a": { "maxItems": 1 } } }), json!([1]), json!([1, 2])),
        (
            json!({ "if": { "minimum": 5 }, "then": { "multipleOf": 2 }, "else": { "maximum": 3 } }),
            json!(6),
            json!(7),
        ),
        (
            json!({ "if": { "minimum": 5 }, "then": { "multipleOf": 2 }, "else": { "maximum": 3 } }),
            json!(2),
            json!(4),
        ),
        (json!({ "$defs": { "a/b": { "type": "null" } }, "$ref": "#/$defs/a~1b" }), json!(null), json!(1)),
        (json!({ "$defs": { "a b": { "type": "null" } }, "$ref": "#/$defs/a%20b" }), json!(null), json!(1)),
        (
            json!({ "$defs": { "a": { "$anchor": "here", "type": "null" } }, "$ref": "#here" }),
            json!(null),
            json!(1),
        ),
        (
            json!({ "$id": "https://x/s.json", "$defs": { "a": { "type": "null" } }, "$ref": "https://x/s.json#/$defs/a" }),
            json!(null),
            json!(1),
        ),
        (
            json!({ "properties": { "next": { "$ref": "#" }, "n": { "type": "integer" } } }),
            json!({ "next": { "next": {} } }),
            json!({ "next": { "next": { "n": "x" } } }),
        ),
    ]);
    assert!(problems(&json!(true), &json!(1)).is_empty());
    assert_eq!(problems(&json!(false), &json!(1)), [" is not allowed"]);
    // A reference is alone in early drafts.
    let old = json!({ "$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/a", "type": "null", "definitions": { "a": true } });
    assert!(problems(&old, &json!(1)).is_empty());
}

#[test]
fn what_cannot_be_used_is_named() {
    for (of, message) in [
        (json!(5), "/: expected a schema: an object, true or false"),
        (json!({ "type": "text" }), "/type: expected the name of a type, or a list of them"),
        (json!({ "properties": { "a": { "minimum": "1" } } }), "/properties/a/minimum: expected a number"),
        (
            json!({ "properties": { "a": { "minLength": -1 } } }),
            "/properties/a/minLength: expected a whole number from 0",
        ),
        (json!({ "required": "a" }), "/required: expected a list of names"),
        (
            json!({ "$ref": "https://example.com/s.json" }),
            "/$ref: 'https://example.com/s.json' is not in this schema",
        ),
        (json!({ "$ref": "file:///etc/passwd" }), "/$ref: 'file:///etc/passwd' is not in this schema"),
        (json!({ "$ref": "other.json#/a" }), "/$ref: 'other.json#/a' is not in this schema"),
        (
            json!({ "items": { "$ref": "#/$defs/nothing" } }),
            "/items/$ref: '#/$defs/nothing' is not in this schema",
        ),
        (json!({ "description": "x".repeat(LARGEST) }), "the schema has more than"),
        (json!({ "allOf": vec![json!({ "pattern": "a" }); 201] }), "the schema has more than"),
        (json!({ "anyOf": vec![json!(true); 9_000] }), "the schema has more than"),
    ] {
        let error = Schema::compile(&of).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
    // What has no linear time forbids nothing, and nor does what is too large.
    for pattern in ["^(?=a)", "(a)\\1", "((a{99}){99}){99}"] {
        assert!(problems(&json!({ "pattern": pattern }), &json!("b")).is_empty(), "{pattern}");
    }
}

/// Each of these would keep a validator without an end busy for longer than anybody lives.
#[test]
fn nothing_takes_long() {
    let doubled: Value = (0..60).fold(json!({ "a": { "type": "null" } }), |mut defs, n| {
        let below = if n == 0 { "#/$defs/a".to_owned() } else { format!("#/$defs/d{}", n - 1) };
        defs[format!("d{n}")] = json!({ "anyOf": [{ "$ref": below }, { "$ref": below }] });
        defs
    });
    let twice = json!({ "$defs": doubled, "$ref": "#/$defs/d59" });
    let by_value = json!({ "anyOf": [{ "properties": { "a": { "$ref": "#" } } }, { "required": ["b"], "properties": { "a": { "$ref": "#" } } }], "not": { "const": 1 } });
    let deep = (0..100).fold(json!(1), |inner, _| json!({ "a": inner }));
    let itself = json!({ "allOf": [{ "$ref": "#" }] });
    for (of, value) in [(&twice, json!(1)), (&by_value, deep), (&itself, json!({}))] {
        let began = Instant::now();
        let until = began + Duration::from_millis(200);
        let checked = schema(of).check(&value, until);
        assert!(checked.is_err(), "{of}");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
    let long = "a".repeat(LARGEST);
    assert_eq!(problems(&json!({ "pattern": "(a|a)*b" }), &json!(long)).len(), 1);
    let many: Vec<Value> = (0..50_000).map(Value::from).collect();
    assert!(problems(&json!({ "uniqueItems": true }), &json!(many)).is_empty());
}

#[test]
fn steps_get_the_parameters_of_the_task_and_their_own() {
    use bson::doc;
    use disbatch_documents::{PluginName, Step};

    use crate::plugin::Manifest;

    let manifest = |name: &str, params: Value| {
        Manifest::from_value(json!({ "name": name, "command": ["a"], "params": params })).unwrap()
    };
    let manifests = [
        manifest("A", json!({ "required": ["a"], "properties": { "a": { "type": "integer" } } })),
        manifest("B", json!({ "required": ["b"] })),
        manifest("Odd", json!({ "$ref": "https://elsewhere" })),
    ];
    let schemas = Schemas::of(&manifests);
    let [a, b, odd, other] = ["A", "B", "Odd", "Other"].map(|name| name.parse::<PluginName>().unwrap());
    assert_eq!(schemas.unusable().keys().collect::<Vec<_>>(), [&odd]);
    let of = |plugin: &PluginName, steps: &[Step], params: bson::Document| {
        let of = OfTask { plugin: Some(plugin), steps };
        check_task(&schemas, of, &as_plugins_get(&params), soon()).map_err(|misfit| misfit.to_string())
    };
    assert_eq!(of(&a, &[], doc! { "a": 5_i64 }), Ok(()));
    let error = of(&a, &[], doc! { "a": "x" }).unwrap_err();
    assert_eq!(
        error,
        "params do not fit the schema of the plugin A: /a must be of type integer, and is string"
    );
    assert_eq!((of(&odd, &[], doc! {}), of(&other, &[], doc! {})), (Ok(()), Ok(())));
    let step =
        |plugin: Option<&PluginName>, params| Step { name: "x".into(), plugin: plugin.cloned(), params };
    let steps = [step(None, doc! { "a": 1 }), step(Some(&b), doc! {})];
    assert_eq!(of(&a, &steps, doc! { "b": 1 }), Ok(()));
    let error = of(&a, &steps, doc! {}).unwrap_err();
    assert_eq!(error, "params of step 2 do not fit the schema of the plugin B: /b must be given");
}
