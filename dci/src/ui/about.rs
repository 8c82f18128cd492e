//! `GET /about`: which releases work here, what the database is like, whether all is well, and whose scripts the pages use.

use std::collections::BTreeMap;
use std::time::Duration;

use actix_web::web::Data;
use askama::Template;
use bson::Document;
use disbatch_core::database_info::{Measured, Server, Topology};
use serde_json::Value;

use crate::api::service;
use crate::state::{Kept, State};
use crate::ui::nodes::{NodeState, Now};
use crate::ui::parts::{Pill, bytes};
use crate::ui::{self, Rendered, balance, plain};

const SIZES_KEPT: Duration = Duration::from_secs(30);

/// How large collections are; nothing where the user of this server may not ask.
pub type Sizes = Kept<Option<Vec<Measured>>>;

/// A script of others: its name, release, licence and the text of that.
type Vendored = (&'static str, &'static str, &'static str, &'static str);

/// As `assets/vendor/README.md` has them.
const VENDORED: [Vendored; 3] = [
    ("htmx", "2.0.11", "0BSD", include_str!("../../assets/vendor/htmx.LICENSE")),
    ("idiomorph", "0.7.4", "0BSD", include_str!("../../assets/vendor/idiomorph.LICENSE")),
    ("uPlot", "1.6.32", "MIT", include_str!("../../assets/vendor/uplot.LICENSE")),
];

#[derive(Template)]
#[template(path = "about.html")]
struct AboutPage<'a> {
    /// What was looked at, how it is, and a message.
    checks: [(&'static str, Pill, String); 3],
    /// Releases of the DEN, the newest first, and the nodes that have it.
    dens: Vec<(String, Vec<(String, Pill)>)>,
    /// What the database is, line by line.
    database: Vec<(&'static str, String)>,
    /// None: this server may not ask.
    sizes: Option<&'a [Measured]>,
    /// All that are known.
    total: String,
}

/// Which releases work here, what the database is like, and whether all is well.
#[utoipa::path(
    get, path = "/about", tag = "service", operation_id = "about",
    responses((status = 200, description = "All of it.", body = String, content_type = "text/html")),
)]
pub async fn handle(state: Data<State>) -> Rendered {
    let store = &state.store;
    let sizes = state.sizes.get(SIZES_KEPT, store.sizes());
    let (server, nodes, now, health, sizes) = futures::try_join!(
        store.about_server(),
        store.list_nodes(),
        Now::read(store),
        service::monitored(&state),
        sizes,
    )?;
    let database = (store.database_name(), &server);
    ui::render(&page(database, (&nodes, &now), &health, sizes.as_ref().as_deref()))
}

fn page<'a>(
    (name, server): (&str, &Server),
    (nodes, now): (&[Document], &Now),
    health: &Value,
    sizes: Option<&'a [Measured]>,
) -> AboutPage<'a> {
    let all = sizes.into_iter().flatten().filter_map(|(_, size)| *size);
    let total =
        bytes(all.fold(0_u64, |sum, size| sum.saturating_add(size.stored).saturating_add(size.indexes)));
    let some_unknown = sizes.into_iter().flatten().any(|(_, size)| size.is_none());
    AboutPage {
        checks: checks(server, health),
        dens: dens(nodes, now),
        database: database(name, server),
        sizes,
        total: if some_unknown { format!("at least {total}") } else { total },
    }
}

fn checks(server: &Server, health: &Value) -> [(&'static str, Pill, String); 3] {
    let message = format!("it answered within {:.1} ms", server.answered_in.as_secs_f64() * 1000.0);
    let check = |name, key: &str| {
        let text = |field: &str| health[key][field].as_str().unwrap_or_default();
        (name, balance::health(text("status")), text("message").to_owned())
    };
    [
        ("Database", balance::health("OK"), message),
        check("Nodes", "disbatch"),
        check("QueueBalance", "queuebalance"),
    ]
}

fn dens(nodes: &[Document], now: &Now) -> Vec<(String, Vec<(String, Pill)>)> {
    let mut by_version: BTreeMap<String, Vec<(String, Pill)>> = BTreeMap::new();
    for node in nodes {
        let version = plain(node.get("version"));
        let entry = (plain(node.get("node")), NodeState::of(node, now).pill());
        by_version.entry(version).or_default().push(entry);
    }
    by_version.into_iter().rev().collect()
}

fn database(name: &str, server: &Server) -> Vec<(&'static str, String)> {
    let mut lines = vec![("Database", name.to_owned()), ("MongoDB", server.version.clone())];
    match &server.topology {
        Topology::Standalone => lines.push(("Topology", "a standalone server".to_owned())),
        Topology::Sharded => lines.push(("Topology", "a sharded cluster".to_owned())),
        Topology::ReplicaSet { name, members, primary } => {
            lines.push(("Topology", format!("the replica set {name}")));
            lines.push(("Members", members.join(", ")));
            lines.push(("Primary", primary.clone().unwrap_or_else(|| "none".to_owned())));
        }
    }
    let changes = if server.topology.has_change_streams() {
        "followed by change streams: a task starts as soon as it is submitted"
    } else {
        "looked for once a second, as such a server has no change streams"
    };
    lines.push(("Changes", changes.to_owned()));
    lines
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, doc};
    use disbatch_core::database_info::Size;
    use serde_json::json;

    use super::*;

    const NOW: DateTime = DateTime::from_millis(1_795_163_067_344);

    fn html(topology: Topology, nodes: &[Document], sizes: Option<&[Measured]>) -> String {
        let server = Server { version: "8.<0>".into(), topology, answered_in: Duration::from_micros(1_260) };
        let health = json!({
            "disbatch": { "status": "OK", "message": "runs" },
            "queuebalance": { "status": "CRITICAL", "message": "not <running>" },
        });
        let now = Now { server: NOW, host: NOW };
        page(("db<1>", &server), (nodes, &now), &health, sizes).render().unwrap()
    }

    #[test]
    fn the_page_tells_releases_database_and_health() {
        let topology = Topology::ReplicaSet {
            name: "rs0".into(),
            members: vec!["a:27017".into(), "<b>:27017".into()],
            primary: None,
        };
        let size = Size { documents: 1_234_567, data: 5 << 20, stored: 2 << 20, indexes: 1 << 20 };
        let nodes = [
            doc! { "node": "<vm>", "version": "1.2.3", "timestamp": NOW },
            doc! { "node": "perl", "timestamp": NOW },
        ];
        let html = html(topology, &nodes, Some(&[("tasks", Some(size))]));
        for part in [
            "<a href=\"/about\" aria-current=\"page\">About</a>",
            crate::ui::VERSION,
            "db&#60;1&#62;",
            "8.&#60;0&#62;",
            "the replica set rs0",
            "a:27017, &#60;b&#62;:27017",
            "followed by change streams",
            "1,234,567",
            "indexes included: 3.0 MiB.",
            "it answered within 1.3 ms",
            "not &#60;running&#62;",
            "<span class=\"status bad\">CRITICAL</span>",
            "1.2.3",
            "&#60;vm&#62;",
            "another program",
            "Zero-Clause BSD",
            "Leon Sorokin",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<vm>") && !html.contains("<b>:") && !html.contains(" style="), "{html}");
    }

    #[test]
    fn what_is_not_known_is_said() {
        let nasty = "<script>'\"".repeat(1000);
        let html = html(Topology::Standalone, &[doc! { "node": &nasty, "version": &nasty }], None);
        let body = html.split("<main").nth(1).unwrap();
        assert!(!body.contains("<script") && body.contains("&#60;script&#62;&#39;&#34;"), "it is text");
        for part in ["a standalone server", "looked for once a second", "disbatch create-users"] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(self::html(Topology::Sharded, &[], Some(&[])).contains("No node has been seen yet."));
    }

    #[test]
    fn a_collection_whose_size_is_not_known_is_listed() {
        let size = Size { documents: 3, data: 1, stored: 1 << 20, indexes: 1 << 20 };
        let html = html(Topology::Standalone, &[], Some(&[("tasks", None), ("tasks.archive", Some(size))]));
        for part in [
            "<code>tasks</code></th><td data-label=\"\" colspan=\"4\">not known",
            "<code>tasks.archive</code></th><td data-label=\"Documents\" class=\"number\">3</td>",
            "indexes included: at least 2.0 MiB.",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
    }

    #[test]
    fn scripts_of_others_are_those_that_are_there() {
        let listed = include_str!("../../assets/vendor/README.md");
        for (name, version, license, _) in VENDORED {
            let line = listed.lines().find(|line| line.contains(&format!("`{}", name.to_lowercase())));
            let line = line.unwrap();
            assert!(line.contains(version) && line.contains(license), "{line}");
        }
        assert_eq!(listed.lines().filter(|line| line.starts_with("| `")).count(), VENDORED.len());
    }
}
