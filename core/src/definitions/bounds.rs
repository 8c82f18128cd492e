//! What a definition from the database may ask for, and how much room there is for definitions. A web server reads all of them when
//! somebody looks at a queue, and so does each DEN when one has changed: without a bound, who may define them could end all of these
//! processes. What was put there by other means than ours has any length, and is read only as far as it fits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use bson::{Bson, Document, doc};
use disbatch_operation::operation;
use futures::TryStreamExt;
use serde_json::{Map, Value};

use super::{Definition, DefinitionError, LARGEST, MOST, MOST_BYTES, NewDefinition, Place, readable};
use crate::model::{as_text, whole_number};
use crate::plugin::{Container, Manifest, ManifestError};
use crate::store::{Store, StoreError, Stored, collect, integer};

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

/// How many bytes each definition has, by name.
type Sizes = BTreeMap<String, usize>;

/// A document has so many bytes at most besides the definition: who has changed it, and what another database has noted.
const BESIDES: usize = 16 * 1024;

/// All that are read have so many bytes at most. Those who store at the same moment may store a little more than they should.
const MOST_READ: usize = 2 * MOST_BYTES;

/// Who was said to be left out: once is enough.
static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

impl Store {
    /// Sees to it that all workers together stay within [`MOST`] and [`MOST_BYTES`] when these are stored in such a
    /// place. Who stores at the same moment is not seen, so both together may go a little beyond.
    #[operation(workers = new.len())]
    pub async fn room_for_workers(&self, new: &[NewDefinition], place: Place) -> Result<(), DefinitionError> {
        let sizes = vec![doc! { "$project": { "bytes": { "$bsonSize": "$$ROOT" } } }];
        let found = collect(self.worker_collection().aggregate(sizes)).await?;
        check_room(&found.iter().map(size).collect(), new, place != Place::Free)
    }

    /// All workers that fit, by name. One that is too large, or that is none, is logged and left out; the server does not even
    /// send what is too large.
    pub(super) async fn fitting_workers(&self) -> Result<Vec<Definition>, StoreError> {
        let mut found = self.worker_collection().aggregate(sized()).with_type::<Stored>().await?;
        let (mut workers, mut room) = (Vec::new(), MOST_READ);
        while let Some(mut row) = found.try_next().await? {
            let bytes = row.get("bytes").and_then(whole_number).and_then(|bytes| usize::try_from(bytes).ok());
            let Some(Bson::Document(document)) = row.remove("worker") else {
                leave_out(&row, &format!("it has more than {LARGEST} bytes"));
                continue;
            };
            let Some(left) = room.checked_sub(bytes.unwrap_or(MOST_READ)) else {
                leave_out(&row, "there are too many others");
                break;
            };
            room = left;
            workers.extend(readable(document));
        }
        Ok(workers)
    }
}

fn size(worker: &Document) -> (String, usize) {
    let name = worker.get("_id").map(as_text);
    let bytes = worker.get("bytes").and_then(whole_number).and_then(|bytes| usize::try_from(bytes).ok());
    (name.unwrap_or_default(), bytes.unwrap_or_default())
}

/// Whether there is room. What makes it no worse is let through: somebody may have stored more by other means.
fn check_room(stored: &Sizes, new: &[NewDefinition], replace: bool) -> Result<(), DefinitionError> {
    let mut after = stored.clone();
    for worker in new.iter().filter(|worker| replace || !stored.contains_key(worker.name.as_str())) {
        after.insert(worker.name.to_string(), worker.bytes());
    }
    if after.len() > MOST.max(stored.len()) {
        return Err(DefinitionError::TooMany(after.len()));
    }
    let bytes = |sizes: &Sizes| sizes.values().fold(0_usize, |sum, bytes| sum.saturating_add(*bytes));
    if bytes(&after) > MOST_BYTES.max(bytes(stored)) {
        return Err(DefinitionError::TooMuch(bytes(&after)));
    }
    Ok(())
}

/// Each document with its length, and only with that if it is too long.
fn sized() -> [Document; 2] {
    let bytes = || doc! { "$bsonSize": "$$ROOT" };
    let most = integer(LARGEST + BESIDES);
    let fitting = doc! { "$cond": [{ "$lte": [bytes(), most] }, "$$ROOT", Bson::Null] };
    [doc! { "$sort": { "_id": 1 } }, doc! { "$project": { "bytes": bytes(), "worker": fitting } }]
}

fn leave_out(row: &Document, why: &str) {
    let name: String =
        row.get("_id").map(ToString::to_string).unwrap_or_default().chars().take(100).collect();
    let mut said = crate::lock(&SAID);
    if said.len() < MOST && said.insert(name.clone()) {
        tracing::warn!(worker = name, "ignoring a worker: {why}");
    }
}

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
        return Err(ManifestError::invalid("engine", message));
    }
    match manifest.container.as_ref().and_then(of_the_node) {
        Some((key, message)) => Err(ManifestError::invalid(format!("container.{key}"), message)),
        None => Ok(()),
    }
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

    fn new(name: &str, bytes: usize) -> NewDefinition {
        let fields = json!({ "_id": name, "engine": "http", "description": "x".repeat(bytes) });
        NewDefinition::read(None, fields.as_object().unwrap()).unwrap()
    }

    fn stored(count: usize, bytes: usize) -> Sizes {
        (0..count).map(|n| (format!("W{n}"), bytes)).collect()
    }

    #[test]
    fn there_are_not_more_than_so_many() {
        let full = stored(MOST, 10);
        check_room(&stored(MOST - 1, 10), &[new("New", 0)], false).unwrap();
        let error = check_room(&full, &[new("New", 0)], true).unwrap_err().to_string();
        assert_eq!(error, "there may be 1000 workers, and this would make 1001");
        check_room(&full, &[new("W7", 0)], true).unwrap();
        let many = [new("W7", 0), new("New", 0)];
        assert!(matches!(check_room(&full, &many, false), Err(DefinitionError::TooMany(1_001))));
    }

    #[test]
    fn they_are_not_larger_than_so_much_together() {
        let large = LARGEST - 1_000;
        let count = MOST_BYTES / large;
        let almost = stored(count, large);
        assert!(matches!(check_room(&almost, &[new("New", large)], false), Err(DefinitionError::TooMuch(_))));
        check_room(&almost, &[new("W1", large - 1_000)], true).unwrap();
        check_room(&almost, &[new("W1", large)], false).unwrap();
        // More was put there by other means: it can become less, and not more.
        let beyond = stored(MOST + 5, large);
        check_room(&beyond, &[new("W1", 5)], true).unwrap();
        assert!(matches!(check_room(&beyond, &[new("New", 5)], true), Err(DefinitionError::TooMany(_))));
    }

    #[test]
    fn sizes_are_read_as_the_server_tells_them() {
        assert_eq!(size(&doc! { "_id": "A", "bytes": 7 }), ("A".to_owned(), 7));
        assert_eq!(size(&doc! { "_id": 5, "bytes": 9_i64 }), ("5".to_owned(), 9));
    }

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
