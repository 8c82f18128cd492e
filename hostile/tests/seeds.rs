//! The checks of the fuzz targets, with the seeds from which a fuzzer starts, and with what is random.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use disbatch_hostile::CHECKS;
use proptest::prelude::*;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus-seeds")
}

/// A seed whose name begins with `bad` makes no sense, one with `any` may make some; all others do.
#[test]
fn seeds_hold_and_make_sense() -> anyhow::Result<()> {
    for (target, check) in CHECKS {
        let folder = folder().join(target);
        let mut seeds = 0;
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).context("odd name")?.to_owned();
            let makes_sense = check(&std::fs::read(&path)?);
            ensure!(name.starts_with("any") || makes_sense != name.starts_with("bad"), "{target}/{name}");
            seeds += 1;
        }
        ensure!(seeds >= 5, "{target} has {seeds} seeds");
    }
    Ok(())
}

#[test]
fn each_target_has_its_check() -> anyhow::Result<()> {
    let mut targets = Vec::new();
    for entry in std::fs::read_dir(folder().with_file_name("fuzz_targets"))? {
        let name = entry?.path().file_stem().and_then(|name| name.to_str()).context("odd name")?.to_owned();
        targets.push(name);
    }
    targets.sort_unstable();
    let checks: Vec<String> = CHECKS.iter().map(|(target, _)| (*target).to_owned()).collect();
    ensure!(targets == checks, "{targets:?} {checks:?}");
    Ok(())
}

fn all_seeds() -> Vec<(usize, Vec<u8>)> {
    let mut all = Vec::new();
    for (number, (target, _)) in CHECKS.iter().enumerate() {
        let entries = std::fs::read_dir(folder().join(target)).into_iter().flatten().flatten();
        all.extend(entries.filter_map(|entry| Some((number, std::fs::read(entry.path()).ok()?))));
    }
    all
}

proptest! {
    #[test]
    fn seeds_hold_whatever_is_changed_in_them(
        (number, mut seed) in prop::sample::select(all_seeds()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        for (place, byte) in changes {
            let place = place.index(seed.len());
            seed[place] = byte;
        }
        if is_cut {
            seed.truncate(cut.index(seed.len()));
        }
        let (_, check) = CHECKS[number];
        check(&seed);
    }

    #[test]
    fn random_bytes_hold(number in 0..CHECKS.len(), bytes in any::<Vec<u8>>()) {
        let (_, check) = CHECKS[number];
        check(&bytes);
    }
}
