//! Messages as mail.

use std::net::SocketAddr;
use std::time::Duration;

use disbatch_adapter::with_causes;
use disbatch_plugin::Error;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message as Letter};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::{SmtpTransport, Transport};
use reqwest::Url;

use crate::addresses::Allowed;
use crate::message::{Mail, Message, Words};

/// How long a server may take for each answer.
const ANSWER: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encryption {
    /// From its beginning.
    Always,
    /// After it has been asked for (STARTTLS), or nothing is sent.
    Required,
    /// If the server offers it.
    Opportunistic,
    Never,
}

/// Sends it. Returns what to say about it.
pub fn send(
    mail: &Mail,
    message: &Message,
    words: &Words,
    password: Option<&str>,
    allowed: &Allowed,
) -> Result<String, Error> {
    let letter = letter(mail, message, words)?;
    let server = Server::parse(&mail.server, mail.user.is_some())?;
    let addresses = allowed.resolve(&server.host, server.port)?;
    let credentials = mail.user.as_ref().map(|user| (user.clone(), password.unwrap_or_default().to_owned()));
    let mut failure = None;
    for address in addresses {
        match server.transport(address, credentials.clone())?.send(&letter) {
            Ok(answer) => {
                let answer = answer.message().collect::<Vec<_>>().join(" ");
                return Ok(format!("{} has taken it: {answer}", server.host));
            }
            // It was spoken to: the next address would be the same server.
            Err(error) if error.is_permanent() || error.is_transient() || error.is_response() => {
                failure = Some(error);
                break;
            }
            Err(error) => failure = Some(error),
        }
    }
    let why = failure.map_or_else(|| "it has no address".to_owned(), |error| with_causes(&error));
    Err(Error::failed(format_args!("the mail server {} has not taken it: {why}", server.host)))
}

fn letter(mail: &Mail, message: &Message, words: &Words) -> Result<Letter, Error> {
    let mailbox = |field: &str, text: &str| {
        text.parse::<Mailbox>()
            .map_err(|error| Error::failed(format_args!("{field}: '{text}' is no mail address: {error}")))
    };
    let mut letter = Letter::builder()
        .from(mailbox("from", &mail.from)?)
        .subject(&words.subject)
        // The same in each attempt, by which programs for mail tell one that they have.
        .message_id(Some(format!("<{}@disbatch>", message.id)))
        .header(ContentType::TEXT_PLAIN)
        .raw_header(HeaderValue::new(
            HeaderName::new_from_ascii_str("Auto-Submitted"),
            "auto-generated".to_owned(),
        ));
    for to in &mail.to {
        letter = letter.to(mailbox("to", to)?);
    }
    letter
        .body(words.text.clone())
        .map_err(|error| Error::failed(format_args!("the mail cannot be made: {error}")))
}

#[derive(Debug, PartialEq, Eq)]
struct Server {
    host: String,
    port: u16,
    encryption: Encryption,
}

impl Server {
    /// Reads `smtps://host[:port]` or `smtp://host[:port][?tls=..]`.
    fn parse(text: &str, has_user: bool) -> Result<Self, Error> {
        let wrong = |why: &str| Error::failed(format_args!("the mail server '{text}': {why}"));
        let url: Url = text.parse().map_err(|error| wrong(&format!("{error}")))?;
        let host =
            url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| wrong("has no host"))?.to_owned();
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("the user and the password have places of their own"));
        }
        let tls = url.query_pairs().find(|(name, _)| name == "tls").map(|(_, value)| value.into_owned());
        let encryption = match (url.scheme(), tls.as_deref()) {
            ("smtps", None) => Encryption::Always,
            ("smtps", Some(_)) => return Err(wrong("smtps:// is encrypted in any case: leave tls out")),
            ("smtp", Some("required")) => Encryption::Required,
            // A password is shown to nobody but the server.
            ("smtp", None | Some("opportunistic")) if has_user => Encryption::Required,
            ("smtp", None | Some("opportunistic")) => Encryption::Opportunistic,
            ("smtp", Some("none")) => Encryption::Never,
            ("smtp", Some(_)) => return Err(wrong("tls must be required, opportunistic or none")),
            _ => return Err(wrong("expected smtp:// or smtps://")),
        };
        let usual = if encryption == Encryption::Always { 465 } else { 587 };
        Ok(Self { host, port: url.port().unwrap_or(usual), encryption })
    }

    fn transport(
        &self,
        address: SocketAddr,
        credentials: Option<(String, String)>,
    ) -> Result<SmtpTransport, Error> {
        let parameters = || {
            // The certificate is to be that of the name, whichever address it has.
            TlsParameters::new_rustls(self.host.clone()).map_err(|error| {
                Error::failed(format_args!("no encrypted connection: {}", with_causes(&error)))
            })
        };
        let tls = match self.encryption {
            Encryption::Always => Tls::Wrapper(parameters()?),
            Encryption::Required => Tls::Required(parameters()?),
            Encryption::Opportunistic => Tls::Opportunistic(parameters()?),
            Encryption::Never => Tls::None,
        };
        let mut transport = SmtpTransport::builder_dangerous(address.ip().to_string())
            .port(address.port())
            .tls(tls)
            .timeout(Some(ANSWER));
        if let Some((user, password)) = credentials {
            transport = transport.credentials(Credentials::new(user, password));
        }
        Ok(transport.build())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::tests::failures;

    #[test]
    fn a_server_says_how_it_is_spoken_to() {
        let server = |text: &str, has_user| Server::parse(text, has_user).map_err(|error| error.to_string());
        let of = |port, encryption| Ok(Server { host: "m.example".to_owned(), port, encryption });
        assert_eq!(server("smtps://m.example", false), of(465, Encryption::Always));
        assert_eq!(server("smtp://m.example", false), of(587, Encryption::Opportunistic));
        assert_eq!(server("smtp://m.example:25?tls=required", false), of(25, Encryption::Required));
        assert_eq!(server("smtp://m.example?tls=none", false), of(587, Encryption::Never));
        // A password does not go out in the clear because somebody has left a word out.
        assert_eq!(server("smtp://m.example", true), of(587, Encryption::Required));
        assert_eq!(server("smtp://m.example?tls=opportunistic", true), of(587, Encryption::Required));
        for (odd, why) in [
            ("m.example", "relative URL"),
            ("http://m.example", "expected smtp://"),
            ("smtp://u:p@m.example", "places of their own"),
            ("smtps://m.example?tls=none", "leave tls out"),
            ("smtp://m.example?tls=maybe", "tls must be"),
        ] {
            let error = server(odd, false).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_letter_has_the_id_of_its_message() {
        let mail = |from: &str, to: &[&str]| Mail {
            server: String::new(),
            user: None,
            from: from.to_owned(),
            to: to.iter().map(ToString::to_string).collect(),
        };
        let words = Words { subject: "é 12".to_owned(), text: "a\nb".to_owned() };
        let made = letter(
            &mail("Disbatch <d@example.org>", &["ann@example.org", "b@example.org"]),
            &failures(),
            &words,
        );
        let text = String::from_utf8(made.unwrap().formatted()).unwrap();
        for part in [
            "From: Disbatch <d@example.org>\r\n",
            "To: ann@example.org, b@example.org\r\n",
            "Message-ID: <6b0004f4686c827f5a609575@disbatch>\r\n",
            "Auto-Submitted: auto-generated\r\n",
            "\r\n\r\na\r\nb",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let error = letter(&mail("nobody", &["a@b.example"]), &failures(), &words).unwrap_err().to_string();
        assert!(error.starts_with("from: 'nobody' is no mail address"), "{error}");
    }
}
