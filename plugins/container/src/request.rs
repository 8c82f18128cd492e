//! What the container engine is asked to create, and the variables of that.

use std::collections::BTreeMap;
use std::time::Duration;

use disbatch_adapter::sections::{Container, Mount};
use disbatch_adapter::{CONTROL_VARIABLE, fill, without_nulls};
use serde_json::{Map, Value, json};

use crate::input::ContainerInput;
use crate::{channel, image};

/// What a task may bring where the manifest allows it to. None of it gives the container anything of its host.
const OF_TASKS: [&str; 12] = [
    "Image",
    "Cmd",
    "Entrypoint",
    "Env",
    "WorkingDir",
    "User",
    "Hostname",
    "Domainname",
    "Labels",
    "NetworkDisabled",
    "StopSignal",
    "StopTimeout",
];

/// What a description of a container has besides, and what is as this program needs it, or makes no difference here.
const OF_NOBODY: [&str; 12] = [
    "AttachStdin",
    "AttachStdout",
    "AttachStderr",
    "OpenStdin",
    "StdinOnce",
    "Tty",
    "ArgsEscaped",
    "ExposedPorts",
    "MacAddress",
    "OnBuild",
    "Shell",
    "Volumes",
];

#[derive(Debug, PartialEq)]
pub struct Create {
    pub name: String,
    pub image: String,
    pub body: Value,
}

impl Create {
    /// What the manifest says, what the task brings, and what the adapter needs, which comes before both.
    pub fn new(told: &ContainerInput, labels: &BTreeMap<&'static str, String>) -> Result<Self, String> {
        let settings = &told.worker.settings;
        let mut body = settings.config.clone().unwrap_or_default();
        let variables = variables(told, body.get("Env"))?;
        body.extend(without_nulls(json!({
            "Image": Some(&settings.image).filter(|image| !image.is_empty()),
            "Cmd": settings.command,
            "Entrypoint": settings.entrypoint,
            "User": settings.user,
        })));
        if let Some(brought) = &told.brought {
            add_brought(&mut body, brought, settings)?;
        }
        let folder = Value::from(settings.folder());
        if is_nothing(body.get("WorkingDir").unwrap_or(&Value::Null)) {
            body.insert("WorkingDir".to_owned(), folder);
        }
        body.insert("Env".to_owned(), variables.into());
        add_labels(&mut body, labels)?;
        let host = host(object(body.remove("HostConfig"), "container.config.HostConfig")?, told)?;
        body.insert("HostConfig".to_owned(), host.into());
        for (key, value) in [("Tty", false), ("OpenStdin", true), ("StdinOnce", true)] {
            body.insert(key.to_owned(), value.into());
        }
        for key in ["AttachStdin", "AttachStdout", "AttachStderr"] {
            body.insert(key.to_owned(), true.into());
        }
        let image = match body.get("Image").and_then(Value::as_str) {
            Some(image) => image::checked(image)?.to_owned(),
            None => return Err("neither the plugin's manifest nor the task names an image".to_owned()),
        };
        let name = format!("disbatch-{}-{}", told.worker.task_id(), told.worker.attempt());
        Ok(Self { name, image, body: body.into() })
    }

    /// Whether nobody has said who the user in the container is, so that it would be the image's.
    pub fn is_without_user(&self) -> bool {
        is_nothing(self.body.get("User").unwrap_or(&Value::Null))
    }

    pub fn set_user(&mut self, user: u32, group: u32) {
        self.body["User"] = format!("{user}:{group}").into();
    }

    /// The user in the container, with the group, if these are numbers.
    pub fn user(&self) -> Option<(u32, Option<u32>)> {
        let user = self.body.get("User")?.as_str()?;
        match user.split_once(':') {
            Some((user, group)) => Some((user.parse().ok()?, group.parse().ok())),
            None => Some((user.parse().ok()?, None)),
        }
    }

    pub fn memory(&self) -> Option<u64> {
        self.body.pointer("/HostConfig/Memory")?.as_u64().filter(|memory| *memory > 0)
    }
}

fn add_brought(
    body: &mut Map<String, Value>,
    brought: &Map<String, Value>,
    settings: &Container,
) -> Result<(), String> {
    for (key, value) in brought {
        if is_nothing(value) || OF_NOBODY.contains(&key.as_str()) {
            continue;
        }
        let wrong = |what: &str| Err(format!("params.Container.Config.{key}: {what}"));
        match key.as_str() {
            // These are where the others are.
            "Env" => {}
            "Labels" => {
                let mut labels = object(body.remove(key), "container.config.Labels")?;
                labels.extend(object(Some(value.clone()), "params.Container.Config.Labels")?);
                body.insert(key.clone(), labels.into());
            }
            "User" if settings.user.is_some() || body.get(key).is_some_and(|user| !is_nothing(user)) => {
                return wrong("the plugin's manifest says who the user is");
            }
            allowed if OF_TASKS.contains(&allowed) => {
                body.insert(key.clone(), value.clone());
            }
            _ => return wrong("only the plugin's manifest may set this"),
        }
    }
    Ok(())
}

/// Null, empty or false: a description of a container has many of these.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

fn object(value: Option<Value>, of: &str) -> Result<Map<String, Value>, String> {
    match value {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(object)) => Ok(object),
        Some(_) => Err(format!("{of}: expected an object")),
    }
}

fn add_labels(body: &mut Map<String, Value>, own: &BTreeMap<&'static str, String>) -> Result<(), String> {
    let mut labels = object(body.remove("Labels"), "container.config.Labels")?;
    labels.retain(|label, _| !label.starts_with("disbatch."));
    labels.extend(own.iter().map(|(label, value)| ((*label).to_owned(), Value::from(value.as_str()))));
    body.insert("Labels".to_owned(), labels.into());
    Ok(())
}

fn host(mut host: Map<String, Value>, told: &ContainerInput) -> Result<Map<String, Value>, String> {
    let settings = &told.worker.settings;
    let mut mounts = match host.remove("Mounts") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(mounts)) => mounts,
        Some(_) => return Err("container.config.HostConfig.Mounts: expected a list".to_owned()),
    };
    mounts.extend(settings.mounts.iter().map(mount));
    let folder = told.worker.work_dir.to_str().ok_or("the path of the private folder is no text")?;
    mounts.push(json!({ "Type": "bind", "Source": folder, "Target": settings.folder() }));
    host.insert("Mounts".to_owned(), mounts.into());
    let limits = settings.limits.unwrap_or_default();
    host.extend(without_nulls(json!({
        "NetworkMode": settings.network,
        "Memory": limits.memory,
        // With as much again on disk it would be no limit.
        "MemorySwap": limits.memory,
        "NanoCpus": limits.cpus.and_then(billionths),
        "PidsLimit": limits.pids,
    })));
    // The output goes to the task; the engine need not keep it besides.
    host.entry("LogConfig").or_insert_with(|| json!({ "Type": "none" }));
    host.entry("SecurityOpt").or_insert_with(|| json!(["no-new-privileges"]));
    // It is run once, and what is known of it is asked for when it has ended.
    host.remove("RestartPolicy");
    host.insert("AutoRemove".to_owned(), false.into());
    Ok(host)
}

fn mount(mount: &Mount) -> Value {
    json!({ "Type": "bind", "Source": mount.source, "Target": mount.target, "ReadOnly": mount.read_only })
}

fn billionths(cpus: f64) -> Option<u64> {
    u64::try_from(Duration::try_from_secs_f64(cpus).ok()?.as_nanos()).ok()
}

/// The variables of a container, all of them, as Docker's interface has them. Of the same name, what a runner sets comes before what the task brings, and
/// that before what the manifest says: secrets stand only where that names them.
fn variables(told: &ContainerInput, of_config: Option<&Value>) -> Result<Vec<String>, String> {
    let (settings, secrets) = (&told.worker.settings, &told.worker.secrets);
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in entries("container.config.Env", of_config)? {
        let value = fill("container.config.Env", &value, secrets)?;
        all.insert(name, value.text.to_string());
    }
    for (name, value) in &settings.env {
        let value = fill(&format!("container.env.{name}"), value, secrets)?;
        all.insert(name.clone(), value.text.to_string());
    }
    let brought = told.brought.as_ref().and_then(|brought| brought.get("Env"));
    all.extend(entries("params.Container.Config.Env", brought)?);
    all.extend(told.worker.variables.iter().map(|(name, value)| (name.clone(), value.clone())));
    let folder = settings.folder();
    all.insert("DISBATCH_WORK_DIR".to_owned(), folder.to_owned());
    all.insert(channel::VARIABLE.to_owned(), format!("{folder}/{}", channel::NAME));
    // There is no such descriptor in it.
    all.remove(CONTROL_VARIABLE);
    Ok(all.into_iter().map(|(name, value)| format!("{name}={value}")).collect())
}

/// Names and values. A name alone takes a variable of the image away with Docker, but Podman looks for it in its own environment,
/// and for `*` takes all of that.
fn entries(of: &str, list: Option<&Value>) -> Result<Vec<(String, String)>, String> {
    let wrong = || format!("{of}: expected a list of NAME=value");
    let list = match list {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(wrong()),
    };
    let split = |value: &Value| -> Result<(String, String), String> {
        let text = value.as_str().filter(|text| !text.contains('\0'));
        let (name, value) = text.and_then(|text| text.split_once('=')).ok_or_else(wrong)?;
        if name.is_empty() {
            return Err(wrong());
        }
        Ok((name.to_owned(), value.to_owned()))
    };
    list.iter().map(split).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::input::tests::told;

    fn labels() -> BTreeMap<&'static str, String> {
        BTreeMap::from([("disbatch.task", "0a".to_owned())])
    }

    fn create(settings: &Value, params: &Value) -> Result<Create, String> {
        Create::new(&told(settings, params), &labels())
    }

    /// With what the task brings.
    fn brought(settings: &Value, config: &Value) -> Result<Create, String> {
        let mut settings = settings.clone();
        settings["config_from_params"] = true.into();
        create(&settings, &json!({ "Container": { "Config": config } }))
    }

    #[test]
    fn an_image_is_enough() {
        let mut create = create(&json!({ "image": "busybox" }), &json!({})).unwrap();
        assert_eq!((create.name.as_str(), create.image.as_str()), ("disbatch-0a-3", "busybox"));
        assert!(create.body["Env"].as_array().unwrap().contains(&json!("DISBATCH_TASK_ID=0a")));
        create.body["Env"] = Value::Null;
        let expected = json!({
            "Image": "busybox", "WorkingDir": "/work", "Env": null, "Labels": { "disbatch.task": "0a" },
            "Tty": false, "OpenStdin": true, "StdinOnce": true,
            "AttachStdin": true, "AttachStdout": true, "AttachStderr": true,
            "HostConfig": {
                "Mounts": [{ "Type": "bind", "Source": "/tmp/disbatch-0a", "Target": "/work" }],
                "LogConfig": { "Type": "none" }, "SecurityOpt": ["no-new-privileges"], "AutoRemove": false,
            },
        });
        assert_eq!(create.body, expected);
        assert_eq!((create.user(), create.memory()), (None, None));
    }

    #[test]
    fn what_the_manifest_says_is_asked_for() {
        let settings = json!({
            "image": "i:1", "command": ["run", "it"], "entrypoint": ["/bin/sh", "-c"], "user": "7:8",
            "workdir": "/data", "network": "none",
            "mounts": [{ "source": "/srv", "target": "/in", "read_only": true }, { "source": "/a", "target": "/b" }],
            "limits": { "memory": 1_048_576, "cpus": 0.5, "pids": 9 },
        });
        let create = create(&settings, &json!({})).unwrap();
        let body = &create.body;
        assert_eq!((&body["Cmd"], &body["Entrypoint"]), (&json!(["run", "it"]), &json!(["/bin/sh", "-c"])));
        assert_eq!((&body["User"], &body["WorkingDir"]), (&json!("7:8"), &json!("/data")));
        let mounts = json!([
            { "Type": "bind", "Source": "/srv", "Target": "/in", "ReadOnly": true },
            { "Type": "bind", "Source": "/a", "Target": "/b", "ReadOnly": false },
            { "Type": "bind", "Source": "/tmp/disbatch-0a", "Target": "/data" },
        ]);
        let host = &body["HostConfig"];
        assert_eq!((&host["Mounts"], &host["NetworkMode"]), (&mounts, &json!("none")));
        assert_eq!((&host["Memory"], &host["MemorySwap"]), (&json!(1_048_576), &json!(1_048_576)));
        assert_eq!((&host["NanoCpus"], &host["PidsLimit"]), (&json!(500_000_000), &json!(9)));
        assert_eq!((create.user(), create.memory()), (Some((7, Some(8))), Some(1_048_576)));
    }

    #[test]
    fn what_else_dockers_interface_takes_is_passed_on_but_for_what_is_needed_here() {
        let config = json!({
            "Image": "other", "Cmd": ["x"], "Hostname": "h", "Tty": true, "OpenStdin": false,
            "WorkingDir": "/elsewhere", "Labels": { "mine": "1", "disbatch.task": "forged" },
            "HostConfig": {
                "RestartPolicy": { "Name": "always" }, "AutoRemove": true, "Privileged": true,
                "SecurityOpt": [], "LogConfig": { "Type": "journald" },
                "Mounts": [{ "Type": "tmpfs", "Target": "/t" }], "Ulimits": [{ "Name": "nofile", "Soft": 9, "Hard": 9 }],
            },
        });
        let create = create(&json!({ "image": "i", "config": config }), &json!({})).unwrap();
        let body = &create.body;
        assert_eq!(
            (create.image.as_str(), &body["Cmd"], &body["Hostname"]),
            ("i", &json!(["x"]), &json!("h"))
        );
        assert_eq!((&body["Tty"], &body["OpenStdin"]), (&json!(false), &json!(true)));
        assert_eq!(body["WorkingDir"], "/elsewhere");
        assert_eq!(body["Labels"], json!({ "mine": "1", "disbatch.task": "0a" }));
        let host = &body["HostConfig"];
        assert_eq!((&host["RestartPolicy"], &host["AutoRemove"]), (&Value::Null, &json!(false)));
        assert_eq!((&host["Privileged"], &host["SecurityOpt"]), (&json!(true), &json!([])));
        assert_eq!(
            (&host["LogConfig"]["Type"], &host["Ulimits"][0]["Soft"]),
            (&json!("journald"), &json!(9))
        );
        assert_eq!(host["Mounts"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_task_may_bring_what_its_container_is_like_and_nothing_of_the_host() {
        let described = json!({
            "Image": "theirs:2", "Cmd": ["y"], "Env": ["A=2"], "Labels": { "who": "they" }, "StopTimeout": 5,
            "Tty": true, "Volumes": { "/v": {} }, "Entrypoint": null, "User": "", "OnBuild": [], "HostConfig": {},
        });
        let settings = json!({ "image": "i", "command": ["x"], "entrypoint": ["e"], "user": "7" });
        let create = brought(&settings, &described).unwrap();
        let body = &create.body;
        assert_eq!((create.image.as_str(), &body["Cmd"]), ("theirs:2", &json!(["y"])));
        assert_eq!((&body["Entrypoint"], &body["User"]), (&json!(["e"]), &json!("7")));
        assert_eq!(
            (&body["Labels"]["who"], &body["Labels"]["disbatch.task"]),
            (&json!("they"), &json!("0a"))
        );
        assert!(body["Env"].as_array().unwrap().contains(&json!("A=2")));
        assert_eq!((&body["Tty"], &body["Volumes"]), (&json!(false), &Value::Null));
        let refused = |config: Value| brought(&settings, &config).unwrap_err();
        for (config, expected) in [
            (json!({ "HostConfig": { "Privileged": true } }), "HostConfig: only the plugin's manifest may"),
            (json!({ "Binds": ["/:/host"] }), "Binds: only the plugin's manifest may"),
            (json!({ "NetworkingConfig": { "x": 1 } }), "NetworkingConfig: only the plugin's manifest may"),
            (json!({ "User": "0" }), "User: the plugin's manifest says who the user is"),
            (json!({ "Labels": "x" }), "Labels: expected an object"),
            (json!({ "Env": "x" }), "Env: expected a list of NAME=value"),
        ] {
            let why = refused(config);
            assert!(why.starts_with(&format!("params.Container.Config.{expected}")), "{why}");
        }
    }

    #[test]
    fn a_task_brings_no_user_where_the_manifest_has_one_anywhere() {
        let of = |user: &str| json!({ "image": "i", "config": { "User": user } });
        let why = brought(&of("7"), &json!({ "User": "0" })).unwrap_err();
        assert_eq!(why, "params.Container.Config.User: the plugin's manifest says who the user is");
        assert_eq!(brought(&of(""), &json!({ "User": "5" })).unwrap().body["User"], "5");
    }

    #[test]
    fn without_an_image_there_is_no_container() {
        for settings in [json!({}), json!({ "config": { "Image": 5 } })] {
            let why = create(&settings, &json!({})).unwrap_err();
            assert_eq!(why, "neither the plugin's manifest nor the task names an image");
        }
        assert_eq!(brought(&json!({}), &json!({ "Image": "x" })).unwrap().image, "x");
        assert!(brought(&json!({}), &json!({ "Image": "a b" })).is_err());
        let wrong = json!({ "image": "i", "config": { "HostConfig": { "Mounts": {} } } });
        assert_eq!(
            create(&wrong, &json!({})).unwrap_err(),
            "container.config.HostConfig.Mounts: expected a list"
        );
    }

    #[test]
    fn a_user_is_only_chosen_where_nobody_has_said_one() {
        let mut plain = create(&json!({ "image": "i", "config": { "User": "" } }), &json!({})).unwrap();
        assert!(plain.is_without_user());
        plain.set_user(7, 8);
        assert_eq!((plain.is_without_user(), &plain.body["User"]), (false, &json!("7:8")));
        for said in [json!({ "image": "i", "user": "0" }), json!({ "image": "i", "config": { "User": "u" } })]
        {
            assert!(!create(&said, &json!({})).unwrap().is_without_user(), "{said}");
        }
        assert!(!brought(&json!({ "image": "i" }), &json!({ "User": "5" })).unwrap().is_without_user());
    }

    #[test]
    fn only_numbers_are_known_as_users_here() {
        for (user, expected) in [
            ("7", Some((7, None))),
            ("7:g", Some((7, None))),
            ("u", None),
            ("", None),
            ("7:8", Some((7, Some(8)))),
        ] {
            let create = create(&json!({ "image": "i", "user": user }), &json!({})).unwrap();
            assert_eq!(create.user(), expected, "{user}");
        }
    }

    fn of(settings: &Value, params: &Value) -> Result<Vec<String>, String> {
        let told = told(settings, params);
        let of_config = told.worker.settings.config.as_ref().and_then(|config| config.get("Env")).cloned();
        variables(&told, of_config.as_ref())
    }

    #[test]
    fn a_container_finds_the_variables_of_its_task_and_its_own() {
        let expected = [
            "DISBATCH_ATTEMPT=3",
            "DISBATCH_CONTROL=/work/.disbatch-control",
            "DISBATCH_NODE=n1",
            "DISBATCH_TASK_ID=0a",
            "DISBATCH_WORK_DIR=/work",
            "JOB_ID=j",
        ];
        assert_eq!(of(&json!({ "image": "i" }), &json!({})).unwrap(), expected);
        let settings = json!({
            "env": { "A": "1", "JOB_ID": "x", "B": "=" }, "workdir": "/data/",
            "config": { "Env": ["A=0", "C=3", "PATH="] }
        });
        let variables = of(&settings, &json!({})).unwrap();
        for expected in ["A=1", "B==", "C=3", "PATH=", "JOB_ID=j", "DISBATCH_WORK_DIR=/data"] {
            assert!(variables.contains(&expected.to_owned()), "{expected}: {variables:?}");
        }
        assert_eq!(variables.len(), 10);
    }

    #[test]
    fn secrets_stand_where_the_manifest_names_them_and_nowhere_else() {
        let settings = json!({
            "env": { "A": "x{{secret:token}}y{{ secret:token }}{{secret: token }}" },
            "config": { "Env": ["B={{secret:token}}"] }, "config_from_params": true
        });
        let params = json!({ "Container": { "Config": { "Env": ["C={{secret:token}}"] } } });
        let variables = of(&settings, &params).unwrap();
        for expected in ["A=xhorsey{{ secret:token }}horse", "B=horse", "C={{secret:token}}"] {
            assert!(variables.contains(&expected.to_owned()), "{expected}: {variables:?}");
        }
        let error = |settings: Value| of(&settings, &json!({})).unwrap_err();
        let missing = error(json!({ "env": { "A": "{{secret:other}}" } }));
        assert_eq!(missing, "container.env.A: the plugin has no secret 'other' here");
        assert_eq!(error(json!({ "env": { "A": "{{secret:x" } })), "container.env.A: {{secret: without }}");
    }

    #[test]
    fn what_is_no_variable_is_refused() {
        for list in [
            json!("A=1"),
            json!([1]),
            json!([""]),
            json!(["=1"]),
            json!(["A=\0"]),
            json!(["A"]),
            json!(["*"]),
        ] {
            let error = of(&json!({ "config": { "Env": list } }), &json!({})).unwrap_err();
            assert_eq!(error, "container.config.Env: expected a list of NAME=value");
        }
    }
}
