//! Certificates that are replaced, and files that are no certificates.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;

/// The text of a certificate, and that of its key.
fn made() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    parameters.not_after = rcgen::date_time_ymd(2101, 2, 3);
    (parameters.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// Files with these texts, in the place of those that were there.
fn files(folder: &Path, (certificate, key): (&str, &str)) -> Tls {
    let files = Tls { certificate: folder.join("chain.pem"), key: folder.join("key.pem") };
    for (path, text) in [(&files.certificate, certificate), (&files.key, key)] {
        let new = path.with_extension("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, path).unwrap();
    }
    files
}

#[test]
fn a_certificate_is_read_with_all_of_its_chain() {
    let folder = tempfile::tempdir().unwrap();
    let ((first, key), (second, _)) = (made(), made());
    let files = files(folder.path(), (&format!("{first}\n{second}"), &key));
    let certificate = Certificate::open(files.clone()).unwrap();
    assert_eq!(certificate.served().cert.len(), 2);
    assert_eq!(certificate.validity().and_then(|validity| validity.end()).unwrap(), "2101-02-03T00:00:00");
    // All may be in one file.
    std::fs::write(&files.key, format!("{first}\n{key}")).unwrap();
    let one = Tls { certificate: files.key.clone(), key: files.key };
    assert_eq!(Certificate::open(one).unwrap().served().cert.len(), 1);
}

#[test]
fn what_is_wrong_with_files_is_said_with_their_name() {
    let folder = tempfile::tempdir().unwrap();
    let ((certificate, key), (_, other)) = (made(), made());
    let cut = &certificate[..certificate.len() / 2];
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let odd = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let odd_certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let cases = [
        (("", key.as_str()), "chain.pem", "there is no certificate in"),
        ((key.as_str(), key.as_str()), "chain.pem", "there is no certificate in"),
        ((cut, key.as_str()), "chain.pem", "is damaged: a section has no end"),
        ((odd_certificate, key.as_str()), "chain.pem", "cannot be used"),
        ((certificate.as_str(), certificate.as_str()), "key.pem", "there is no private key in"),
        ((certificate.as_str(), encrypted), "key.pem", "is encrypted"),
        ((certificate.as_str(), odd), "key.pem", "cannot be used"),
        ((certificate.as_str(), other.as_str()), "key.pem", "is not that of the first certificate in"),
    ];
    for (texts, file, problem) in cases {
        let error = Certificate::open(files(folder.path(), texts)).unwrap_err().to_string();
        assert!(error.contains(file) && error.contains(problem), "{problem}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let files = files(folder.path(), (&certificate, &key));
    for missing in [&files.certificate, &files.key] {
        let kept = std::fs::read(missing).unwrap();
        std::fs::remove_file(missing).unwrap();
        let error = Certificate::open(files.clone()).unwrap_err().to_string();
        let name = missing.display().to_string();
        assert!(error.starts_with("cannot read the ") && error.contains(&name), "{error}");
        std::fs::write(missing, kept).unwrap();
    }
    assert!(Certificate::open(files).is_ok());
}

#[test]
fn a_certificate_is_replaced_when_its_files_change_and_kept_when_they_are_no_use() {
    let folder = tempfile::tempdir().unwrap();
    let ((first, first_key), (second, second_key)) = (made(), made());
    let at = |texts| files(folder.path(), texts);
    let certificate = Certificate::open(at((&first, &first_key))).unwrap();
    let before = certificate.served();
    assert_eq!(certificate.look(false), Looked::Same);
    assert_eq!(certificate.look(true), Looked::Replaced, "as it was asked to");
    assert_eq!(certificate.served().cert, before.cert);

    // Those who renew certificates write one file after the other.
    at((&second, &first_key));
    assert_eq!(certificate.look(false), Looked::Refused);
    assert_eq!(certificate.look(false), Looked::Same, "that is said once");
    assert_eq!(certificate.served().cert, before.cert);
    at((&second, &second_key));
    assert_eq!(certificate.look(false), Looked::Replaced);
    let after = certificate.served();
    assert_ne!(after.cert, before.cert);

    at(("", ""));
    assert_eq!(certificate.look(false), Looked::Refused);
    assert_eq!(certificate.look(true), Looked::Refused);
    assert_eq!(certificate.served().cert, after.cert);
    std::fs::remove_file(folder.path().join("chain.pem")).unwrap();
    assert_eq!(certificate.look(false), Looked::Refused);
    assert_eq!(certificate.served().cert, after.cert);
}

#[test]
fn links_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    let live = folder.path().join("live");
    let at = |name: &str| {
        let folder = folder.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        let (certificate, key) = made();
        files(&folder, (&certificate, &key));
        folder
    };
    let (first, second) = (at("first"), at("second"));
    std::os::unix::fs::symlink(&first, &live).unwrap();
    let files = Tls { certificate: live.join("chain.pem"), key: live.join("key.pem") };
    let certificate = Certificate::open(files).unwrap();
    let before = certificate.served();
    let new = folder.path().join("new");
    std::os::unix::fs::symlink(&second, &new).unwrap();
    std::fs::rename(&new, &live).unwrap();
    assert_eq!(certificate.look(false), Looked::Replaced);
    assert_ne!(certificate.served().cert, before.cert);
}

#[test]
fn a_key_that_everybody_can_read_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key.pem");
    std::fs::write(&path, "").unwrap();
    for (mode, expected) in [(0o600, false), (0o640, false), (0o644, true), (0o604, true)] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(is_readable_by_all(&path), expected, "{mode:o}");
    }
    assert!(!is_readable_by_all(&folder.path().join("nowhere")));
}

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
