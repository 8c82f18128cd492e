//! Containers that nobody looks after any more, as their adapters were killed. They are known by their labels.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use disbatch_adapter::note;
use tokio::time::sleep;

use crate::api::{Engine, Error, Listed, Signposts, is_usable};
use crate::input::ContainerInput;
use crate::labels::{Process, namespace};
use crate::{TidyOptions, labels};

/// How often it is tried to remove the container of an earlier attempt: engines that are busy refuse what they do the next
/// time.
const TRIES: u32 = 5;

const TRY_AGAIN: Duration = Duration::from_millis(500);

/// From where it is looked for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Here {
    boot: String,
    /// The processes that can be seen.
    namespace: String,
    node: Option<String>,
    /// The database that it works for, if that is known.
    database: Option<String>,
}

impl Here {
    /// This process, which works for this node and database.
    pub fn new(this: &Process, node: Option<String>, database: Option<String>) -> Self {
        let node = node.filter(|node| !node.is_empty());
        Self { boot: this.boot.clone(), namespace: namespace(), node, database }
    }

    /// Whether a container with these labels has lost its adapter.
    ///
    /// Another process is only known to have ended if it could be seen here. An engine may have containers of other
    /// machines, and of nodes that are in containers themselves: of these, those are lost that this node had before it
    /// was started anew.
    fn is_left(&self, labels: &BTreeMap<String, String>, lives: impl Fn(&Process) -> bool) -> bool {
        let label = |name: &str| labels.get(name).map(String::as_str);
        let Some(adapter) = label(labels::ADAPTER).and_then(|text| text.parse::<Process>().ok()) else {
            return false;
        };
        if adapter.boot == self.boot && label(labels::NAMESPACE) == Some(self.namespace.as_str()) {
            return !lives(&adapter);
        }
        self.node.is_some()
            && label(labels::NODE) == self.node.as_deref()
            && self.is_same_database(label(labels::DATABASE))
    }

    fn is_same_database(&self, of_container: Option<&str>) -> bool {
        match (of_container, self.database.as_deref()) {
            (Some(other), Some(own)) => other == own,
            (None, _) | (_, None) => true,
        }
    }

    /// Whether it is of an earlier attempt at a task: that has no right to run while this one does.
    fn is_earlier(&self, labels: &BTreeMap<String, String>, told: &ContainerInput) -> bool {
        let attempt = labels.get(labels::ATTEMPT).and_then(|attempt| attempt.parse::<u64>().ok());
        labels.get(labels::TASK).is_some_and(|task| task == told.worker.task_id())
            && attempt.is_some_and(|attempt| attempt < told.worker.attempt())
            && self.is_same_database(labels.get(labels::DATABASE).map(String::as_str))
    }
}

/// Removes what is left, and of this task what is earlier. What is left and cannot be removed now is removed by the next one;
/// with what is earlier two attempts would work at once.
pub async fn before(engine: &Engine, told: &ContainerInput, this: &Process) -> Result<(), String> {
    let here = Here::new(this, Some(told.node().to_owned()), told.worker.database.clone());
    let mut left = TRIES;
    loop {
        let Err(error) = clear_the_way(engine, told, &here).await else { return Ok(()) };
        left -= 1;
        if left == 0 {
            return Err(format!("a container of an earlier attempt may still run: {error}"));
        }
        sleep(TRY_AGAIN).await;
    }
}

/// Tries that once. Fails only where something is in the way.
async fn clear_the_way(engine: &Engine, told: &ContainerInput, here: &Here) -> Result<(), Error> {
    let mut failed = None;
    for Listed { id, labels } in engine.labelled(labels::ADAPTER).await? {
        let is_earlier = here.is_earlier(&labels, told);
        if (is_earlier || here.is_left(&labels, Process::lives))
            && let Err(error) = engine.remove(&id).await
            && is_earlier
        {
            failed = Some(error);
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Removes what is left at one engine. Returns the labels of what was removed.
async fn tidy(engine: &Engine, here: &Here) -> Result<Vec<BTreeMap<String, String>>, Error> {
    let mut listed = engine.labelled(labels::ADAPTER).await?;
    listed.retain(|container| here.is_left(&container.labels, Process::lives));
    let (mut removed, mut failed) = (Vec::new(), None);
    for Listed { id, labels } in listed {
        match engine.remove(&id).await {
            Ok(()) => removed.push(labels),
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(removed), Err)
}

pub async fn command(options: TidyOptions) -> u8 {
    let this = match Process::this() {
        Ok(this) => this,
        Err(error) => {
            note(&error);
            return 1;
        }
    };
    let here = Here::new(&this, options.node, options.database);
    let posts = Signposts::here(options.user);
    let sockets: Vec<Option<&str>> = match &options.sockets[..] {
        [] => vec![None],
        sockets => sockets.iter().map(|socket| Some(socket.as_str())).collect(),
    };
    let mut code = 0;
    for socket in sockets {
        if let Err(why) = at(&posts, socket, &here).await {
            note(&why);
            code = 1;
        }
    }
    code
}

async fn at(posts: &Signposts, socket: Option<&str>, here: &Here) -> Result<(), String> {
    let address = posts.find([socket], is_usable)?;
    let engine = Engine::connect(address).await.map_err(|error| error.to_string())?;
    for labels in tidy(&engine, here).await.map_err(|error| error.to_string())? {
        let of = |name: &str| labels.get(name).map_or("?", String::as_str);
        let (task, attempt) = (of(labels::TASK), of(labels::ATTEMPT));
        let _nobody_reads = writeln!(
            io::stdout(),
            "removed the container of task {task}, attempt {attempt}, whose adapter was gone"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::input::tests::told;

    fn here() -> Here {
        Here {
            boot: "b1".to_owned(),
            namespace: "pid:[1]".to_owned(),
            node: Some("n1".to_owned()),
            database: Some("d".to_owned()),
        }
    }

    fn labels(given: &[(&str, &str)]) -> BTreeMap<String, String> {
        given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn who_cannot_be_seen_is_not_taken_for_dead() {
        // The adapter, the processes that it is among, its node and its database.
        let of = |adapter: &str, namespace: &str, node: &str, database: &str| {
            labels(&[
                (labels::ADAPTER, adapter),
                (labels::NAMESPACE, namespace),
                (labels::NODE, node),
                (labels::DATABASE, database),
            ])
        };
        let lives = |process: &Process| process.pid == 7;
        for (labels, expected, what) in [
            (of("b1/7/1", "pid:[1]", "n1", "d"), false, "it lives"),
            (of("b1/8/1", "pid:[1]", "n1", "d"), true, "it is dead"),
            (of("b1/8/1", "pid:[1]", "n2", "e"), true, "dead, whoever's it was"),
            (of("b0/7/1", "pid:[1]", "n1", "d"), true, "of an earlier start of this node's machine"),
            (of("b0/7/1", "pid:[1]", "n2", "d"), false, "of another machine, perhaps"),
            (of("b0/7/1", "pid:[1]", "n1", "e"), false, "of a node of another database"),
            (of("b1/8/1", "pid:[2]", "n1", "d"), true, "this node was in another container"),
            (of("b1/8/1", "pid:[2]", "n2", "d"), false, "of a node in another container"),
            (of("x", "pid:[1]", "n1", "d"), false, "not one of ours"),
        ] {
            assert_eq!(here().is_left(&labels, lives), expected, "{what}");
        }
        let nobody = Here { node: None, ..here() };
        assert!(
            !nobody.is_left(&of("b0/7/1", "pid:[1]", "n1", "d"), lives),
            "whoever has no name has nothing"
        );
        assert!(!here().is_left(&labels(&[]), lives));
        let unnamed = labels(&[(labels::ADAPTER, "b0/7/1"), (labels::NODE, "n1")]);
        assert!(here().is_left(&unnamed, lives), "it does not know its database");
    }

    #[test]
    fn an_earlier_attempt_has_to_go() {
        let told = told(&json!({ "image": "i" }), &json!({}));
        let of = |task: &str, attempt: &str| labels(&[(labels::TASK, task), (labels::ATTEMPT, attempt)]);
        for (labels, expected) in [
            (of("0a", "2"), true),
            (of("0a", "3"), false),
            (of("0a", "4"), false),
            (of("0b", "2"), false),
            (of("0a", "x"), false),
        ] {
            assert_eq!(here().is_earlier(&labels, &told), expected, "{labels:?}");
        }
        let mut other = of("0a", "2");
        other.insert(labels::DATABASE.to_owned(), "e".to_owned());
        assert!(!here().is_earlier(&other, &told), "it has the same id in another database");
    }
}
