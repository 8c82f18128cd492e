//! Which traces are recorded: the samplers of OpenTelemetry's specification, by their names.

use crate::TracesError;

/// A share of all traces: those whose ids are below it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Share(u64);

/// Which traces are recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// Of those that begin here.
    roots: Share,
    /// Whether those that were begun by others are recorded if these do.
    follows: bool,
}

impl Sampler {
    /// As `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG` say: all that others do not leave out, unless they say anything.
    pub fn of(name: Option<&str>, argument: Option<&str>) -> Result<Self, TracesError> {
        let name = name.unwrap_or("parentbased_always_on");
        let follows = name.starts_with("parentbased_");
        let roots = match name.strip_prefix("parentbased_").unwrap_or(name) {
            "always_on" => Share(u64::MAX),
            "always_off" => Share(0),
            "traceidratio" => share(argument.unwrap_or("1"))?,
            _ => {
                let why = format!(
                    "'{name}' is none of always_on, always_off, traceidratio, and these with parentbased_ before them"
                );
                return Err(TracesError::Variable { name: "OTEL_TRACES_SAMPLER", why });
            }
        };
        Ok(Self { roots, follows })
    }

    /// Whether a trace is recorded, by what its parent says, if there is one.
    pub fn samples(&self, parent: Option<bool>, trace: &[u8; 16]) -> bool {
        match parent {
            Some(is_sampled) if self.follows => is_sampled,
            _ => {
                let mut random = [0; 8];
                random.copy_from_slice(&trace[8..]);
                self.roots == Share(u64::MAX) || u64::from_be_bytes(random) < self.roots.0
            }
        }
    }
}

fn share(text: &str) -> Result<Share, TracesError> {
    let ratio = text.parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    let ratio = ratio.ok_or_else(|| TracesError::Variable {
        name: "OTEL_TRACES_SAMPLER_ARG",
        why: format!("'{text}' is no number from 0 to 1"),
    })?;
    // All of them, and not nearly all.
    if ratio >= 1.0 {
        return Ok(Share(u64::MAX));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "below 2^53, and not negative"
    )]
    let millionths = (ratio * 1e9) as u64;
    Ok(Share(u64::MAX / 1_000_000_000 * millionths))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samplers_are_those_of_the_specification() {
        let low = [0; 16];
        let high = [255; 16];
        let of = |name: Option<&str>, argument: Option<&str>| {
            let sampler = Sampler::of(name, argument).unwrap();
            [Some(true), Some(false), None]
                .map(|parent| [sampler.samples(parent, &low), sampler.samples(parent, &high)])
        };
        let (yes, no) = ([true, true], [false, false]);
        assert_eq!(of(None, None), [yes, no, yes]);
        assert_eq!(of(Some("always_on"), None), [yes, yes, yes]);
        assert_eq!(of(Some("always_off"), None), [no, no, no]);
        assert_eq!(of(Some("parentbased_always_off"), None), [yes, no, no]);
        let some = [true, false];
        assert_eq!(of(Some("traceidratio"), Some("0.5")), [some, some, some]);
        assert_eq!(of(Some("parentbased_traceidratio"), Some("0.5")), [yes, no, some]);
        assert_eq!(of(Some("traceidratio"), Some("1")), [yes, yes, yes]);
        assert_eq!(of(Some("traceidratio"), Some("0")), [no, no, no]);
        for (name, argument) in
            [("sometimes", None), ("traceidratio", Some("2")), ("traceidratio", Some("x"))]
        {
            assert!(Sampler::of(Some(name), argument).is_err(), "{name} {argument:?}");
        }
    }
}
