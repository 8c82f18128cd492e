//! The crates lie in layers, as ARCHITECTURE.md shows them: each uses those below it alone.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::Context;
use serde_json::Value;

/// From the bottom up.
const LAYERS: [&[&str]; 7] = [
    &[
        "disbatch-client",
        "disbatch-metrics",
        "disbatch-model",
        "disbatch-mongod",
        "disbatch-operation",
        "disbatch-plugin",
        "disbatch-values",
    ],
    &[
        "disbatch-adapter",
        "disbatch-compare",
        "disbatch-documents",
        "disbatch-plugin-demo",
        "disbatch-plugin-shell",
        "disbatch-wire",
    ],
    &[
        "disbatch-container",
        "disbatch-host",
        "disbatch-http",
        "disbatch-kubernetes",
        "disbatch-plugin-notify",
    ],
    &["disbatch-core"],
    &["disbatch-traces"],
    &["disbatch-cli", "disbatch-dci", "disbatch-den", "disbatch-dtr"],
    &["disbatch-bench", "disbatch-hostile", "disbatch-local", "disbatch-tests"],
];

/// What speaks to a database: the store, and what starts, measures and tests servers. A client only if it is asked for.
const WITH_DRIVER: [&str; 5] =
    ["disbatch-bench", "disbatch-client", "disbatch-core", "disbatch-mongod", "disbatch-tests"];

/// The packages of the workspace, and what each is built with.
fn packages() -> anyhow::Result<BTreeMap<String, Vec<String>>> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
        .output()?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let name = |value: &Value| value["name"].as_str().map(str::to_owned).context("no name");
    let needs = |package: &Value| -> anyhow::Result<Vec<String>> {
        let all = package["dependencies"].as_array().context("no dependencies")?;
        all.iter().filter(|needed| needed["kind"] != "dev").map(name).collect()
    };
    let all = metadata["packages"].as_array().context("no packages")?;
    all.iter().map(|package| Ok((name(package)?, needs(package)?))).collect()
}

#[test]
fn each_crate_uses_those_below_it_alone() -> anyhow::Result<()> {
    let packages = packages()?;
    let mut layers: BTreeMap<&str, usize> = BTreeMap::new();
    for (layer, names) in LAYERS.iter().enumerate() {
        layers.extend(names.iter().map(|name| (*name, layer)));
    }
    let known: Vec<&str> = layers.keys().copied().collect();
    let there: Vec<&str> = packages.keys().map(String::as_str).collect();
    assert_eq!(there, known, "each crate has its layer");
    let is_upward = |name: &str, needed: &str| layers.get(needed).is_some_and(|layer| *layer >= layers[name]);
    for (name, needs) in &packages {
        let upward: Vec<&String> = needs.iter().filter(|needed| is_upward(name, needed)).collect();
        assert!(upward.is_empty(), "{name} uses {upward:?}, which are not below it");
    }
    // So that the test can fail.
    assert!(
        is_upward("disbatch-documents", "disbatch-core") && !is_upward("disbatch-core", "disbatch-documents")
    );
    Ok(())
}

#[test]
fn the_store_alone_knows_the_driver() -> anyhow::Result<()> {
    let with_driver =
        packages()?.into_iter().filter(|(_, needs)| needs.iter().any(|needed| needed == "mongodb"));
    assert_eq!(with_driver.map(|(name, _)| name).collect::<Vec<_>>(), WITH_DRIVER);
    Ok(())
}
