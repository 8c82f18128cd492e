//! When a request is sent again.

use std::time::Duration;

use jiff::Timestamp;

use crate::error::{ApiError, Error, Result};

/// A stream that was silent for so long has come about nevertheless.
const STEADY: Duration = Duration::from_secs(5);

/// Up to `most` repetitions; before the n-th there is a pause of up to `backoff` * 2^n, at most `longest`.
#[derive(Debug, Clone, Copy)]
pub struct Retries {
    pub most: u32,
    pub backoff: Duration,
    pub longest: Duration,
    /// More may not be asked for by a server.
    pub longest_asked: Duration,
}

impl Retries {
    /// How long to wait before the next try.
    ///
    /// # Errors
    /// The error that came of this one, if there is to be none.
    pub fn pause(&self, error: Error, is_repeatable: bool, tried: u32) -> Result<Duration> {
        if tried >= self.most || !is_worth_it(&error, is_repeatable) {
            return Err(error);
        }
        let most = self.backoff.saturating_mul(2_u32.saturating_pow(tried)).min(self.longest);
        let jitter = most.mul_f64(fraction());
        match error.as_api().and_then(|error| error.retry_after) {
            None => Ok(jitter),
            Some(asked) if asked > self.longest_asked => Err(error),
            Some(asked) => Ok(asked + jitter.min(Duration::from_secs(1))),
        }
    }
}

fn is_worth_it(error: &Error, is_repeatable: bool) -> bool {
    match error {
        Error::Unreachable { sent, .. } => is_repeatable || !sent,
        Error::RequestTimeout(_) => is_repeatable,
        Error::Api(error) => is_asked_again(error, is_repeatable),
        Error::Protocol(_)
        | Error::Version(_)
        | Error::WaitTimeout { .. }
        | Error::TaskFailed { .. }
        | Error::Invalid(_)
        | Error::File { .. } => false,
    }
}

fn is_asked_again(error: &ApiError, is_repeatable: bool) -> bool {
    match error.status {
        // A quota and a rule: they are answers.
        429 if error.details.contains_key("limit") => false,
        503 if error.details.contains_key("rule") => false,
        // Nothing was done. After the others it may have been.
        408 | 429 => true,
        502..=504 => is_repeatable,
        _ => false, // It would be the same again.
    }
}

/// How often in vain: a stream that was there for a while was none.
pub fn tried_since(answered: Option<tokio::time::Instant>, tried: u32) -> u32 {
    if answered.is_some_and(|at| at.elapsed() > STEADY) { 0 } else { tried }
}

/// Between 0 and 1. All of it where there are no random numbers.
fn fraction() -> f64 {
    let random = getrandom::u64().unwrap_or(u64::MAX);
    random as f64 / u64::MAX as f64
}

/// Seconds, or a date.
pub fn retry_after(value: &str) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = jiff::fmt::rfc2822::parse(value).ok()?.timestamp();
    Some(Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn of(most: u32, backoff: Duration) -> Retries {
        Retries { most, backoff, longest: 3 * backoff, longest_asked: 60 * SECOND }
    }

    fn unreachable(sent: bool) -> Error {
        Error::Unreachable { message: "x".into(), sent }
    }

    fn answer(status: u16, body: &str) -> Error {
        Error::Api(Box::new(ApiError::new("GET /", status, body.as_bytes(), None)))
    }

    #[test]
    fn pauses_grow_with_jitter_and_have_an_end() {
        let retries = of(3, SECOND);
        for (tried, limit) in [(0, SECOND), (1, 2 * SECOND), (2, 3 * SECOND)] {
            let pauses: Vec<_> =
                (0..200).filter_map(|_| retries.pause(unreachable(true), true, tried).ok()).collect();
            assert_eq!(pauses.len(), 200);
            assert!(pauses.iter().all(|pause| *pause <= limit));
            assert!(pauses.iter().any(|pause| *pause < limit / 4));
            assert!(pauses.iter().any(|pause| *pause > limit * 3 / 4));
        }
        assert_eq!(retries.pause(unreachable(true), true, 3).unwrap_err().code(), "unreachable");
    }

    #[test]
    fn only_what_may_be_repeated_is_tried_again() {
        let is_tried = |error: fn() -> Error| {
            [true, false].map(|is_repeatable| of(3, Duration::ZERO).pause(error(), is_repeatable, 0).is_ok())
        };
        assert_eq!(is_tried(|| Error::RequestTimeout("late".into())), [true, false]);
        assert_eq!(is_tried(|| unreachable(true)), [true, false]);
        assert_eq!(is_tried(|| unreachable(false)), [true, true]);
        assert_eq!(is_tried(|| answer(500, "")), [false, false]);
        assert_eq!(is_tried(|| answer(502, "")), [true, false]);
        assert_eq!(is_tried(|| answer(503, "")), [true, false]);
        assert_eq!(is_tried(|| answer(409, "")), [false, false]);
        assert_eq!(is_tried(|| answer(408, "")), [true, true]);
        assert_eq!(is_tried(|| answer(429, "")), [true, true]);
        assert_eq!(is_tried(|| answer(429, r#"{"limit":"max_queued"}"#)), [false, false]);
        assert_eq!(is_tried(|| answer(503, r#"{"rule":{}}"#)), [false, false]);
        assert_eq!(is_tried(|| Error::Protocol("x".into())), [false, false]);
    }

    #[test]
    fn the_server_says_when_but_not_for_ever() {
        let asked = |seconds: u64| {
            let after = Some(Duration::from_secs(seconds));
            let error = Error::Api(Box::new(ApiError::new("GET /", 503, b"", after)));
            of(1, 4 * SECOND).pause(error, true, 0)
        };
        let pause = asked(7).unwrap();
        assert!((7 * SECOND..=8 * SECOND).contains(&pause), "{pause:?}");
        assert_eq!(asked(61).unwrap_err().status(), Some(503));
    }

    #[test]
    fn retry_after_is_a_number_or_a_date() {
        assert_eq!(retry_after("7"), Some(7 * SECOND));
        assert_eq!(retry_after("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        assert!(retry_after("Fri, 31 Dec 2100 23:59:59 GMT").unwrap() > SECOND);
        assert_eq!(retry_after("soon"), None);
    }
}
