//! Nodes, and how they are doing.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Oid;

/// A node: a machine with a DEN.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "_id": {"$oid": "6b0003b956635706337b691a"}, "id": "6b0003b956635706337b691a",
    "node": "worker1", "maxthreads": 8, "timestamp": 1_795_163_066_819_i64,
})))]
pub struct Node {
    #[serde(rename = "_id")]
    pub oid: Oid,
    /// The same as text.
    pub id: String,
    /// Host name.
    pub node: Value,
    /// When its DEN was last at work, in milliseconds since 1970.
    pub timestamp: Option<Value>,
    /// How many tasks may run on it at once; null for no limit. As stored.
    pub maxthreads: Option<Value>,
    /// What its host was like at that time, with `.details`.
    pub stats: Option<NodeStats>,
    /// How it is doing, with `.details`: `alive`, `draining`, `stopped`, `dead`, or `gone` for one of Perl's.
    pub state: Option<String>,
    /// How many tasks are claimed or running in its name, with `.details`, whichever DEN has started them; those that web services work on are not.
    pub running: Option<u64>,
    /// The release of its DEN, with `.details`.
    pub version: Option<String>,
    /// What it is labelled with, with `.details`.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub labels: Option<Map<String, Value>>,
    /// Where its host is to be reached, with `.details`.
    pub addresses: Option<NodeAddresses>,
    /// Another DEN that uses the same name, with `.details`: its `instance`. Each needs a name of its own.
    pub rival: Option<String>,
    /// What was run when it died, with `.details`: `by` which node, and its `outcome`.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub hook: Option<Map<String, Value>>,
    /// How it can run plugins (`exec`, `container` ..), with `.details`.
    pub engines: Option<Vec<String>>,
    /// The versions of its plugins that say one, as `Name@version`, with `.details`.
    pub plugin_versions: Option<Vec<String>>,
    /// Plugins that it cannot run, with `.details`.
    pub plugin_problems: Option<Vec<PluginProblem>>,
}

/// Where the host of a node is to be reached.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"private": ["10.0.0.5"], "public": ["203.0.113.9"]})))]
pub struct NodeAddresses {
    /// Addresses of its own network.
    pub private: Vec<String>,
    /// All others, and names.
    pub public: Vec<String>,
}

/// A plugin that a node cannot run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "plugin": "My::Report", "why": "/etc/disbatch/plugins/report/plugin.json: expected value at line 3 column 1",
})))]
pub struct PluginProblem {
    /// Its name; missing if that is not known, as its manifest cannot be read.
    pub plugin: Option<String>,
    /// The file or program, and what is wrong with it.
    pub why: String,
}

/// What the host of a node is like. What its system does not tell is missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "cpus": 4, "load": 0.52, "memory": 8_342_396_928_i64, "memory_available": 4_108_640_256_i64,
})))]
pub struct NodeStats {
    /// The load average of one minute.
    pub load: Option<f64>,
    /// Processors.
    pub cpus: Option<u64>,
    /// Bytes.
    pub memory: Option<u64>,
    /// How much of it could be given to new processes without swapping: bytes.
    pub memory_available: Option<u64>,
}
