//! What a definition from the database may ask for.

use serde_json::{Map, Value};

use crate::plugin::{Container, Manifest, ManifestError};

/// What of Docker's interface a definition may say: what the container is like inside. Names are compared to the letter, and all
/// others are refused, whatever they mean today. The engines read names without regard to case, and for them case is a matter of
/// Unicode: to forbid `HostConfig` is not enough, since `HoſtConfig` is the same to them. Nor do all keep to what Docker means: to
/// Podman a key of `Volumes` may be a folder of the host.
const OF_CONTAINERS: [&str; 12] = [
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

/// What descriptions of containers have besides, and what the adapter sets itself.
const OF_THE_ADAPTER: [&str; 6] =
    ["AttachStdin", "AttachStdout", "AttachStderr", "OpenStdin", "StdinOnce", "Tty"];

/// Why something is refused.
const OF_THE_NODE: &str = "is about the node itself: only a plugin.json in the files of the node may have it";

/// Whether a node may run what the database defines. Its own programs are for the node's files to name, and so is what of the
/// node a container gets to see.
///
/// What a pod of Kubernetes may be is for the cluster to say: a node has no say in it either.
pub(super) fn check(manifest: &Manifest) -> Result<(), ManifestError> {
    if manifest.engine.adapter().is_none() {
        let message = format!(
            "{} runs a program of the node, which only a plugin.json in the files of the node may name",
            manifest.engine
        );
        return Err(ManifestError::Invalid { path: "engine".to_owned(), message });
    }
    let wrong = manifest.container.as_ref().and_then(of_the_node);
    wrong.map_or(Ok(()), |(key, message)| {
        Err(ManifestError::Invalid { path: format!("container.{key}"), message })
    })
}

/// A key of a container that would lead to more of the node than its container engine, and why it is refused.
fn of_the_node(container: &Container) -> Option<(String, String)> {
    // All of them, so that nobody adds one without a decision.
    let Container {
        image: _,
        command: _,
        entrypoint: _,
        env: _,
        user: _,
        workdir: _,
        pull: _,
        registry_secret: _,
        limits: _,
        mounts,
        network,
        socket,
        config,
        config_from_params,
    } = container;
    let refused = [
        ("mounts", !mounts.is_empty()),
        ("socket", socket.is_some()),
        ("network", network.as_deref().is_some_and(|network| !may_be_a_network(network))),
        ("config_from_params", *config_from_params),
    ];
    if let Some((key, _)) = refused.into_iter().find(|(_, is_there)| *is_there) {
        return Some((key.to_owned(), OF_THE_NODE.to_owned()));
    }
    let unknown = unknown_key(config.as_ref()?)?;
    let message = format!("{OF_THE_NODE}. A worker may have {}", OF_CONTAINERS.join(", "));
    Some((format!("config.{unknown}"), message))
}

/// Whether this is the name of a network, which a node may lend ([`crate::config::ContainerEngine::lends`]), and not a way to
/// the network of something else: `host`, `container:..`, `ns:..`, `slirp4netns:..`.
fn may_be_a_network(network: &str) -> bool {
    let mut bytes = network.bytes();
    let begins = bytes.next().is_some_and(|first| first.is_ascii_alphanumeric());
    let goes_on = bytes.all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    begins && goes_on && !network.eq_ignore_ascii_case("host")
}

fn unknown_key(config: &Map<String, Value>) -> Option<&str> {
    let is_known = |key: &str| OF_CONTAINERS.contains(&key) || OF_THE_ADAPTER.contains(&key);
    config.keys().map(String::as_str).find(|key| !is_known(key))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(value: Value) -> Result<(), String> {
        let manifest = Manifest::from_value(value).unwrap();
        check(&manifest).map_err(|error| error.to_string())
    }

    fn container(key: &str, value: Value) -> Result<(), String> {
        let mut container = json!({ "image": "i" });
        container[key] = value;
        of(json!({ "name": "A", "engine": "container", "container": container }))
    }

    #[test]
    fn programs_of_nodes_are_not_for_the_database() {
        for value in [
            json!({ "name": "A", "command": ["sh"] }),
            json!({ "name": "A", "engine": "perl", "perl": { "class": "A" } }),
            json!({ "name": "A", "engine": "program", "program": { "path": "a" } }),
        ] {
            let error = of(value.clone()).unwrap_err();
            assert!(error.starts_with("engine: ") && error.contains("runs a program of the node"), "{error}");
        }
        assert_eq!(of(json!({ "name": "A", "engine": "http" })), Ok(()));
        let pod = json!({ "name": "A", "engine": "kubernetes", "kubernetes": { "image": "i" } });
        assert_eq!(of(pod), Ok(()));
    }

    #[test]
    fn containers_see_nothing_of_the_node() {
        for (key, value) in [
            ("mounts", json!([{ "source": "/", "target": "/host" }])),
            ("socket", json!("/run/docker.sock")),
            ("config_from_params", json!(true)),
        ] {
            let error = container(key, value).unwrap_err();
            assert!(error.starts_with(&format!("container.{key}: is about the node itself")), "{error}");
        }
        for (key, value) in [("user", json!("1000")), ("limits", json!({ "pids": 5 }))] {
            assert_eq!(container(key, value), Ok(()), "{key}");
        }
    }

    #[test]
    fn what_is_said_to_the_engine_is_on_a_list_to_the_letter() {
        let config = |key: &str, value: Value| container("config", json!({ key: value }));
        let privileged = json!({ "Privileged": true, "Binds": ["/etc:/host"] });
        for key in [
            "HostConfig",
            "hostConfig",
            // A long s and the sign for Kelvin, which are an s and a k to who compares as Unicode has it.
            "Ho\u{17f}tConfig",
            "Networ\u{212a}ingConfig",
            "NetworkingConfig",
            "Volumes",
            "MacAddress",
            "Healthcheck",
            "image",
            "",
        ] {
            for value in [privileged.clone(), Value::Null, json!({})] {
                let error = config(key, value).unwrap_err();
                assert!(error.starts_with(&format!("container.config.{key}: is about the node")), "{error}");
            }
        }
        assert_eq!(config("Cmd", json!(["a"])), Ok(()));
        assert_eq!(config("Tty", json!(false)), Ok(()));
    }

    #[test]
    fn a_network_is_a_name_and_no_way_to_another_one() {
        for network in [
            "host",
            "HOST",
            "container:other",
            "ns:/proc/1/ns/net",
            "slirp4netns:allow_host_loopback=true",
            "pasta:-T,22",
            "",
            "-x",
            "a b",
            "ho\u{17f}t",
        ] {
            let error = container("network", json!(network)).unwrap_err();
            assert!(error.starts_with("container.network: is about the node itself"), "{error}");
        }
        // Whether there is such a network for it is for the node to say.
        for network in ["none", "bridge", "batch_2.x-y"] {
            assert_eq!(container("network", json!(network)), Ok(()), "{network}");
        }
    }
}
