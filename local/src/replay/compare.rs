//! What came out of a run the first time, and the second.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use bson::DateTime;
use disbatch_compare::{AttemptOutcome, Both, Comparison, LeftFile, Masks, OtherVersion, StepEnd};
use disbatch_core::model::{PluginName, STEPS, Step, Version};
use disbatch_core::plugin::Plugin;
use disbatch_dtr::local::Rehearsed;
use disbatch_wire::bundles::RecordedPlugin;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::bundle::Run;

/// After so long a difference is one that is easily found, and not the smallest.
const TAKES: Duration = Duration::from_secs(5);

pub fn compare(
    run: &Run,
    (ended, output): (&Rehearsed, &[Vec<u8>; 2]),
    masks: &Masks,
    (other_versions, changed_files): (Vec<OtherVersion>, Option<Vec<String>>),
) -> Comparison {
    let outcome = &run.bundle.outcome;
    let whole = ["stdout", "stderr"].map(|name| {
        let stream = run.bundle.streams.iter().find(|stream| stream.name == name);
        stream.filter(|stream| stream.included < stream.length).map(|stream| stream.length)
    });
    let was = AttemptOutcome {
        status: outcome.status,
        exit: outcome.exit.as_ref(),
        result: outcome.result.as_ref(),
        output: [&run.output[0], &run.output[1]],
        whole,
    };
    let is = AttemptOutcome {
        status: ended.status,
        exit: ended.exit.as_ref(),
        result: ended.result.as_ref(),
        output: [&output[0], &output[1]],
        whole: [None; 2],
    };
    Comparison {
        steps: steps(run, ended),
        files: left(run, ended),
        other_versions,
        changed_files,
        note: ended.note.clone(),
        ..Comparison::between(&was, &is, masks, Some(TAKES))
    }
}

/// By name, order, and how they ended; none if a release has made the bundle that does not tell.
fn steps(run: &Run, ended: &Rehearsed) -> Option<Both<Vec<StepEnd>>> {
    let steps = &run.bundle.outcome.steps;
    if steps.is_empty() {
        return None;
    }
    let time =
        |text: &Option<String>| Some(DateTime::parse_rfc3339_str(text.as_ref()?).ok()?.timestamp_millis());
    let was: Vec<StepEnd> = steps
        .iter()
        .map(|step| {
            let took = time(&step.started).zip(time(&step.ended));
            let took = took.map(|(from, to)| Duration::from_millis(to.saturating_sub(from).unsigned_abs()));
            StepEnd {
                name: step.name.clone(),
                status: step.status,
                seconds: took.map(|took| took.as_secs_f64()),
            }
        })
        .collect();
    let asked = run.task.get(STEPS).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let name = |index: usize| {
        let name =
            asked.get(index).and_then(|step| step.get("name")?.as_str()).filter(|name| !name.is_empty());
        name.map_or_else(|| Step::default_name(index), str::to_owned)
    };
    let is: Vec<StepEnd> = ended
        .steps
        .iter()
        .enumerate()
        .map(|(index, (status, seconds))| StepEnd { name: name(index), status: *status, seconds: *seconds })
        .collect();
    let ends =
        |steps: &[StepEnd]| steps.iter().map(|step| (step.name.clone(), step.status)).collect::<Vec<_>>();
    let same = ends(&was) == ends(&is);
    Some(Both { was, is, same })
}

/// None if it is not known what was left.
fn left(run: &Run, ended: &Rehearsed) -> Option<Both<Vec<LeftFile>>> {
    let was = run.bundle.files.as_ref()?.output.as_ref()?.files.as_ref()?;
    let was = was.iter().map(|file| LeftFile {
        path: file.path.clone(),
        size: file.size,
        sha256: file.sha256.clone(),
    });
    let is = ended.left.iter().flatten().map(|file| LeftFile {
        path: file.path.clone(),
        size: file.size,
        sha256: file.sha256.clone(),
    });
    let mut was: Vec<LeftFile> = was.collect();
    was.sort();
    Some(Both::new(was, is.collect()))
}

/// The plugin in both versions, if the one that is here is not the one that ran.
pub fn version(run: &Run, name: &PluginName, plugin: &Plugin) -> Option<OtherVersion> {
    let (was, is) = (run.version(name)?, plugin.manifest.version().ok().flatten());
    let text = |version: &Version| version.as_str().to_owned();
    (is.as_ref() != Some(&was)).then(|| OtherVersion {
        plugin: name.to_string(),
        was: text(&was),
        is: is.as_ref().map(text),
    })
}

/// Which files of the plugin are not what was recorded, by their names. `only_program`: it has no others here.
pub fn files(recorded: &RecordedPlugin, plugin: &Plugin, only_program: bool) -> Vec<String> {
    let most = if only_program { 1 } else { usize::MAX };
    let recorded: Vec<_> = recorded.files.iter().take(most).collect();
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let was: BTreeSet<(String, String)> = recorded
        .iter()
        .filter_map(|file| Some((name(Path::new(&file.path)), file.sha256.clone()?)))
        .collect();
    let is: BTreeSet<(String, String)> =
        plugin.files().iter().take(most).filter_map(|path| Some((name(path), sum(path).ok()?))).collect();
    // A file that is read for its sum here may have been too large there.
    let unread: BTreeSet<String> = recorded
        .iter()
        .filter(|file| file.sha256.is_none())
        .map(|file| name(Path::new(&file.path)))
        .collect();
    let changed: BTreeSet<String> = was.symmetric_difference(&is).map(|(name, _)| name.clone()).collect();
    changed.difference(&unread).cloned().collect()
}

fn sum(path: &Path) -> io::Result<String> {
    let (mut file, mut digest) = (File::open(path)?, Sha256::new());
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match io::Read::read(&mut file, &mut buffer)? {
            0 => return Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
            read => digest.update(&buffer[..read]),
        }
    }
}
