//! Does what the tutorials say, and compares what comes out with what they show. See "The documentation" in CONTRIBUTING.md for how pages are marked.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use disbatch_tests::{Dci, World, binary, finish};
use regex::Regex;
use serde_json::json;
use tokio::process::Command;

/// Ends what a block prints.
const END: char = '\u{1e}';

/// The program that `docs/tutorials/plugin-rust.md` builds, built together with the tests.
const PRIMES: &str = include_str!("../../../plugins/sdk/examples/primes.rs");

/// A block, with the line before it that says what it is.
const BLOCK: &str = r"(?sm)(?:^<!-- (?<mark>[^\n]*) -->\n)?^```(?<language>\w*)\n(?<text>.*?)^```$";

const ID: &str = "[0-9a-f]{24}";

/// A block of a page.
#[derive(Debug)]
enum Block {
    /// The reader makes this file.
    File { path: String, text: String },
    /// The reader runs this, and sees that.
    Commands { text: String, shows: String },
    /// The reader runs `disbatch dev` in another terminal, with this folder of plugins.
    Start { plugins: Option<String> },
    /// The program of the page is built, from the source that is among the tests' own.
    Build,
}

fn blocks(page: &str) -> anyhow::Result<Vec<Block>> {
    let mut blocks = Vec::new();
    let block = Regex::new(BLOCK)?;
    for found in block.captures_iter(page) {
        let text = found["text"].to_owned();
        let mark = found.name("mark").map_or("", |mark| mark.as_str());
        match (mark.split_once(": ").unwrap_or((mark, "")), &found["language"], blocks.last_mut()) {
            (("file", path), _, _) => blocks.push(Block::File { path: path.to_owned(), text }),
            (("another terminal", _), "sh", _) => {
                let plugins = match text.trim().split(' ').collect::<Vec<_>>()[..] {
                    ["disbatch", "dev"] => None,
                    ["disbatch", "dev", "--plugins", folder] => Some(folder.to_owned()),
                    _ => bail!("this is not how everything is started: {text}"),
                };
                blocks.push(Block::Start { plugins });
            }
            (("built elsewhere", _), "sh", _) => blocks.push(Block::Build),
            (("not run", _), "sh", _) => {}
            (("", _), "sh", _) => blocks.push(Block::Commands { text, shows: String::new() }),
            (("", _), "text", Some(Block::Commands { shows, .. })) => *shows = text,
            // What others have: a crontab, a script for Slurm.
            (("", _), "", _) => {}
            (mark, language, _) => {
                bail!("nobody does anything with a block of {language:?} after {mark:?}: {text}")
            }
        }
    }
    Ok(blocks)
}

/// What a reader does on the page, with `text` as the page.
async fn follow(text: &str) -> anyhow::Result<()> {
    let blocks = blocks(text)?;
    let commands = blocks.iter().filter(|block| matches!(block, Block::Commands { .. })).count();
    ensure!(commands > 0, "there is nothing to do");
    let world = World::new().await?;
    let python = python_path().await?;
    let mut dci = None;
    let mut den = None;
    let mut rest = &blocks[..];
    while !rest.is_empty() {
        let end = rest.iter().position(|block| matches!(block, Block::Start { .. })).unwrap_or(rest.len());
        run(&world, &rest[..end], dci.as_ref(), &python).await?;
        if let Some(Block::Start { plugins }) = rest.get(end) {
            world.configure(json!({ "plugin_dirs": plugins.iter().collect::<Vec<_>>() }))?;
            den = Some(world.den_in("here", &[], &[("PYTHONPATH", &python)])?);
            dci = Some(Dci::start(&world.config(), &world.path().join("dci.log")).await?);
        }
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    drop((den, dci));
    world.end().await
}

/// Runs these in one shell, as a reader does.
async fn run(world: &World, blocks: &[Block], dci: Option<&Dci>, python: &str) -> anyhow::Result<()> {
    let mut script = "set -eu\n".to_owned();
    let mut shown = Vec::new();
    for block in blocks {
        match block {
            Block::File { path, text } => {
                let folder =
                    Path::new(path).parent().and_then(Path::to_str).filter(|folder| !folder.is_empty());
                let folder = folder.unwrap_or(".");
                script.push_str(&format!(
                    "mkdir -p {folder}\ncat >{path} <<'END OF FILE'\n{text}END OF FILE\n"
                ));
                ensure!(
                    !path.ends_with("main.rs") || PRIMES.contains(text),
                    "another program is built: {text}"
                );
            }
            Block::Build => {
                let program = binary("examples/primes")?;
                script.push_str("mkdir -p primes/target/release\n");
                script.push_str(&format!("cp {} primes/target/release/my-primes\n", program.display()));
            }
            Block::Start { .. } => {}
            Block::Commands { text, shows } => {
                script.push_str(&format!("{text}printf '\\036'\n"));
                shown.push((text, shows));
            }
        }
    }
    let programs = binary("disbatch")?.parent().context("no folder")?.to_owned();
    let mut path = OsString::from(programs);
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let home = world.path().join("home");
    std::fs::create_dir_all(&home)?;
    let mut bash = Command::new("bash");
    bash.args(["-c", &script])
        .current_dir(world.path())
        .env("PATH", path)
        .env("HOME", home)
        .env("PYTHONPATH", python);
    bash.env("DISBATCH_URL", dci.map_or("http://127.0.0.1:1", Dci::url)).env_remove("DISBATCH_TOKEN");
    let ended = finish(&mut bash).await?;
    let folder = world.path().to_str().context("no text")?;
    let printed = ended.stdout.replace(folder, "/home/you");
    let id = Regex::new(ID)?;
    let outputs: Vec<&str> = printed.split_terminator(END).collect();
    for (number, (text, shows)) in shown.iter().enumerate() {
        let output = outputs.get(number).with_context(|| format!("{text}{}", ended.stderr))?;
        // Ids are others each time.
        let same = |text: &str| id.replace_all(text.trim_end(), "ID").into_owned();
        assert_eq!(same(output), same(shows), "{text}{}", ended.stderr);
    }
    ensure!(ended.status.success(), "{}{}", ended.stdout, ended.stderr);
    Ok(())
}

/// Where Python finds the client library and what it needs.
async fn python_path() -> anyhow::Result<String> {
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients").canonicalize()?;
    let tools = finish(Command::new("python3").arg(clients.join("conformance/tools.py"))).await?;
    ensure!(tools.status.success(), "{}", tools.stderr);
    Ok(format!("{}:{}", clients.join("python/src").display(), tools.stdout.trim()))
}

macro_rules! tutorials {
    ($($test:ident: $page:literal $(with $from:literal as $to:literal)*,)*) => {
        /// All that have a test.
        const ALL: &[&str] = &[$($page),*];

        $(
            #[tokio::test]
            async fn $test() -> anyhow::Result<()> {
                let page = include_str!(concat!("../../../docs/tutorials/", $page));
                $(
                    ensure!(page.contains($from), "{} is not on the page", $from);
                    let page = page.replace($from, $to);
                )*
                follow(&page).await
            }
        )*
    };
}

tutorials! {
    first_queue: "first-queue.md",
    plugin_in_python: "plugin-python.md",
    plugin_in_shell: "plugin-shell.md",
    plugin_in_rust: "plugin-rust.md",
    plugin_in_perl: "plugin-perl.md",
    // Where messages go is not run, and so needs no key.
    nightly: "nightly.md" with "DISBATCH_SECRETS_KEY=$(disbatch secrets-key) disbatch dev" as "disbatch dev",
    // The same with fewer: ten thousand take minutes where nothing is optimised.
    fan_out: "fan-out.md" with "0-9999%4" as "0-199%4" with " 10000 succeeded" as " 200 succeeded" with "99980001" as "39601",
    from_perl_disbatch: "from-perl-disbatch.md",
    from_cron: "from-cron.md",
    from_celery: "from-celery.md",
    from_slurm: "from-slurm.md",
}

#[test]
fn every_tutorial_is_followed() -> anyhow::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tutorials");
    let pages: Result<BTreeSet<OsString>, _> =
        folder.read_dir()?.map(|entry| entry.map(|entry| entry.file_name())).collect();
    assert_eq!(pages?, ALL.iter().map(OsString::from).collect());
    Ok(())
}

#[tokio::test]
async fn every_link_of_the_documentation_leads_somewhere() -> anyhow::Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/docs");
    let checked = finish(Command::new(script).arg("--check")).await?;
    assert!(checked.status.success(), "{}", checked.stderr);
    assert!(checked.stdout.contains("every link leads to one"), "{}", checked.stdout);
    Ok(())
}
