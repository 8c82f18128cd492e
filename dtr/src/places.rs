//! Where each stream goes: into the task, or to GridFS.

use bson::Document;
use disbatch_core::budget;
use disbatch_core::config::Gfs;
use disbatch_core::model::Task;

/// Output of both streams together, or standard error alone, is kept in the task up to this many bytes
/// (`gfs: auto`).
const INLINE_LIMIT: u64 = 15 * 1024 * 1024;

/// MongoDB's limit for a document.
const DOCUMENT_LIMIT: u64 = budget::DOCUMENT as u64;

/// Room for the fields that the end of a task adds.
const RESERVE: u64 = budget::END as u64;

/// Where a stream goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The task's document.
    Task,
    /// A file.
    GridFs,
    /// Nowhere: it does not fit into the task, and GridFS is not wanted.
    Nowhere,
}

/// What decides where a stream goes.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Bytes.
    pub length: u64,
    /// Whether they are no text.
    pub binary: bool,
}

/// How many bytes of output the task's document has room for.
pub fn room_in(task: &Task, result: Option<&Document>) -> u64 {
    let size = |bytes: Result<Vec<u8>, _>| bytes.map_or(DOCUMENT_LIMIT, |bytes| bytes.len() as u64);
    let taken =
        size(bson::serialize_to_vec(task)) + result.map_or(0, |result| size(bson::serialize_to_vec(result)));
    DOCUMENT_LIMIT.saturating_sub(taken + RESERVE)
}

/// Disbatch's rule for `gfs`. Output that is no text cannot be kept in a task, so it goes to GridFS in any case.
pub fn places(gfs: Gfs, room: u64, [stdout, stderr]: [Shape; 2]) -> [Place; 2] {
    let inline = |stream: &Shape| if stream.binary { 0 } else { stream.length };
    let both = inline(&stdout) + inline(&stderr);
    let limit = INLINE_LIMIT.min(room);
    let [out, err] = match gfs {
        Gfs::Always => [Place::GridFs, Place::GridFs],
        Gfs::Auto if both <= limit => [Place::Task, Place::Task],
        Gfs::Auto if inline(&stderr) <= limit => [Place::GridFs, Place::Task],
        Gfs::Auto => [Place::GridFs, Place::GridFs],
        Gfs::Never if both <= room => [Place::Task, Place::Task],
        Gfs::Never if inline(&stderr) <= room => [Place::Nowhere, Place::Task],
        Gfs::Never => [Place::Nowhere, Place::Nowhere],
    };
    let place = |stream: Shape, place| if stream.binary { Place::GridFs } else { place };
    [place(stdout, out), place(stderr, err)]
}

/// Whether a stream that has come so far goes to GridFS, whatever it and the other one still become.
pub fn is_for_gridfs(gfs: Gfs, so_far: Shape) -> bool {
    let as_text = match gfs {
        Gfs::Always => true,
        // Should it turn out to be no text, it goes there as well.
        Gfs::Auto => so_far.length > INLINE_LIMIT,
        Gfs::Never => false,
    };
    as_text || so_far.binary
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1024 * 1024;
    const ROOM: u64 = DOCUMENT_LIMIT - RESERVE - 500;

    fn text(length: u64) -> Shape {
        Shape { length, binary: false }
    }

    #[test]
    fn output_goes_where_disbatch_puts_it() {
        use Place::{GridFs, Nowhere, Task};
        let cases = [
            (Gfs::Auto, text(3), text(0), [Task, Task]),
            (Gfs::Auto, text(15 * MIB), text(0), [Task, Task]),
            (Gfs::Auto, text(15 * MIB), text(1), [GridFs, Task]),
            (Gfs::Auto, text(16 * MIB - 200), text(5), [GridFs, Task]),
            (Gfs::Auto, text(17 * MIB), text(5), [GridFs, Task]),
            (Gfs::Auto, text(1), text(15 * MIB), [GridFs, Task]),
            (Gfs::Auto, text(0), text(15 * MIB + 1), [GridFs, GridFs]),
            (Gfs::Always, text(3), text(0), [GridFs, GridFs]),
            (Gfs::Never, text(3), text(0), [Task, Task]),
            (Gfs::Never, text(17 * MIB), text(5), [Nowhere, Task]),
            (Gfs::Never, text(17 * MIB), text(17 * MIB), [Nowhere, Nowhere]),
        ];
        for (gfs, stdout, stderr, expected) in cases {
            assert_eq!(places(gfs, ROOM, [stdout, stderr]), expected, "{gfs:?} {stdout:?} {stderr:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_kept_in_gridfs_whatever_the_mode() {
        for gfs in [Gfs::Auto, Gfs::Always, Gfs::Never] {
            let binary = Shape { length: 3, binary: true };
            assert_eq!(places(gfs, ROOM, [binary, text(2)])[0], Place::GridFs);
        }
        let binary = Shape { length: 17 * MIB, binary: true };
        assert_eq!(places(Gfs::Auto, ROOM, [binary, text(2)]), [Place::GridFs, Place::Task]);
    }

    #[test]
    fn large_parameters_leave_less_room() {
        assert_eq!(places(Gfs::Auto, MIB, [text(2 * MIB), text(5)]), [Place::GridFs, Place::Task]);
    }

    prop_compose! {
        fn any_shape()(length in 0..40 * MIB, binary in any::<bool>()) -> Shape {
            Shape { length, binary }
        }
    }

    proptest! {
        #[test]
        fn what_is_known_early_holds_at_the_end(
            gfs in prop::sample::select(vec![Gfs::Always, Gfs::Auto, Gfs::Never]),
            room in 0..ROOM,
            (so_far, more, turns, other) in (any_shape(), 0..9 * MIB, any::<bool>(), any_shape()),
        ) {
            prop_assume!(is_for_gridfs(gfs, so_far));
            let ended = Shape { length: so_far.length + more, binary: so_far.binary || turns };
            prop_assert_eq!(places(gfs, room, [ended, other])[0], Place::GridFs);
            prop_assert_eq!(places(gfs, room, [other, ended])[1], Place::GridFs);
        }
    }
}
