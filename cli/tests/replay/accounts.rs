//! `user` and `token`, which the Perl client does not have: what they store, print and refuse. They need no server.

use std::process::Stdio;

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_mongod::testing::TestDatabase;
use futures::TryStreamExt;
use mongodb::Collection;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;

use crate::server::disbatch;

const PASSWORD: &str = "correct horse battery";

/// A database with a queue, and a configuration that names it.
struct Fixture {
    database: TestDatabase,
    folder: TempDir,
    queue: ObjectId,
}

/// What came of a run.
struct CliOutput {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Fixture {
    async fn new() -> anyhow::Result<Self> {
        let database = TestDatabase::create(disbatch_mongod::testing::server().await?).await?;
        let (folder, queue) = (tempfile::tempdir()?, ObjectId::new());
        let document =
            doc! { "_id": queue, "name": "mail", "plugin": "Disbatch::Plugin::Demo", "tenant": "acme" };
        database.database.collection("queues").insert_one(document).await?;
        let config = json!({ "mongohost": database.uri, "database": database.name });
        std::fs::write(folder.path().join("config.json"), config.to_string())?;
        Ok(Self { database, folder, queue })
    }

    /// Runs `disbatch` with `input` on its standard input.
    async fn run(&self, arguments: &[&str], input: &str) -> anyhow::Result<CliOutput> {
        let mut command = disbatch();
        command.args(arguments).arg("--config").arg(self.folder.path().join("config.json"));
        command.env_remove("DISBATCH_USER_PASSWORD");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        // It may end without reading.
        let _unread = child.stdin.take().context("no standard input")?.write_all(input.as_bytes()).await;
        let output = child.wait_with_output().await?;
        Ok(CliOutput {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout)?,
            stderr: String::from_utf8(output.stderr)?,
        })
    }

    /// The same with a password, if one is asked for. It must end with this status, and say this somewhere.
    async fn expect(&self, arguments: &[&str], code: i32, part: &str) -> anyhow::Result<CliOutput> {
        let outcome = self.run(arguments, &format!("{PASSWORD}\n")).await?;
        let text = format!("{}\n{}", outcome.stdout, outcome.stderr);
        ensure!(outcome.code == Some(code), "{arguments:?}: {:?}: {text}", outcome.code);
        ensure!(text.contains(part), "{arguments:?}: no '{part}' in {text}");
        ensure!(!text.contains(PASSWORD), "{arguments:?} tells the password: {text}");
        Ok(outcome)
    }

    fn all(&self, collection: &str) -> Collection<Document> {
        self.database.database.collection(collection)
    }

    async fn user(&self, name: &str) -> anyhow::Result<Document> {
        self.all("accounts.users")
            .find_one(doc! { "_id": name })
            .await?
            .with_context(|| format!("no user {name}"))
    }

    /// What the audit says was done, in order, and that the command line is named with each.
    async fn audit(&self) -> anyhow::Result<Vec<String>> {
        let entries = self.all("audit").find(doc! {}).sort(doc! { "at": 1 }).await?;
        let entries: Vec<Document> = entries.try_collect().await?;
        let text = format!("{entries:?}");
        ensure!(!text.contains("argon2") && !text.contains("disbatch_"), "the audit has a secret: {text}");
        let mut done = Vec::new();
        for entry in entries {
            ensure!(entry.get_str("by")?.ends_with(" with the command line"), "{entry}");
            let name = entry.get_document("object")?.get_str("name")?;
            done.push(format!("{} {name}", entry.get_str("what")?));
        }
        Ok(done)
    }
}

#[tokio::test]
async fn users_are_added_changed_and_removed() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    fixture.expect(&["user", "add", "ashley"], 255, "what may ashley do?").await?;
    fixture.expect(&["user", "add", "a b", "--admin"], 2, "cannot be the name of a user").await?;
    fixture
        .expect(&["user", "add", "robin", "--queue", "post=viewer"], 255, "there is no queue 'post'")
        .await?;
    ensure!(fixture.all("accounts.users").count_documents(doc! {}).await? == 0, "somebody was added");

    let added = fixture.expect(&["user", "add", "ashley", "--admin"], 0, "This is the first user").await?;
    ensure!(added.stdout == "Added user ashley: admin on all queues\n", "{}", added.stdout);
    let stored = fixture.user("ashley").await?;
    ensure!(stored.get_str("role")? == "admin", "{stored}");
    ensure!(stored.get_str("password")?.starts_with("$argon2id$"), "{stored}");
    fixture
        .expect(&["user", "add", "ashley", "--role", "viewer"], 255, "there is a user ashley already")
        .await?;
    ensure!(fixture.user("ashley").await? == stored, "ashley was changed");

    let on_mail = format!("{}=viewer", fixture.queue);
    let robin = ["user", "add", "robin", "--queue", &on_mail, "--tenant", "acme=submitter", "--no-password"];
    let words = "Added user robin: viewer on queue mail, submitter on the queues of acme; no password\n";
    fixture.expect(&robin, 0, words).await?;
    let stored = fixture.user("robin").await?;
    ensure!(stored.get("password").is_none() && stored.get("role").is_none(), "{stored}");
    let expected: Vec<Bson> = vec![
        doc! { "queue": fixture.queue, "role": "viewer" }.into(),
        doc! { "tenant": "acme", "role": "submitter" }.into(),
    ];
    ensure!(*stored.get_array("grants")? == expected, "{stored}");

    let grant =
        ["user", "grant", "robin", "--role", "viewer", "--queue", "mail=operator", "--revoke-tenant", "acme"];
    fixture.expect(&grant, 0, "User robin: viewer on all queues, operator on queue mail\n").await?;
    fixture.expect(&["user", "grant", "robin"], 255, "nothing to change").await?;
    fixture.expect(&["user", "grant", "robin", "--revoke-tenant", "acme"], 255, "to be revoked").await?;
    fixture.expect(&["user", "grant", "sam", "--no-role"], 255, "there is no user sam").await?;
    fixture
        .expect(&["user", "grant", "robin", "--no-role"], 0, "User robin: operator on queue mail\n")
        .await?;
    fixture.expect(&["user", "grant", "ashley", "--role", "operator"], 0, "Nobody is an admin").await?;

    fixture.expect(&["user", "remove", "ashley"], 0, "Nobody is an admin").await?;
    fixture.expect(&["user", "remove", "ashley"], 255, "there is no user ashley").await?;
    fixture.expect(&["user", "remove", "robin"], 0, "There are no users any more").await?;
    let done =
        ["user add ashley", "user add robin", "user change robin", "user change robin", "user change ashley"];
    let done = [&done[..], &["user remove ashley", "user remove robin"]].concat();
    ensure!(fixture.audit().await? == done, "{:?}", fixture.audit().await?);
    fixture.database.drop_database().await
}

#[tokio::test]
async fn passwords_come_from_wherever_they_are() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    let short = fixture.run(&["user", "add", "ashley", "--admin"], "short\n").await?;
    ensure!(short.code == Some(255) && short.stderr.contains("10 to 1024 characters"), "{}", short.stderr);
    let none = fixture.run(&["user", "add", "ashley", "--admin"], "\n").await?;
    ensure!(none.code == Some(255) && none.stderr.contains("DISBATCH_USER_PASSWORD"), "{}", none.stderr);
    fixture.expect(&["user", "add", "ashley", "--admin"], 0, "Added user ashley").await?;
    let before = fixture.user("ashley").await?;
    let session = doc! { "user": "ashley" };
    fixture.all("accounts.sessions").insert_one(&session).await?;

    let mut command = disbatch();
    command.args(["user", "passwd", "ashley", "--config"]).arg(fixture.folder.path().join("config.json"));
    let output =
        command.env("DISBATCH_USER_PASSWORD", "another password").stdin(Stdio::null()).output().await?;
    ensure!(output.status.success(), "{output:?}");
    let after = fixture.user("ashley").await?;
    ensure!(after.get_str("password")? != before.get_str("password")?, "it is the same");
    ensure!(fixture.all("accounts.sessions").count_documents(session).await? == 0, "a session goes on");
    fixture.expect(&["user", "passwd", "sam"], 255, "there is no user sam").await?;
    fixture.database.drop_database().await
}

#[tokio::test]
async fn tokens_are_made_shown_and_revoked() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    fixture.expect(&["user", "add", "robin", "--role", "viewer", "--tenant", "acme=operator"], 0, "").await?;
    fixture.expect(&["token", "create", "nightly", "--user", "sam"], 255, "there is no user sam").await?;
    let too_much = ["token", "create", "nightly", "--user", "robin", "--role", "admin"];
    fixture.expect(&too_much, 255, "robin has no role above operator").await?;
    fixture
        .expect(&["token", "create", "x", "--user", "robin", "--queue", "post"], 255, "no queue 'post'")
        .await?;
    fixture.expect(&["token", "create", "x", "--user", "robin", "--days", "0"], 2, "--days").await?;
    ensure!(fixture.all("accounts.tokens").count_documents(doc! {}).await? == 0, "a token was made");

    let options = ["--user", "robin", "--role", "submitter", "--queue", "mail", "--days", "7"];
    let made = fixture
        .expect(&[&["token", "create", "nightly"][..], &options].concat(), 0, "good for 7 days")
        .await?;
    let text = made.stdout.strip_suffix('\n').context("no line")?;
    ensure!(text.starts_with("disbatch_") && text.len() == 76 && !text.contains('\n'), "{text}");
    ensure!(made.stderr.contains("no more than submitter, on mail alone"), "{}", made.stderr);
    ensure!(!made.stderr.contains(text), "the token is told twice: {}", made.stderr);
    fixture
        .expect(&["token", "create", "endless", "--user", "robin", "--endless"], 0, "until it is revoked")
        .await?;
    let both = ["token", "create", "x", "--user", "robin", "--endless", "--days", "1"];
    fixture.expect(&both, 2, "cannot be used with").await?;
    let stored =
        fixture.all("accounts.tokens").find_one(doc! { "name": "nightly" }).await?.context("no token")?;
    ensure!(!stored.to_string().contains(text.get(33..).context("no secret")?), "{stored}");
    ensure!(stored.get_datetime("expires")? > stored.get_datetime("created")?, "{stored}");

    let listed = fixture.expect(&["token", "list", "--format", "json"], 0, "").await?;
    let listed: Value = serde_json::from_str(&listed.stdout)?;
    let named = |name: &str| {
        let found = listed.as_array().into_iter().flatten().find(|token| token["name"] == name);
        found.with_context(|| format!("no {name} in {listed}"))
    };
    let (endless, nightly) = (named("endless")?, named("nightly")?);
    ensure!(
        endless["name"] == "endless" && endless["role"] == "operator" && endless["queues"].is_null(),
        "{listed}"
    );
    ensure!(nightly["queues"] == json!([{ "queue": fixture.queue.to_hex(), "name": "mail" }]), "{listed}");
    fixture.expect(&["token", "list", "--user", "sam"], 0, "0 total tokens.").await?;

    let id = nightly["id"].as_str().context("no id")?;
    ensure!(made.stderr.contains(id), "{}", made.stderr);
    fixture.expect(&["token", "revoke", id], 0, "Revoked the token \"nightly\" of robin.").await?;
    fixture.expect(&["token", "revoke", id], 255, "there is no token").await?;
    fixture.expect(&["token", "revoke", "6b"], 2, "disbatch token list").await?;
    fixture.expect(&["user", "passwd", "robin"], 0, "Tokens of robin stay valid (1)").await?;
    fixture.expect(&["user", "remove", "robin"], 0, "with all sessions and tokens").await?;
    ensure!(fixture.all("accounts.tokens").count_documents(doc! {}).await? == 0, "tokens of nobody are left");
    let done = ["user add robin", "token create nightly", "token create endless", "token revoke nightly"];
    let done = [&done[..], &["user change robin", "user remove robin"]].concat();
    ensure!(fixture.audit().await? == done, "{:?}", fixture.audit().await?);
    fixture.database.drop_database().await
}

#[tokio::test]
async fn users_are_listed_for_people_and_for_programs() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    fixture.expect(&["user", "add", "ashley", "--admin"], 0, "").await?;
    fixture.expect(&["user", "add", "robin", "--queue", "mail=operator", "--no-password"], 0, "").await?;
    let table = fixture.expect(&["user", "list"], 0, "ashley | admin         |").await?.stdout;
    ensure!(table.contains("robin  |               | mail=operator | no       | 0      | "), "{table}");
    ensure!(table.ends_with("\n2 total users.\n"), "{table}");
    let listed = fixture.expect(&["user", "list", "--format", "json"], 0, "").await?.stdout;
    let listed: Value = serde_json::from_str(&listed)?;
    ensure!(listed[0]["name"] == "ashley" && listed[0]["password"] == true, "{listed}");
    let grant = json!([{ "queue": fixture.queue.to_hex(), "name": "mail", "role": "operator" }]);
    ensure!(listed[1]["grants"] == grant && listed[1]["role"].is_null(), "{listed}");
    ensure!(!listed.to_string().contains("argon2"), "{listed}");
    fixture.expect(&["user", "list", "--format", "yaml"], 0, "  name: ashley\n").await?;
    fixture.database.drop_database().await
}

#[tokio::test]
async fn wrong_configurations_are_named() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("cli.json");
    std::fs::write(&path, r#"{"url":"http://localhost:8080"}"#)?;
    let output = disbatch().args(["user", "list", "--config"]).arg(&path).output().await?;
    let text = String::from_utf8(output.stderr)?;
    ensure!(
        output.status.code() == Some(255) && text.contains("mongohost and database: must be defined"),
        "{text}"
    );
    std::fs::write(
        &path,
        r#"{"mongohost":"mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=200","database":"d"}"#,
    )?;
    let output = disbatch().args(["user", "list", "--config"]).arg(&path).output().await?;
    let text = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(255) && text.contains("cannot reach MongoDB"), "{text}");
    Ok(())
}
