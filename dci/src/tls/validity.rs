//! How long a certificate is valid.

use bson::DateTime;
use rustls::pki_types::CertificateDer;
use x509_parser::parse_x509_certificate;

use crate::json::date_text;

/// So many days before its end a certificate is warned of.
const SOON: i64 = 14;

const DAY: i64 = 24 * 3600;

/// From when until when, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    from: i64,
    until: i64,
}

impl Validity {
    /// That of this certificate; nothing if it is so odd that it cannot be told.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = parse_x509_certificate(certificate.as_ref()).ok()?;
        let validity = parsed.validity();
        Some(Self { from: validity.not_before.timestamp(), until: validity.not_after.timestamp() })
    }

    /// Its end for people.
    pub fn end(&self) -> Option<String> {
        date_text(DateTime::from_millis(self.until.saturating_mul(1000)))
    }

    /// What an operator has to see to at this time.
    pub fn trouble(&self, now: DateTime) -> Option<String> {
        let now = now.timestamp_millis().div_euclid(1000);
        if now < self.from {
            return Some("the certificate is not valid yet: clients will refuse it".to_owned());
        }
        match self.until.saturating_sub(now) {
            ..0 => Some("the certificate has expired: clients refuse it".to_owned()),
            left if left < SOON * DAY => {
                Some(format!("the certificate expires soon, days left: {}", left / DAY))
            }
            _ => None, // There is time.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_told_before_it_comes() {
        let validity = Validity { from: 1_000 * DAY, until: 1_100 * DAY };
        let trouble = |days: i64, seconds: i64| {
            validity.trouble(DateTime::from_millis((days * DAY + seconds) * 1000)).unwrap_or_default()
        };
        assert!(trouble(999, 0).contains("not valid yet"));
        assert_eq!(trouble(1_000, 0), "");
        assert_eq!(trouble(1_086, 0), "");
        assert_eq!(trouble(1_086, 1), "the certificate expires soon, days left: 13");
        assert_eq!(trouble(1_099, 1), "the certificate expires soon, days left: 0");
        assert!(trouble(1_100, 1).contains("has expired"));
        assert_eq!(validity.end().unwrap(), "1973-01-05T00:00:00");
    }
}
