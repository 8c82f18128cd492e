//! The line that brings a task to a warm plugin.

use std::io;

use serde::Serialize;

use crate::plugin::{Job, task_json, variables};

/// The line, with its line break. It has no other one.
///
/// # Errors
/// The task cannot be written as JSON.
pub fn of(job: &Job<'_>) -> io::Result<Vec<u8>> {
    let task = task_json(job.task)?;
    let mut line = Vec::with_capacity(2 * task.len() + 1024);
    line.extend_from_slice(b"{\"task\":");
    line.extend_from_slice(task.trim_end().as_bytes());
    for (index, (name, value)) in variables(job).into_iter().enumerate() {
        line.extend_from_slice(if index == 0 { b",\"env\":{" } else { b"," });
        append(&mut line, name)?;
        line.push(b':');
        append(&mut line, &value)?;
    }
    line.extend_from_slice(b"},\"work_dir\":");
    append(&mut line, &job.folder.to_string_lossy())?;
    line.extend_from_slice(b"}\n");
    Ok(line)
}

fn append(line: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) -> io::Result<()> {
    Ok(serde_json::to_writer(line, value)?)
}
