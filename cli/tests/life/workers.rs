//! Plugins that the database defines.

use anyhow::ensure;
use serde_json::{Value, json as value};

use crate::server::{Reply, Server, json};

fn report() -> Value {
    value!({
        "name": "My::Report", "engine": "http", "description": "Writes reports", "version": "", "problem": null,
        "runs": "https://reports.example/run", "definition": { "engine": "http" }, "rev": 3, "by": "ann from 192.0.2.7",
        "at": "2026-11-20T08:24:27",
    })
}

#[tokio::test]
async fn workers_are_shown_set_and_removed() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("report.json");
    // As configurations are written.
    std::fs::write(&file, "{ \"engine\": \"http\", # far away\n \"http\": { \"url\": \"https://x/\" }, }")?;
    let file = file.to_string_lossy().into_owned();
    let file = file.as_str();
    let server = Server::start(vec![
        ("GET /workers", vec![json(value!([report()]))]),
        ("GET /workers/My::Report", vec![json(report())]),
        ("PUT /workers/My::Report", vec![json(report())]),
        ("DELETE /workers/My::Report", vec![json(value!({ "deleted": true, "queues": ["reports"] }))]),
        (
            "POST /workers/validate",
            vec![
                json(value!({ "valid": true, "name": "My::Report", "engine": "http" })),
                json(value!({ "valid": false, "error": "http.url: expected an address" })),
            ],
        ),
    ])
    .await?;
    for (arguments, text) in [
        (&["workers", "list"][..], "https://reports.example/run | 3"),
        (&["workers", "show", "My::Report"], "Engine    http\n"),
        (&["workers", "show", "My::Report", "--format", "json"], "\"rev\":3"),
        (&["workers", "set", "My::Report", file, "--rev", "2"], "Set worker My::Report, revision 3\n"),
        (&["workers", "check", file], "My::Report is right: a plugin with the engine http\n"),
        (&["workers", "rm", "My::Report"], "wait until it is there again: reports\n"),
    ] {
        let outcome = server.expect(arguments, 0).await?;
        ensure!(outcome.text().contains(text), "{arguments:?} {outcome:?} {}", outcome.text());
    }
    let body = server.body("PUT /workers/My::Report")?;
    assert_eq!(body, value!({ "engine": "http", "http": { "url": "https://x/" }, ".rev": 2 }));
    let wrong = server.expect(&["workers", "check", file], 255).await?;
    assert_eq!((wrong.text(), wrong.stderr), (String::new(), "http.url: expected an address\n".to_owned()));
    Ok(())
}

#[tokio::test]
async fn what_can_be_imported_can_be_checked() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (one, two) = (value!({ "_id": "a", "worker": {} }), value!({ "_id": "b", "worker": {} }));
    let wrapped = value!({ "rows": [{ "doc": one.clone() }, { "doc": two.clone() }] }).to_string();
    for text in [format!("[{one}, {two}]"), format!("{one}\n{two}\n"), wrapped] {
        let file = folder.path().join("workers.json");
        std::fs::write(&file, &text)?;
        let answers = [
            value!({ "valid": true, "name": "a", "engine": "http" }),
            value!({ "valid": false, "error": "it has no engine" }),
        ];
        let server = Server::start(vec![("POST /workers/validate", answers.map(json).to_vec())]).await?;
        let outcome = server.expect(&["workers", "check", &file.to_string_lossy()], 255).await?;
        ensure!(
            outcome.text() == "a is right: a plugin with the engine http\n",
            "{text}: {}",
            outcome.text()
        );
        ensure!(outcome.stderr == "b: it has no engine\n", "{text}: {}", outcome.stderr);
    }
    Ok(())
}

#[tokio::test]
async fn definitions_from_elsewhere_are_imported_or_all_mistakes_told() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("workers.ndjson");
    std::fs::write(&file, "{\"_id\": \"a\", \"worker\": {}}\n{\"_id\": \"b\", \"worker\": {}}\n")?;
    let file = file.to_string_lossy().into_owned();
    let file = file.as_str();
    let told = value!({ "created": ["a"], "updated": [], "unchanged": [], "left": ["b"] });
    let server = Server::start(vec![("POST /workers/import", vec![json(told)])]).await?;
    let outcome = server.expect(&["workers", "import", file, "--replace"], 0).await?;
    ensure!(outcome.text().starts_with("Created: a\nLeft alone"), "{}", outcome.text());
    let documents = value!([{ "_id": "a", "worker": {} }, { "_id": "b", "worker": {} }]);
    assert_eq!(server.body("POST /workers/import")?, value!({ "documents": documents, "replace": true }));
    let body = value!({
        "error": "1 of 2 definitions are wrong, and nothing is stored",
        "problems": [{ "name": "b", "error": "worker.image: must be given" }],
    });
    let server = Server::start(vec![("POST /workers/import", vec![Reply::Json(400, body)])]).await?;
    let outcome = server.expect(&["workers", "import", file], 255).await?;
    ensure!(outcome.stderr.ends_with("nothing is stored\n  b: worker.image: must be given\n"), "{outcome:?}");
    Ok(())
}

#[tokio::test]
async fn what_is_wrong_with_a_worker_is_told() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("odd.json");
    std::fs::write(&file, "[1]")?;
    let file = file.to_string_lossy().into_owned();
    let file = file.as_str();
    let missing = Reply::Json(404, value!({ "error": "no worker 'x'" }));
    let server = Server::start(vec![("GET /workers/x", vec![missing])]).await?;
    let outcome = server.expect(&["workers", "show", "x"], 255).await?;
    assert_eq!(outcome.stderr, "no worker 'x'\n");
    let outcome = server.expect(&["workers", "set", "x", file], 255).await?;
    ensure!(outcome.stderr.contains("must have a JSON object"), "{outcome:?}");
    for wrong in [&["workers"][..], &["workers", "list", "--bogus"], &["workers", "set", "x"]] {
        server.expect(wrong, 2).await?;
    }
    Ok(())
}
