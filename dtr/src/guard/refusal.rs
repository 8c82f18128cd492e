//! Why the system starts no plugin, in words, and for how long that is borne.

use std::io;
use std::time::Duration;

use nix::errno::Errno;

/// So long it is tried again to start a process where the system lets no more be started.
const LONGEST: Duration = Duration::from_secs(10);

/// The first pause. Each one is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What a complaint begins with that may be over soon.
const FOR_NOW: &str = "for now: ";

/// The error in words of our own, where the system's say little.
pub fn in_words(error: io::Error) -> io::Error {
    if error.raw_os_error() == Some(Errno::ENOEXEC as i32) {
        return io::Error::new(error.kind(), "it has no #! line, or is no program of this machine");
    }
    error
}

/// Whether there are too many processes at this moment, which may be over soon (`EAGAIN`).
pub fn is_for_now(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Says of a command of a task's that it cannot be started as it is.
#[derive(Debug, thiserror::Error)]
#[error("the command cannot be started as it is: {0}")]
struct NotDirect(io::Error);

/// The error with which a command of a task's was not started: another program has to say why, unless that may be over soon.
pub fn not_direct(error: io::Error) -> io::Error {
    if is_for_now(&error) { error } else { io::Error::other(NotDirect(error)) }
}

pub fn is_not_direct(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<NotDirect>())
}

/// The error of what was tried for long enough.
pub fn in_vain(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{error}; it was tried for {} s", LONGEST.as_secs()))
}

/// What the step between guard and plugin says of an error.
pub fn complaint(error: &io::Error) -> String {
    if is_for_now(error) { format!("{FOR_NOW}{error}") } else { error.to_string() }
}

pub fn of_complaint(complaint: &str) -> io::Error {
    match complaint.strip_prefix(FOR_NOW) {
        Some(error) => io::Error::new(io::ErrorKind::WouldBlock, error),
        None => io::Error::other(complaint),
    }
}

/// When to try again what the system refuses for now. Times are those of [`crate::boot_time`].
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    ends: Duration,
    pause: Duration,
    due: Duration,
}

impl Patience {
    /// After the first refusal.
    pub fn new(now: Duration) -> Self {
        let ends = now.saturating_add(LONGEST);
        Self { ends, pause: FIRST_PAUSE, due: now.saturating_add(FIRST_PAUSE) }
    }

    pub fn left(&self, now: Duration) -> Duration {
        self.due.saturating_sub(now)
    }

    /// After another refusal: whether there is to be another attempt.
    pub fn goes_on(&mut self, now: Duration) -> bool {
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.due = now.saturating_add(self.pause).min(self.ends);
        now < self.ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_for_now_is_known_on_the_other_side() {
        let busy = io::Error::from(Errno::EAGAIN);
        let other = io::Error::from(Errno::EACCES);
        for error in [&busy, &other] {
            let heard = of_complaint(&complaint(error));
            assert_eq!(heard.to_string(), error.to_string());
            assert_eq!(is_for_now(&heard), is_for_now(error));
        }
        assert!(is_for_now(&busy) && !is_for_now(&other));
    }

    #[test]
    fn a_command_is_left_to_others_only_if_it_cannot_be_started_at_all() {
        assert!(is_not_direct(&not_direct(Errno::ENOENT.into())));
        let busy = not_direct(Errno::EAGAIN.into());
        assert!(is_for_now(&busy) && !is_not_direct(&busy) && !is_not_direct(&in_vain(&busy)));
    }

    #[test]
    fn words_are_ours_where_the_systems_say_little() {
        let text = |errno: Errno| in_words(errno.into()).to_string();
        assert_eq!(text(Errno::ENOEXEC), "it has no #! line, or is no program of this machine");
        assert_eq!(text(Errno::EACCES), "Permission denied (os error 13)");
        let vain = in_vain(&io::Error::other("too many"));
        assert_eq!(vain.to_string(), "too many; it was tried for 10 s");
    }

    #[test]
    fn pauses_grow_and_come_to_an_end() {
        let begun = Duration::from_secs(1000);
        let mut patience = Patience::new(begun);
        let (mut now, mut pauses) = (begun, Vec::new());
        loop {
            let pause = patience.left(now);
            pauses.push(pause);
            now += pause;
            assert!(patience.left(now).is_zero());
            if !patience.goes_on(now) {
                break;
            }
        }
        assert_eq!(now, begun + LONGEST);
        assert!((8..20).contains(&pauses.len()), "{pauses:?}");
        pauses.pop();
        assert!(pauses.is_sorted() && pauses.iter().all(|pause| *pause <= LONGEST_PAUSE), "{pauses:?}");
        assert_eq!(pauses[..3], [1, 2, 4].map(|times| FIRST_PAUSE * times));
    }

    #[test]
    fn who_has_slept_for_too_long_does_not_try_again() {
        let mut patience = Patience::new(Duration::ZERO);
        assert!(!patience.goes_on(Duration::from_secs(1000)));
    }
}
