use serde_json::{Value, json};

use super::*;

/// A manifest with this key, and with those that must be there.
///
/// # Errors
/// What is wrong with it, in words.
pub(super) fn parse(key: &str, value: &str) -> Result<Manifest, String> {
    let text = format!(r#"{{ "name": "A", "command": ["a"], "{key}": {value} }}"#);
    Manifest::parse(&text).map_err(|error| error.to_string())
}

#[test]
fn secure_parameters_are_in_no_variable_unless_that_is_asked_for() {
    let parse = |value: &str| {
        let manifest = parse("secure_params_in_environment", value);
        manifest.map(|manifest| manifest.secure_params_in_environment)
    };
    let without = Manifest::parse(r#"{ "name": "A", "command": ["a"] }"#).unwrap();
    assert!(!without.secure_params_in_environment);
    assert_eq!((parse("false"), parse("true")), (Ok(false), Ok(true)));
    let error = parse(r#""yes""#).unwrap_err();
    assert!(error.starts_with("secure_params_in_environment: invalid type"), "{error}");
}

#[test]
fn a_plugin_may_have_limits() {
    let parse = |limits: &str| parse("limits", limits).map(|manifest| manifest.limits);
    let expected = Limits { memory: Some(512 << 20), cpu_seconds: Some(60), ..Limits::default() };
    assert_eq!(parse(r#"{ "memory": "512M", "cpu_seconds": 60 }"#), Ok(expected));
    assert_eq!(parse("{}"), Ok(Limits::default()));
    let error = parse(r#"{ "memory": "a lot" }"#).unwrap_err();
    assert!(error.starts_with("limits.memory: expected a number of bytes"), "{error}");
    let error = parse(r#"{ "ram": 1 }"#).unwrap_err();
    assert!(error.contains("unknown field `ram`, expected one of `memory`"), "{error}");
    let without = Manifest::parse(r#"{ "name": "A", "command": ["a"] }"#).unwrap();
    assert_eq!(without.limits, Limits::default());
}

fn read(value: Value) -> Result<Manifest, String> {
    Manifest::from_value(value).map_err(|error| error.to_string())
}

#[test]
fn every_engine_has_a_smallest_manifest() {
    for value in [
        json!({ "name": "A", "command": ["a"] }),
        json!({ "name": "A", "engine": "perl" }),
        json!({ "name": "A", "engine": "program" }),
        json!({ "name": "A", "engine": "container", "container": { "image": "busybox" } }),
        json!({ "name": "A", "engine": "http" }),
        json!({ "name": "A", "engine": "kubernetes", "kubernetes": { "image": "busybox" } }),
    ] {
        let manifest = read(value.clone()).unwrap();
        assert_eq!(manifest.settings().is_some(), manifest.engine.adapter().is_some());
        assert_eq!(serde_json::to_value(&manifest).unwrap(), value, "what holds by default is left out");
    }
}

#[test]
fn manifests_are_read_as_they_are_written() {
    for value in [
        json!({ "name": "A", "command": ["a"], "command_in_params": true }),
        json!({ "name": "A", "command": ["a"], "warm": { "tasks": 5, "idle_s": 0.5, "folder": false } }),
        json!({ "name": "A", "command": ["a", "b"], "warm": { "tasks": 5, "memory_mb": 7, "idle_s": 0.5 },
                "limits": { "memory": 1_048_576 }, "params": { "type": "object" }, "version": "1",
                "template": { "name": "n", "params": { "a": [1] } }, "description": "d",
                "secure_params_in_environment": true, "commits": true }),
        json!({ "name": "A", "command": ["a"], "interruptible": true, "shadow": true }),
        json!({ "name": "A", "engine": "perl",
                "perl": { "class": "B::C", "lib": ["lib", "/x"], "perl": "/usr/bin/perl" } }),
        json!({ "name": "A", "engine": "program",
                "program": { "type": "mongo", "path": "./x", "args": ["-v"] } }),
        json!({ "name": "A", "engine": "container", "container": {
            "image": "i", "command": ["a"], "entrypoint": [], "env": { "A": "{{secret:b}}" },
            "mounts": [{ "source": "/a", "target": "/b", "read_only": true }], "network": "none",
            "user": "1:1", "workdir": "/w", "pull": "never", "registry_secret": "r",
            "limits": { "memory": 5_242_880, "cpus": 0.5, "pids": 9 }, "socket": "/s",
            "config": { "Cmd": ["x"] }, "config_from_params": true } }),
        json!({ "name": "A", "engine": "http", "http": {
            "url": "https://x/y", "headers": { "X-A": "b" }, "timeout": 7, "connect_retries": 0 } }),
        json!({ "name": "A", "engine": "kubernetes", "kubernetes": {
            "image": "i", "command": ["a"], "args": ["b"], "env": { "A": "b" }, "namespace": "n",
            "pod": { "spec": {} }, "image_pull_secret": "s", "service_account": "a",
            "resources": { "limits": { "cpu": "1" } }, "ttl": 60 } }),
    ] {
        let manifest = read(value.clone()).unwrap();
        assert_eq!(serde_json::to_value(&manifest).unwrap(), value);
        assert!(manifest.unknown_keys.is_empty());
    }
}

/// That each of these is refused with words that begin so.
fn assert_wrong(cases: &[(serde_json::Value, &str)]) {
    for (value, expected) in cases {
        let error = read(value.clone()).unwrap_err();
        assert!(error.starts_with(expected), "{value}: {error}");
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let cases = [
        (json!({ "name": "A" }), "command: must name a program"),
        (json!({ "name": "A", "engine": "docker" }), "engine: unknown variant `docker`, expected one of"),
        (
            json!({ "name": "A", "command": ["a"], "perl": {} }),
            "perl: is for the engine perl, and this plugin has the engine exec",
        ),
        (json!({ "name": "A", "engine": "perl", "command": ["a"] }), "command: is for the engine exec or"),
        (json!({ "name": "A", "engine": "http", "warm": true }), "warm: is for the engine exec"),
        (
            json!({ "name": "A", "engine": "perl", "command_in_params": true }),
            "command_in_params: is for the engine exec",
        ),
        (
            json!({ "name": "A", "command": ["a"], "command_in_params": true, "warm": true }),
            "command_in_params: is not to be set beside warm",
        ),
        (
            json!({ "name": "A", "engine": "perl", "perl": { "libs": [] } }),
            "perl.libs: unknown field `libs`, expected one of `class`",
        ),
        (json!({ "name": "A", "engine": "perl", "perl": { "class": "a-b" } }), "perl.class: \"a-b\" is not"),
        (json!({ "name": "A", "engine": "perl", "perl": { "class": "A:B" } }), "perl.class: \"A:B\""),
        (
            json!({ "name": "A", "engine": "program", "command": ["a"], "program": { "path": "b" } }),
            "program.path: is not to be set beside command",
        ),
        (json!({ "name": "A", "engine": "program", "program": { "type": "x" } }), "program.type: unknown"),
    ];
    assert_wrong(&cases);
}

#[test]
fn what_does_not_fit_of_a_container_or_a_service_is_named() {
    let cases = [
        (json!({ "name": "A", "engine": "container" }), "container.image: must be given"),
        (
            json!({ "name": "A", "engine": "container", "container": { "image": "i", "workdir": "w" } }),
            "container.workdir: expected an absolute path",
        ),
        (
            json!({ "name": "A", "engine": "container",
                    "container": { "image": "i", "workdir": "/work,source=/" } }),
            "container.workdir: expected an absolute path",
        ),
        (
            json!({ "name": "A", "engine": "container", "container": { "image": "i", "workdir": "/a/../b" } }),
            "container.workdir: expected an absolute path",
        ),
        (
            json!({ "name": "A", "engine": "container",
                    "container": { "image": "i", "mounts": [{ "source": "a", "target": "/b" }] } }),
            "container.mounts: expected absolute paths",
        ),
        (
            json!({ "name": "A", "engine": "container",
                    "container": { "image": "i", "limits": { "memory": "lots" } } }),
            "container.limits.memory: expected a number of bytes",
        ),
        (
            json!({ "name": "A", "engine": "container",
                    "container": { "image": "i", "limits": { "cpus": 0 } } }),
            "container.limits.cpus: expected a number of processors",
        ),
        (
            json!({ "name": "A", "engine": "container", "container": { "image": "i", "env": { "A=": "" } } }),
            "container.env: \"A=\" cannot be",
        ),
        (
            json!({ "name": "A", "engine": "http", "http": { "url": "ftp://x" } }),
            "http.url: expected an address with http",
        ),
        (json!({ "name": "A", "engine": "http", "http": { "timeout": 0 } }), "http.timeout: expected"),
        (
            json!({ "name": "A", "engine": "http", "http": { "headers": { "a b": "" } } }),
            "http.headers: \"a b\" cannot be",
        ),
        (json!({ "name": "A", "engine": "kubernetes" }), "kubernetes.image: must be given"),
    ];
    assert_wrong(&cases);
}

#[test]
fn an_image_may_come_from_elsewhere() {
    for value in [
        json!({ "name": "A", "engine": "container", "container": { "config_from_params": true } }),
        json!({ "name": "A", "engine": "container", "container": { "config": { "Image": "i" } } }),
        json!({ "name": "A", "engine": "kubernetes",
                "kubernetes": { "pod": { "spec": { "containers": [{ "image": "i" }] } } } }),
    ] {
        read(value).unwrap();
    }
}

#[test]
fn an_adapter_is_told_what_holds_by_default() {
    let settings = |value: Value| read(value).unwrap().settings().unwrap();
    let http = settings(json!({ "name": "A", "engine": "http" }));
    assert_eq!(http, json!({ "timeout": 43_200, "connect_retries": 5 }));
    let container = settings(json!({ "name": "A", "engine": "container", "container": { "image": "i" } }));
    assert_eq!(container, json!({ "image": "i", "workdir": "/work", "pull": "missing" }));
}

fn parse_template(template: &str) -> Result<Option<Template>, String> {
    parse("template", template).map(|manifest| manifest.template)
}

#[test]
fn a_template_has_a_name_parameters_and_options() {
    let template = parse_template(
        r#"{ "name": "nightly", "params": { "a": 1 }, "options": { "timeout": 60, "group": "x" } }"#,
    );
    let template = template.unwrap().unwrap();
    assert_eq!((template.name.as_str(), template.params.len()), ("nightly", 1));
    assert_eq!(
        ["timeout", "group", "grace"].map(|name| template.option(name)),
        ["60", "x", ""].map(str::to_owned)
    );
    assert_eq!(parse_template("{}"), Ok(Some(Template::default())));
    assert_eq!(parse_template("null"), Ok(None));
}

#[test]
fn what_is_no_template_is_named() {
    for (template, part) in [
        ("5", "template: "),
        (r#"{ "params": 5 }"#, "template.params: "),
        (r#"{ "parms": {} }"#, "unknown field `parms`"),
    ] {
        let error = parse_template(template).unwrap_err();
        assert!(error.contains(part), "{template}: {error}");
    }
}
