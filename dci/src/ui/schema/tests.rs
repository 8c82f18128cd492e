use super::*;

fn form(properties: Value, required: &[&str]) -> Form {
    Form::of(&json!({ "type": "object", "properties": properties, "required": required }))
}

fn html(form: &Form) -> String {
    form.fields.iter().map(|field| field.render().unwrap()).collect()
}

/// Everything that there is a control for.
fn all() -> Form {
    let properties = json!({
        "name": { "type": "string", "description": "who", "minLength": 2, "maxLength": 9, "pattern": "^[a-z-]+$" },
        "text": { "type": "string", "maxLength": 5000 },
        "day": { "type": "string", "format": "date" },
        "count": { "type": "integer", "minimum": 1, "maximum": 9, "default": 3 },
        "share": { "type": ["number", "null"], "exclusiveMinimum": 0, "multipleOf": 0.25 },
        "dry": { "type": "boolean", "default": true },
        "format": { "enum": ["webp", "<b>", 5], "default": "webp" },
        "colours": { "type": "array", "items": { "enum": ["red", "green"] } },
        "names": { "type": "array", "items": { "type": "string" }, "minItems": 2, "maxItems": 3 },
        "sizes": { "type": "array", "items": { "type": "integer", "minimum": 16 } },
        "to": { "$ref": "#/$defs/address" },
        "any": { "description": "whatever" },
        "command": { "oneOf": [{ "type": "array" }, { "type": "string" }] },
        "env": { "type": "object", "additionalProperties": { "type": "string" } },
    });
    let address = json!({ "type": "object", "required": ["city"], "properties": {
        "city": { "type": "string" }, "zip": { "type": "string" },
    } });
    let schema =
        json!({ "properties": properties, "required": ["name", "dry"], "$defs": { "address": address } });
    Form::of(&schema)
}

fn read(filled: Value) -> Result<Value, Vec<(String, String)>> {
    let read = all().read(filled.as_object().unwrap());
    let told = |problems: Vec<Problem>| problems.into_iter().map(|one| (one.pointer, one.text)).collect();
    read.map(Value::Object).map_err(told)
}

#[test]
fn every_kind_of_parameter_has_its_control() {
    let html = html(&all());
    for part in [
        "<input type=\"text\" id=\"param/name\" name=\"/name\" value=\"\" aria-describedby=\"param/name-hint\" required \
         maxlength=\"9\" minlength=\"2\" data-pattern=\"^[a-z-]+$\">",
        "who <span class=\"kind\">(text, 2 to 9 characters, matches ^[a-z-]+$)</span>",
        "<input type=\"date\" id=\"param/day\"",
        "name=\"/count\" value=\"3\" step=\"1\" aria-describedby=\"param/count-hint\" min=\"1\" max=\"9\">",
        "name=\"/share\" value=\"\" step=\"any\"",
        "number, more than 0, in steps of 0.25",
        "<option value=\"true\" selected>true</option>",
        "<option value=\"&#34;webp&#34;\" selected>webp</option>",
        "&#60;b&#62;</option>",
        "<input type=\"checkbox\" name=\"/colours\" value=\"&#34;red&#34;\"> red",
        "(list of text, 2 to 3 items)",
        "(list of integer, from 16)",
        "name=\"/to/city\"",
        "(anything)",
        "(list or text)",
        "; by default 3)",
    ] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    assert!(!html.contains("<b>") && !html.contains(" style="), "{html}");
    let city = html.split("name=\"/to/city\"").nth(1).unwrap().split('>').next().unwrap();
    assert!(!city.contains(" required"), "it is needed only if there is an address: {city}");
    assert!(
        html.find("name=\"/name\"").unwrap() < html.find("name=\"/any\"").unwrap(),
        "required ones come first"
    );
}

#[test]
fn a_filled_form_becomes_parameters_with_their_types() {
    let filled = json!({
        "/name": "ada", "/text": "a\r\nb", "/day": "2026-11-20", "/count": "7", "/share": "0.5", "/dry": "false",
        "/format": "5", "/colours": ["\"red\"", "\"green\""], "/names": "x\r\n\r\n y\n", "/sizes": "16\n320",
        "/to/city": "Bath", "/to/zip": "", "/any": "{\"a\":[1]}", "/command": "ls -l", "/env": "{\"A\":\"b\"}",
        "unknown": "is not asked for",
    });
    let expected = json!({
        "name": "ada", "text": "a\nb", "day": "2026-11-20", "count": 7, "share": 0.5, "dry": false, "format": 5,
        "colours": ["red", "green"], "names": ["x", " y"], "sizes": [16, 320], "to": { "city": "Bath" },
        "any": { "a": [1] }, "command": "ls -l", "env": { "A": "b" },
    });
    assert_eq!(read(filled).unwrap(), expected);
    let least =
        read(json!({ "/name": "ada", "/dry": "true", "/colours": "\"red\"", "/command": "true" })).unwrap();
    assert_eq!(least, json!({ "name": "ada", "dry": true, "colours": ["red"], "command": "true" }));
}

#[test]
fn what_is_wrong_is_said_of_each_field() {
    let base = |more: Value| {
        let mut filled = json!({ "/name": "ada", "/dry": "true" });
        filled.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        read(filled).unwrap_err()
    };
    for (field, given, text) in [
        ("/name", "", "must be given"),
        ("/name", "x", "must have at least 2 characters"),
        ("/name", "much too long", "must have at most 9 characters"),
        ("/count", "0", "must be at least 1"),
        ("/count", "10", "must be at most 9"),
        ("/count", "1.5", "must be an integer, and is '1.5'"),
        ("/share", "much", "must be a number, and is 'much'"),
        ("/share", "0", "must be more than 0"),
        ("/share", "0.3", "must be a multiple of 0.25"),
        ("/share", "NaN", "must be a number, and is 'NaN'"),
        ("/dry", "yes", "must be true or false"),
        ("/format", "webp", "must be one of those that there are"),
        ("/names", "one", "must have at least 2 lines"),
        ("/names", "a\nb\nc\nd", "must have at most 3 lines"),
        ("/sizes", "16\n8", "line 2 must be at least 16"),
        ("/to/zip", "BA1", "must be given"),
        ("/env", "[]", "must be object as JSON"),
    ] {
        let problems = base(json!({ field: given }));
        let place = if field == "/to/zip" { "/to/city" } else { field };
        assert_eq!(problems, [(place.to_owned(), text.to_owned())], "{field} {given}");
    }
    assert!(base(json!({ "/env": "{" }))[0].1.starts_with("must be object as JSON: "));
    assert_eq!(read(json!({})).unwrap_err().len(), 2, "all of them at once");
}

#[test]
fn schemas_that_make_no_sense_have_no_fields_and_no_end() {
    for odd in [json!(null), json!(true), json!("x"), json!({ "properties": [] }), json!({ "$ref": "#" })] {
        assert_eq!(Form::of(&odd), Form::default(), "{odd}");
    }
    let endless = json!({ "properties": { "child": { "$ref": "#" } } });
    let deep = Form::of(&endless);
    assert_eq!(deep.fields.len(), 1);
    assert!(deep.rows().len() < 10 && html(&deep).contains("(object)"));
    let lost = form(json!({ "a": { "$ref": "#/nowhere" }, "b": { "$ref": "https://example.com" } }), &[]);
    assert!(lost.fields.iter().all(|field| matches!(field.kind, Kind::Json(_))));
}

#[test]
fn a_form_has_only_so_many_fields_however_its_schema_refers_to_itself() {
    let properties: Value = (0..10).map(|n| (format!("p{n}"), json!({ "$ref": "#" }))).collect();
    let form = Form::of(&json!({ "properties": properties }));
    assert_eq!(form.fields.len(), 10);
    assert_eq!(form.rows().len(), 200, "the rest is given as JSON");
    let many: Value = (0..300).map(|n| (format!("p{n}"), json!({ "type": "string" }))).collect();
    let whole = json!({ "type": "object", "properties": many });
    assert_eq!(Form::of(&whole).fields.len(), 200);
    let within = self::form(json!({ "a": whole }), &[]);
    assert!(matches!(within.fields[0].kind, Kind::Json(_)), "an object is there as a whole or as JSON");
}

#[test]
fn multiples_are_not_left_to_browsers() {
    let form = form(
        json!({
            "five": { "type": "integer", "minimum": 1, "multipleOf": 5 }, "odd": { "type": "integer", "minimum": 0.5 },
            "plain": { "type": "integer", "minimum": 1 },
        }),
        &[],
    );
    let html = html(&form);
    for part in ["name=\"/five\" value=\"\" step=\"any\"", "name=\"/odd\" value=\"\" step=\"any\""] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    assert!(html.contains("name=\"/plain\" value=\"\" step=\"1\""), "{html}");
    let read = |five: &str| form.read(json!({ "/five": five }).as_object().unwrap());
    assert!(read("5").is_ok() && read("6").is_err());
}

#[test]
fn whatever_a_schema_says_is_text() {
    let nasty = "<script>'\"&".repeat(1000);
    let form = form(
        json!({ &nasty: { "type": "string", "description": &nasty, "default": &nasty, "pattern": "\"<" } }),
        &[],
    );
    let html = html(&form);
    assert!(!html.contains("<script") && html.contains("&#60;script&#62;&#39;&#34;&#38;"));
    let id = form.fields[0].id();
    assert!(!id.contains([' ', '<', '"', '\'']), "an id has no odd characters");
    assert_eq!(form.rows()[0].0, nasty);
}

#[test]
fn values_of_a_task_take_the_place_of_defaults() {
    let params = json!({
        "name": "ada", "count": null, "colours": ["green"], "names": ["a", "b"], "to": { "city": "Bath" },
        "any": "plain", "command": "[1]", "format": 5, "text": "two\nlines", "dry": "odd",
    });
    let filled = html(&all().with(params.as_object().unwrap()));
    for part in [
        "name=\"/name\" value=\"ada\"",
        "name=\"/count\" value=\"\"",
        "value=\"&#34;green&#34;\" checked",
        ">\na\nb</textarea>",
        "name=\"/to/city\" value=\"Bath\"",
        ">\nplain</textarea>",
        ">\n&#34;[1]&#34;</textarea>",
        "<option value=\"5\" selected>5</option>",
        ">\ntwo\nlines</textarea>",
    ] {
        assert!(filled.contains(part), "{part} is not in {filled}");
    }
    assert!(!filled.contains("<option value=\"true\" selected"), "{filled}");
}

#[test]
fn the_table_tells_what_there_is_in_objects_too() {
    let form = all();
    let rows = form.rows();
    let named = |name: &str| rows.iter().find(|row| row.0 == name).unwrap().1;
    assert_eq!((named("to.city").required, named("to.zip").required), (true, false));
    assert_eq!(named("count").words.join(", "), "integer, from 1, up to 9");
    assert_eq!(named("count").default.as_deref(), Some("3"));
    assert_eq!(named("name").description, "who");
    assert_eq!(named("format").words.join(", "), "one of \"webp\", \"<b>\", 5");
}
