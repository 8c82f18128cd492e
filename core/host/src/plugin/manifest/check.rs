//! What the keys of a manifest have to do with each other.

use super::{Engine, Manifest, ProgramType};

/// Whether the keys fit the engine and each other.
///
/// # Errors
/// The path of a key, and what is wrong with it.
pub(super) fn check(manifest: &Manifest) -> Result<(), (String, String)> {
    let engine = manifest.engine;
    let wrong = |key: &str, message: String| Err((key.to_owned(), message));
    let others = |of: &str| format!("is for the engine {of}, and this plugin has the engine {engine}");
    for (of, is_there) in sections(manifest) {
        if is_there && of != engine {
            return wrong(of.as_str(), others(of.as_str()));
        }
    }
    if manifest.warm.is_some() && engine != Engine::Exec {
        return wrong("warm", others(Engine::Exec.as_str()));
    }
    if manifest.command_in_params && engine != Engine::Exec {
        return wrong("command_in_params", others(Engine::Exec.as_str()));
    }
    if manifest.command_in_params && manifest.warm.is_some() {
        return wrong("command_in_params", "is not to be set beside warm".to_owned());
    }
    if manifest.commits && engine == Engine::Http {
        return wrong(
            "commits",
            "is not for the engine http: a service ends its tasks by calling back".to_owned(),
        );
    }
    for (key, is_set) in [("interruptible", manifest.interruptible), ("shadow", manifest.shadow)] {
        if is_set && !matches!(engine, Engine::Exec | Engine::Perl | Engine::Program) {
            return wrong(key, format!("is for the engines exec, perl and program, not for {engine}"));
        }
        // What a process is told when it starts holds for all tasks that it takes.
        if is_set && manifest.warm.is_some() {
            return wrong(key, "is not to be set beside warm".to_owned());
        }
    }
    if manifest.shadow && manifest.program_type() == Some(ProgramType::Handoff) {
        return wrong("shadow", "is not for a program that is a runner itself".to_owned());
    }
    match engine {
        Engine::Exec if manifest.command.is_empty() => {
            return wrong("command", "must name a program".to_owned());
        }
        Engine::Exec | Engine::Program => {}
        Engine::Perl | Engine::Container | Engine::Http | Engine::Kubernetes => {
            if !manifest.command.is_empty() {
                return wrong("command", others("exec or program"));
            }
        }
    }
    let of_section = |(key, message): (&str, String)| (format!("{engine}.{key}"), message);
    check_section(manifest).map_err(of_section)
}

fn sections(manifest: &Manifest) -> [(Engine, bool); 5] {
    [
        (Engine::Perl, manifest.perl.is_some()),
        (Engine::Program, manifest.program.is_some()),
        (Engine::Container, manifest.container.is_some()),
        (Engine::Http, manifest.http.is_some()),
        (Engine::Kubernetes, manifest.kubernetes.is_some()),
    ]
}

/// Whether the section of its engine is all right. What has to be in it is missing where there is none.
fn check_section(manifest: &Manifest) -> Result<(), (&'static str, String)> {
    match manifest.engine {
        Engine::Exec => Ok(()),
        Engine::Perl => manifest.perl.as_ref().map_or(Ok(()), super::Perl::check),
        Engine::Program => {
            manifest.program.as_ref().map_or(Ok(()), |program| program.check(!manifest.command.is_empty()))
        }
        Engine::Container => manifest.container.clone().unwrap_or_default().check(),
        Engine::Http => manifest.http.as_ref().map_or(Ok(()), super::Http::check),
        Engine::Kubernetes => manifest.kubernetes.clone().unwrap_or_default().check(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::*;

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
            (
                json!({ "name": "A", "engine": "perl", "command": ["a"] }),
                "command: is for the engine exec or",
            ),
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
            (
                json!({ "name": "A", "engine": "perl", "perl": { "class": "a-b" } }),
                "perl.class: \"a-b\" is not",
            ),
            (json!({ "name": "A", "engine": "perl", "perl": { "class": "A:B" } }), "perl.class: \"A:B\""),
            (
                json!({ "name": "A", "engine": "program", "command": ["a"], "program": { "path": "b" } }),
                "program.path: is not to be set beside command",
            ),
            (
                json!({ "name": "A", "engine": "program", "program": { "type": "x" } }),
                "program.type: unknown",
            ),
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
        let container =
            settings(json!({ "name": "A", "engine": "container", "container": { "image": "i" } }));
        assert_eq!(container, json!({ "image": "i", "workdir": "/work", "pull": "missing" }));
    }
}
