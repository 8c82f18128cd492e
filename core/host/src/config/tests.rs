mod json_schema;

use serde_json::json;

use super::*;

/// A configuration with these keys, and with those that must be there.
pub(super) fn parse(keys: &str) -> Result<Config, ConfigError> {
    let text = format!(r#"{{"mongohost":"h","database":"d",{keys}}}"#);
    Config::parse(&text, Path::new("/etc/disbatch/config.json"))
}

fn parse_whole(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("/etc/disbatch/config.json"))
}

#[test]
fn the_shipped_example_parses_without_unknown_keys() {
    let config = parse_whole(include_str!("../../../../config.example.json")).unwrap();
    assert!(config.unknown_keys.is_empty(), "{:?}", config.unknown_keys);
    assert_eq!(config.database, "disbatch");
}

#[test]
fn a_perl_file_is_accepted_unchanged() {
    let config = parse_whole(
        r##"{
            "mongohost": "db1:27017,db2:27017",   # two of them
            "database": "disbatch406",
            "attributes": { "ssl": { "SSL_ca_file": "/etc/ssl/certs/ca.crt", "SSL_verify_mode": 0 } },
            "auth": { "disbatchd": "a", "disbatch_web": "b", "task_runner": "c", "queuebalance": "d", "plugin": "e", },
            "plugins": [ "Disbatch::Plugin::Demo", ],
            "web_extensions": { "Disbatch::Web::Tasks": null },
            "web_root": "/etc/disbatch/htdocs/", "views_dir": "/etc/disbatch/views/",
            "task_runner": "/usr/bin/task_runner",
            "gfs": "auto", "quiet": 0, "monitoring": 1, "testing": false,
            "balance": { "enabled": 1, "log": 1, "verbose": 0, "pretend": 0 },
            "activequeues": ["6b0003bb686c8275d70dc2f1"],
            "log4perl": {
                "level": "TRACE",
                "appenders": {
                    "filelog": { "type": "Log::Log4perl::Appender::File", "layout": "[%p] %d %F{1} %L %C %c> %m %n",
                                 "args": { "filename": "/var/log/disbatchd.log" } },
                    "screenlog": { "type": "Log::Log4perl::Appender::ScreenColoredLevels", "args": { } },
                },
            },
        }"##,
    )
    .unwrap();
    assert!(config.unknown_keys.is_empty(), "{:?}", config.unknown_keys);
    assert_eq!(
        config.attributes.ssl,
        Some(Ssl { ca_file: Some("/etc/ssl/certs/ca.crt".into()), verify: false, unknown_keys: vec![] })
    );
    assert_eq!(config.log.level, Level::Trace);
    assert_eq!(config.log.file.as_deref(), Some(Path::new("/var/log/disbatchd.log")));
    assert_eq!(config.auth.password(Role::TaskRunner), Some("c"));
    assert!(config.balance.enabled.0 && config.monitoring.0 && !config.quiet.0);
    assert_eq!(config.activequeues.unwrap().len(), 1);
    assert!(config.plugins.unwrap().allows("Disbatch::Plugin::Demo"));
}

#[test]
fn null_numbers_and_text_are_what_perl_makes_of_them() {
    let sections = ["attributes", "auth", "balance", "web_extensions", "log4perl"];
    let config = parse(&sections.map(|section| format!("\"{section}\":null")).join(",")).unwrap();
    assert!(config.unknown_keys.is_empty(), "{:?}", config.unknown_keys);
    assert_eq!((config.attributes.ssl, config.auth.password(Role::Plugin)), (None, None));
    assert!(!config.balance.enabled.0 && config.balance.log.0);
    assert_eq!((config.web_extensions.len(), config.log), (0, Log::default()));
    let config =
        parse(r#""auth":{"plugin":1234,"disbatchd":null},"attributes":{"ssl":{"SSL_verify_mode":"0"}}"#)
            .unwrap();
    let passwords = [Role::Plugin, Role::Disbatchd].map(|role| config.auth.password(role));
    assert_eq!(passwords, [Some("1234"), None]);
    assert!(!config.attributes.ssl.unwrap().verify);
    for wrong in ["1.5", "[\"p\"]", "true"] {
        let error = parse(&format!(r#""auth":{{"plugin":{wrong}}}"#)).unwrap_err().to_string();
        assert!(error.ends_with("auth.plugin: expected text, or a whole number"), "{error}");
    }
}

#[test]
fn mistakes_name_the_key() {
    let cases = [
        (r#"{}"#, "mongohost and database: must be defined"),
        (r#"{"mongohost":"h"}"#, "database: must be defined"),
        (r#"{"mongohost":"h","database":7}"#, "database: invalid type: integer `7`, expected a string"),
        (
            r#"{"mongohost":"h","database":"d","balance":{"enabled":"maybe"}}"#,
            "balance.enabled: expected true, false, 1 or 0, got \"maybe\"",
        ),
        (
            r#"{"mongohost":"h","database":"d","gfs":"sometimes"}"#,
            "gfs: expected \"auto\", true or false, got \"sometimes\"",
        ),
        (
            r#"{"mongohost":"h","database":"d","activequeues":["x"]}"#,
            "activequeues[0]: 'x' is not an id: expected 24 hexadecimal digits",
        ),
        (
            r#"{"mongohost":"h","database":"d","hosts":["a.example","b.example:443"]}"#,
            "hosts[1]: expected a name or an address without scheme and port, got \"b.example:443\"",
        ),
        (r#"{"mongohost":"h","database":"d","tls":{"certificate":"/c.pem"}}"#, "tls: missing field `key`"),
        (r#"[1]"#, ".: expected an object with the keys of the configuration"),
    ];
    for (text, message) in cases {
        let error = parse_whole(text).unwrap_err().to_string();
        assert!(error.ends_with(message), "{text}: {error}");
    }
    let error = parse_whole("{\n  \"mongohost\": nope\n}").unwrap_err().to_string();
    assert!(error.contains("line 2 column"), "{error}");
}

#[test]
fn unknown_keys_are_collected_with_their_path() {
    let config =
        parse_whole(r#"{"mongohost":"h","database":"d","treads":1,"balance":{"enabeld":1}}"#).unwrap();
    assert_eq!(config.unknown_keys, ["balance.enabeld", "treads"]);
    let tls = parse(r#""tls":{"certificate":"/c.pem","key":"/k.pem","kee":1}"#).unwrap();
    assert_eq!(tls.unknown_keys, ["tls.kee"]);
    let ssl =
        r#""attributes":{"ssl":{"SSL_cert_file":"/me.pem","SSL_CA_file":"/ca.pem","SSL_verify_mode":1}}"#;
    let config = parse(ssl).unwrap();
    assert_eq!(config.unknown_keys, ["attributes.ssl.SSL_CA_file", "attributes.ssl.SSL_cert_file"]);
    let ssl = config.attributes.ssl.unwrap();
    assert_eq!((ssl.ca_file, ssl.verify, ssl.unknown_keys.len()), (None, true, 0));
}

#[test]
fn passwords_are_found_wherever_they_are() {
    let cases = [
        (json!({ "mongohost": "h" }), false),
        (json!({ "mongohost": "h", "auth": {} }), false),
        (json!({ "mongohost": "h", "auth": { "plugin": null, "disbatchd": "" } }), false),
        (json!({ "mongohost": "h", "auth": { "plugin": "p" } }), true),
        (json!({ "mongohost": "h", "auth": { "plugin": 1234 } }), true),
        (json!({ "mongohost": "h:27017,i:27017" }), false),
        (json!({ "mongohost": "mongodb://u@h:27017/?appName=a:b@c" }), false),
        (json!({ "mongohost": "mongodb://u:@h" }), false),
        (json!({ "mongohost": "mongodb://u:p@h:27017,i/?replicaSet=r" }), true),
        (json!({ "mongohost": "mongodb+srv://u:p@h" }), true),
        (json!({ "mongohost": "h", "secrets": { "key_file": "secrets.key" } }), false),
    ];
    for (config, expected) in cases {
        assert_eq!(has_passwords(&config), expected, "{config}");
    }
}

#[test]
fn who_lets_everybody_read_passwords_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    for (auth, mode, expected) in [
        (json!({ "disbatchd": "secret" }), 0o604, true),
        (json!({ "disbatchd": "secret" }), 0o640, false),
        (json!({ "disbatchd": "secret" }), 0o600, false),
        (json!({}), 0o644, false),
    ] {
        let config = json!({ "mongohost": "h", "database": "d", "auth": auth });
        fs::write(&path, config.to_string()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let exposure = Config::load(&path).unwrap().exposure();
        assert_eq!(exposure.is_some(), expected, "{config} {mode:o}");
        if let Some(text) = exposure {
            assert!(text.contains(path.to_str().unwrap()) && text.contains("chmod"), "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
    }
}
