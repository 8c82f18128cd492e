//! `GET /plugins` for people: what each plugin does, which parameters it takes, and where it can run; `GET /workers`: the plugins that the
//! database defines; and `GET /workers/:name`: what was defined, and a form to change it.

use std::collections::{BTreeMap, BTreeSet};

use actix_web::web::{Data, Path};
use askama::Template;
use bson::{Bson, Document};
use disbatch_core::accounts::Role;
use disbatch_core::definitions as core;
use disbatch_core::model::{PluginName, Queue};
use disbatch_core::plugin::{Http, Manifest, VERSIONS};
use disbatch_wire::definitions::Definition;

use crate::access::{Who, viewer};
use crate::api::definitions::{find, queues_of, view};
use crate::catalogue::Catalogue;
use crate::state::State;
use crate::ui::names::{Link, encoded, label, place_of};
use crate::ui::nodes::{self, NodeState, Now};
use crate::ui::parts::{Pill, When, when};
use crate::ui::schema::Form;
use crate::ui::{self, Rendered, plain};

#[derive(Template)]
#[template(path = "plugins.html")]
struct PluginsPage<'a> {
    known: &'a Catalogue,
    plugins: Vec<View<'a>>,
}

struct View<'a> {
    name: String,
    /// Whether it can be led to: names of plugins may be anything that somebody has stored.
    legal: bool,
    /// What its author says of it, if this host has its manifest, or the database has.
    described: Option<&'a Manifest>,
    /// Its versions, if several are known, each with the nodes that have it.
    versions: Vec<(String, Vec<Link>)>,
    nodes: Vec<(Link, Pill)>,
    queues: Vec<Link>,
}

pub async fn render(state: Data<State>, who: Who) -> Rendered {
    let (store, reach) = (&state.store, who.reach(Role::Viewer));
    let (queues, mut nodes, now, plugins) = futures::try_join!(
        store.queues_within(&reach),
        store.list_nodes(),
        Now::read(store),
        state.catalogue()
    )?;
    if !who.is_everywhere(Role::Viewer) {
        // They work for others, too.
        nodes.clear();
    }
    ui::render(&page(&plugins, &queues, (&nodes, &now)))
}

fn page<'a>(known: &'a Catalogue, queues: &[Queue], (nodes, now): (&[Document], &Now)) -> PluginsPage<'a> {
    let mut on = by_texts(nodes, "plugins", |node| (nodes::link(node), NodeState::of(node, now).pill()));
    let mut versions_on = by_texts(nodes, VERSIONS, nodes::link);
    let mut versions = |name: &str| -> Vec<(String, Vec<Link>)> {
        let with_nodes = |version: &str| {
            (version.to_owned(), versions_on.remove(&format!("{name}@{version}")).unwrap_or_default())
        };
        Some(known.versions(name).map(with_nodes).collect::<Vec<_>>())
            .filter(|versions| versions.len() > 1)
            .unwrap_or_default()
    };
    let mut used: BTreeMap<String, Vec<Link>> = BTreeMap::new();
    for queue in queues {
        let link = Link::to(label(queue), place_of(queue));
        used.entry(plain(queue.rest.get("plugin"))).or_default().push(link);
    }
    let mut names: BTreeSet<String> = known.host().names().map(ToString::to_string).collect();
    names.extend(known.names().iter().cloned());
    names.extend(on.keys().chain(used.keys()).filter(|name| !name.is_empty()).cloned());
    let view = |name: String| View {
        legal: name.parse::<PluginName>().is_ok(),
        described: name.parse().ok().and_then(|name| known.manifest(&name)),
        versions: versions(&name),
        nodes: on.remove(&name).unwrap_or_default(),
        queues: used.remove(&name).unwrap_or_default(),
        name,
    };
    PluginsPage { known, plugins: names.into_iter().map(view).collect() }
}

/// What is told of nodes, by the plugins or versions that each says in `field` that it has.
fn by_texts<'a, T>(
    nodes: impl IntoIterator<Item = &'a Document>,
    field: &str,
    told: impl Fn(&Document) -> T,
) -> BTreeMap<String, Vec<T>> {
    let mut by_text: BTreeMap<String, Vec<T>> = BTreeMap::new();
    for node in nodes {
        let texts = node.get(field).and_then(Bson::as_array);
        // Each once.
        let texts: BTreeSet<&str> = texts.into_iter().flatten().filter_map(Bson::as_str).collect();
        for text in texts {
            by_text.entry(text.to_owned()).or_default().push(told(node));
        }
    }
    by_text
}

/// Where the definition is that makes the plugin what it is. One of the host comes before it.
fn worker(known: &Catalogue, name: &str) -> Option<String> {
    let name: PluginName = name.parse().ok()?;
    let is_defined = known.host().get(&name).is_none() && known.workers().contains_key(&name);
    is_defined.then(|| worker_place(&name))
}

/// What the field for a new definition has at first.
const EXAMPLE: &str = r#"{
   "engine": "http",
   "description": "",
   "http": { "url": "https://" }
}"#;

#[derive(Template)]
#[template(path = "definitions.html")]
struct DefinitionsPage {
    workers: Vec<Worker>,
    /// Whether the page's reader may change them.
    administers: bool,
}

/// A plugin that the database defines.
struct Worker {
    /// As far as the page's reader may see it.
    seen: Definition,
    place: String,
    nodes: Vec<Link>,
    at: When,
}

pub fn worker_place(name: &PluginName) -> String {
    format!("/workers/{}", encoded(name.as_str()))
}

pub async fn render_workers(state: Data<State>, who: Who) -> Rendered {
    let store = &state.store;
    let (workers, nodes, now) = futures::try_join!(store.workers(), store.list_nodes(), Now::read(store))?;
    let mut on = nodes_by_plugin(&nodes, &now);
    let workers = workers.iter().map(|stored| Worker::of(stored, &who, &mut on)).collect();
    ui::render(&DefinitionsPage { workers, administers: viewer::may(Role::Admin) })
}

impl Worker {
    /// One that is stored, with its part of what [`nodes_by_plugin`] says.
    fn of(stored: &core::Definition, who: &Who, on: &mut BTreeMap<String, Vec<Link>>) -> Self {
        Self {
            seen: view(stored, who),
            place: worker_place(&stored.name),
            nodes: on.remove(stored.name.as_str()).unwrap_or_default(),
            at: when(&stored.at),
        }
    }
}

/// The nodes that are there and say that they have a plugin, by its name.
fn nodes_by_plugin(nodes: &[Document], now: &Now) -> BTreeMap<String, Vec<Link>> {
    by_texts(nodes.iter().filter(|node| NodeState::of(node, now).is_up()), "plugins", nodes::link)
}

#[derive(Template)]
#[template(path = "definition.html")]
struct DefinitionPage {
    worker: Worker,
    queues: Vec<String>,
    /// None: the definition does not describe them.
    params: Option<Form>,
    administers: bool,
}

pub async fn render_worker(state: Data<State>, who: Who, name: Path<String>) -> Rendered {
    let (stored, store) = (find(&state, &name).await?, &state.store);
    let (nodes, now) = futures::try_join!(store.list_nodes(), Now::read(store))?;
    let mut on = nodes_by_plugin(&nodes, &now);
    let manifest = stored.manifest().ok();
    let params = manifest.as_ref().and_then(|manifest| manifest.params.as_ref());
    let page = DefinitionPage {
        worker: Worker::of(&stored, &who, &mut on),
        queues: queues_of(&state, &stored.name).await?,
        params: params.map(Form::of),
        administers: viewer::may(Role::Admin),
    };
    ui::render(&page)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    use bson::{DateTime, doc};
    use disbatch_core::config::Config;
    use disbatch_core::plugin::Plugins;
    use serde_json::json;

    use super::*;

    const NOW: DateTime = DateTime::from_millis(1_795_163_067_344);

    /// A host with one plugin of these words, and one that cannot run.
    fn host(folder: &std::path::Path) -> Plugins {
        let manifest = serde_json::json!({
            "name": "My::Plugin", "command": ["./run"], "description": "Does <b>it</b>", "version": "1.\"2\"",
            "warm": { "tasks": 7, "memory_mb": 64 }, "params": {
                "required": ["to"],
                "properties": { "to": { "type": "string", "description": "<who>", "default": "\"me\"" } },
            },
        });
        for (name, text) in [("one", manifest.to_string()), ("two", "{".to_owned())] {
            std::fs::create_dir_all(folder.join(name)).unwrap();
            std::fs::write(folder.join(name).join("plugin.json"), text).unwrap();
        }
        let program = folder.join("one/run");
        std::fs::write(&program, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let text = r#"{"mongohost":"h","database":"d","plugin_dirs":["."]}"#;
        Plugins::discover(&Config::parse(text, &folder.join("config.json")).unwrap())
    }

    fn known(host: Plugins, allowed: &[&str]) -> Catalogue {
        let allowed: Vec<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
        let worker = doc! { "_id": "Defined", "engine": "http", "description": "<far> away" };
        Catalogue::new(Arc::new(host), &allowed, &BTreeSet::new(), &[core::Definition::read(worker).unwrap()])
    }

    fn html(known: &Catalogue, queues: &[Document], nodes: &[Document]) -> String {
        let queues: Vec<Queue> =
            queues.iter().map(|queue| bson::deserialize_from_document(queue.clone()).unwrap()).collect();
        page(known, &queues, (nodes, &Now { server: NOW, host: NOW })).render().unwrap()
    }

    #[test]
    fn each_plugin_says_what_it_does_and_where() {
        let folder = tempfile::tempdir().unwrap();
        let queue = doc! { "_id": bson::oid::ObjectId::new(), "name": "<mail>", "plugin": "My::Plugin" };
        let node = doc! {
            "_id": bson::oid::ObjectId::parse_str("6b0003b956635706337b691a").unwrap(), "node": "vm<1>",
            "plugins": ["My::Plugin", "Perl::Only", 5], "timestamp": NOW,
        };
        let html = html(&known(host(folder.path()), &["My::Plugin", "Gone"]), &[queue], &[node]);
        for part in [
            "<a href=\"/plugins\" aria-current=\"page\">Plugins</a>",
            "<section class=\"panel plugin\" id=\"My::Plugin\"",
            "Does &#60;b&#62;it&#60;/b&#62;",
            "1.&#34;2&#34;",
            "for 7 tasks, up to 64 MiB, and 60 s without one",
            "&#60;who&#62;",
            "&#34;\\&#34;me\\&#34;&#34;",
            "&#60;mail&#62;</a>",
            "vm&#60;1&#62;</a>",
            "<section class=\"panel plugin\" id=\"Perl::Only\"",
            "<section class=\"panel plugin\" id=\"Gone\"",
            "No node has it.",
            "two/plugin.json",
            "<section class=\"panel plugin\" id=\"Defined\"",
            "&#60;far&#62; away",
            "href=\"/workers/Defined\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<mail>") && !html.contains("<who>") && !html.contains(" style="), "{html}");
    }

    #[test]
    fn whatever_a_queue_or_a_node_names_is_text() {
        let nasty = "<script>'\"".repeat(1000);
        let queue = doc! { "_id": bson::oid::ObjectId::new(), "plugin": &nasty };
        let nodes = [doc! { "node": 7, "plugins": [&nasty] }];
        let html = html(&known(Plugins::default(), &[]), &[queue], &nodes);
        let body = html.split("<main").nth(1).unwrap();
        assert!(!body.contains("<script") && body.contains("&#60;script&#62;&#39;&#34;"), "it is text");
        let nothing = Catalogue::new(Arc::default(), &[], &BTreeSet::new(), &[]);
        let html = super::page(&nothing, &[], (&[], &Now { server: NOW, host: NOW })).render().unwrap();
        assert!(html.contains("No plugin is known."));
    }

    fn workers_page(administers: bool) -> String {
        let who = Who::anybody("10.0.0.1".to_owned());
        let worker = core::Definition::read(doc! {
            "_id": "My::Report", "engine": "http", "description": "<b>", "http": { "url": "https://x/" }, "by": "<ann>",
        });
        let wrong = core::Definition::read(doc! { "_id": "Wrong", "command": ["sh"] });
        let mut on = [("My::Report".to_owned(), vec![Link::to("<vm>", "/nodes/vm")])].into();
        let workers = [worker, wrong].map(|stored| Worker::of(&stored.unwrap(), &who, &mut on));
        DefinitionsPage { workers: workers.into(), administers }.render().unwrap()
    }

    #[test]
    fn each_worker_says_what_it_runs_and_where() {
        let html = workers_page(true);
        for part in [
            "href=\"/workers/My%3A%3AReport\"",
            "https://x/",
            "&#60;b&#62;",
            "&#60;ann&#62;",
            "&#60;vm&#62;</a>",
            "engine: exec runs a program of the node",
            "No node can run it.",
            "New worker",
            "action=\"/workers\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<vm>") && !html.contains(" style="), "{html}");
        assert!(!workers_page(false).contains("New worker"));
        let none = DefinitionsPage { workers: vec![], administers: true }.render().unwrap();
        assert!(none.contains("There are no workers yet."));
    }

    fn shown(administers: bool) -> String {
        let seen = json!({
            "name": "My::Report", "engine": "http", "description": "<b>", "version": "", "runs": "https://x/",
            "problem": null, "definition": { "engine": "http", "http": { "url": "</textarea>" } }, "rev": 3, "by": "<ann>",
        });
        let worker = Worker {
            seen: serde_json::from_value(seen).unwrap(),
            place: "/workers/My%3A%3AReport".to_owned(),
            nodes: Vec::new(),
            at: When::default(),
        };
        let page = DefinitionPage { worker, queues: vec!["<mail>".to_owned()], params: None, administers };
        page.render().unwrap()
    }

    #[test]
    fn the_definition_is_in_a_form_for_those_who_may_change_it() {
        let html = shown(true);
        for part in [
            "action=\"/ui/workers/My%3A%3AReport\"",
            "name=\".rev\" value=\"3\"",
            "&#60;/textarea&#62;",
            "action=\"/ui/workers/My%3A%3AReport/delete\"",
            "&#60;mail&#62;",
            "No node can run it.",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<mail>") && !html.contains(" style="), "{html}");
        let viewers = shown(false);
        assert!(!viewers.contains("<textarea") && !viewers.contains("/delete\""), "{viewers}");
        assert!(viewers.contains("&#60;/textarea&#62;"), "{viewers}");
    }
}
