//! Things by their names, with the pages that they have: `{{ ui::link(thing) }}` in a template, see macros.html.

use disbatch_core::accounts::Role;
use disbatch_core::model::QueueId;

use crate::access::viewer;
use crate::ui::bulk::encoded;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    pub name: String,
    /// None: it has no page.
    pub address: Option<String>,
}

impl Link {
    pub fn to(name: impl Into<String>, address: impl Into<String>) -> Self {
        Self { name: name.into(), address: Some(address.into()) }
    }

    /// What has no page.
    pub fn nowhere(name: impl Into<String>) -> Self {
        Self { name: name.into(), address: None }
    }

    /// A queue that rights or rules are about, by the name that it has. `None`: it is gone.
    pub fn queue(queue: QueueId, name: Option<&String>) -> Self {
        match name {
            Some(name) => Self::to(format!("Queue {name}"), format!("/queues/{queue}")),
            None => Self::nowhere(format!("Queue {queue}, which is not there")),
        }
    }

    /// Pages of nodes are for those who see all queues.
    pub fn node(name: &str) -> Self {
        let address = viewer::may(Role::Viewer).then(|| format!("/nodes/{}", encoded(name)));
        Self { name: name.to_owned(), address }
    }
}
