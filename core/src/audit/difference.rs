//! What entries have of documents: only what has changed, nothing secret, and not too much of it.

use bson::{Bson, Document, doc};

/// A value that is longer, as text, is cut: bytes.
const LONGEST_VALUE: usize = 2_048;

/// No more fields of a document are in an entry.
const MOST_FIELDS: usize = 100;

/// No more of a name is in an entry, in characters.
const LONGEST_NAME: usize = 200;

/// Says how many fields are not in an entry.
const LEFT_OUT: &str = "(left out)";

/// Fields whose values are nobody's business, at any depth.
const SECRETS: [&str; 4] = ["password", "secure_params", "token", "fingerprint"];

/// What a change made of a document: the fields that have changed, before and after.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Difference {
    /// Those that there were, as they were.
    pub before: Document,
    /// Those that there are, as they are.
    pub after: Document,
}

impl Difference {
    /// Between two documents. One that is none had, or has, no fields.
    pub fn between(before: Option<&Document>, after: Option<&Document>) -> Self {
        let changed = |one: Option<&Document>, other: Option<&Document>| -> Document {
            let is_other = |(name, value): &(&String, &Bson)| {
                *name != "_id" && !is_same(Some(*value), other.and_then(|other| other.get(name)))
            };
            let fields = one.into_iter().flatten().filter(is_other);
            fields.map(|(name, value)| (name.clone(), value.clone())).collect()
        };
        Self { before: trimmed(&changed(before, after)), after: trimmed(&changed(after, before)) }
    }
}

/// Whether the database takes two values for the same.
pub(crate) fn is_same(one: Option<&Bson>, other: Option<&Bson>) -> bool {
    let bytes = |value: &Bson| bson::serialize_to_vec(&doc! { "value": value.clone() }).ok();
    match (one, other) {
        (Some(one), Some(other)) => bytes(one) == bytes(other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// A document without secrets, and with long values cut.
pub(super) fn trimmed(document: &Document) -> Document {
    let (kept, rest) = (document.iter().take(MOST_FIELDS), document.len().saturating_sub(MOST_FIELDS));
    let public = kept.filter(|(name, _)| !is_secret(name));
    let mut trimmed: Document = public.map(|(name, value)| (short(name), bounded(value))).collect();
    if rest > 0 {
        trimmed.insert(LEFT_OUT, format!("{rest} more fields"));
    }
    trimmed
}

/// The beginning of a name.
pub(super) fn short(name: &str) -> String {
    match name.char_indices().nth(LONGEST_NAME) {
        Some((at, _)) => format!("{}…", name.get(..at).unwrap_or_default()),
        None => name.to_owned(),
    }
}

fn is_secret(name: &str) -> bool {
    SECRETS.iter().any(|secret| name.eq_ignore_ascii_case(secret))
}

fn bounded(value: &Bson) -> Bson {
    let public = public(value);
    let text = match &public {
        Bson::String(text) => text.clone(),
        Bson::Document(_)
        | Bson::Array(_)
        | Bson::Binary(_)
        | Bson::JavaScriptCode(_)
        | Bson::JavaScriptCodeWithScope(_)
        | Bson::RegularExpression(_)
        | Bson::Symbol(_) => extended(&public),
        _ => return public, // Nothing else can be long.
    };
    if text.len() <= LONGEST_VALUE {
        return public;
    }
    let end = (0..=LONGEST_VALUE).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}… (cut: {} bytes in all)", text.get(..end).unwrap_or_default(), text.len()).into()
}

/// As text that people can read.
fn extended(value: &Bson) -> String {
    value.clone().into_relaxed_extjson().to_string()
}

/// A value without secrets in it.
fn public(value: &Bson) -> Bson {
    match value {
        Bson::Document(document) => {
            let fields = document.iter().filter(|(name, _)| !is_secret(name));
            Bson::Document(fields.map(|(name, value)| (name.clone(), public(value))).collect())
        }
        Bson::Array(values) => Bson::Array(values.iter().map(public).collect()),
        simple => simple.clone(), // It has nothing in it.
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn between(before: Document, after: Document) -> (Document, Document) {
        let difference = Difference::between(Some(&before), Some(&after));
        (difference.before, difference.after)
    }

    #[test]
    fn only_what_has_changed_is_told() {
        let before = doc! { "_id": 1, "name": "mail", "threads": 2, "paused": true, "sort": "fifo" };
        let after = doc! { "_id": 2, "name": "mail", "threads": 3, "sort": "fifo", "reason": "x" };
        let expected = (doc! { "threads": 2, "paused": true }, doc! { "threads": 3, "reason": "x" });
        assert_eq!(between(before.clone(), after), expected);
        assert_eq!(between(before.clone(), before.clone()), (doc! {}, doc! {}));
        let made = Difference::between(None, Some(&before));
        assert_eq!((made.before, made.after.len()), (doc! {}, 4));
        let gone = Difference::between(Some(&doc! { "name": "mail" }), None);
        assert_eq!((gone.before, gone.after), (doc! { "name": "mail" }, doc! {}));
    }

    #[test]
    fn values_are_compared_as_the_database_does() {
        let same = |one: Bson, other: Bson| is_same(Some(&one), Some(&other));
        assert!(same(5.into(), 5.into()) && same(f64::NAN.into(), f64::NAN.into()));
        assert!(!same(5.into(), 5_i64.into()) && !same(Bson::Null, "".into()));
        assert!(!same(doc! { "a": 1, "b": 2 }.into(), doc! { "b": 2, "a": 1 }.into()));
        assert!(is_same(None, None) && !is_same(None, Some(&Bson::Null)));
    }

    #[test]
    fn long_values_are_cut_and_say_so() {
        let told = trimmed(&doc! {
            "short": "x".repeat(LONGEST_VALUE), "long": "é".repeat(LONGEST_VALUE),
            "list": vec![12_345_i32; 1_000], "number": 1,
        });
        assert_eq!(told.get_str("short").unwrap().len(), LONGEST_VALUE);
        assert!(told.get_str("long").unwrap().ends_with("é… (cut: 4096 bytes in all)"));
        let list = told.get_str("list").unwrap();
        assert!(list.starts_with("[12345,12345,") && list.contains("… (cut: 6001 bytes in all)"), "{list}");
        assert_eq!(told.get("number"), Some(&Bson::from(1)));
        let many: Document = (0..150).map(|n| (format!("field{n}"), Bson::from(n))).collect();
        let told = trimmed(&many);
        assert_eq!((told.len(), told.get(LEFT_OUT)), (101, Some(&Bson::from("50 more fields"))));
        assert_eq!([short("é"), short(&"é".repeat(201))], ["é".to_owned(), format!("{}…", "é".repeat(200))]);
    }

    /// Text that is in what must not be told, and nowhere else.
    const MARKER: &str = "zyxw-secret-9173";

    /// A document whose secret fields have the marker, at any depth, and whose other fields have anything else.
    fn documents() -> impl Strategy<Value = Document> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Bson::from),
            any::<bool>().prop_map(Bson::from),
            "[a-z]{0,300}".prop_map(Bson::from),
            Just(Bson::Null),
        ];
        let value = leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Bson::Array),
                fields(inner).prop_map(Bson::Document),
            ]
        });
        fields(value.boxed())
    }

    fn fields(value: BoxedStrategy<Bson>) -> impl Strategy<Value = Document> {
        let secret = prop::sample::select(vec!["password", "secure_params", "Token", "FINGERPRINT"]);
        let hidden = prop_oneof![
            Just(Bson::from(MARKER)),
            Just(Bson::from(doc! { "deeper": MARKER })),
            Just(Bson::Array(vec![MARKER.into()])),
        ];
        let public = ("[a-z$.]{1,6}".prop_map(|name| format!("p{name}")), value);
        let secret = (secret.prop_map(str::to_owned), hidden);
        let public = prop::collection::vec(public, 0..5);
        (public, prop::collection::vec(secret, 0..3))
            .prop_map(|(public, secret)| public.into_iter().chain(secret).collect::<Document>())
    }

    proptest! {
        #[test]
        fn secrets_are_never_told(before in documents(), after in documents()) {
            let told = Difference::between(Some(&before), Some(&after));
            let whole = trimmed(&doc! { "nested": before, "list": [after] });
            let text = format!("{told:?} {whole:?}");
            prop_assert!(!text.contains(MARKER), "{}", text);
        }

        #[test]
        fn what_is_told_is_bounded(document in documents(), long in "\\PC{0,5000}") {
            let mut document = document;
            document.insert("long", long);
            let told = trimmed(&document);
            for (_, value) in &told {
                let length = match value {
                    Bson::String(text) => text.len(),
                    other => extended(other).len(),
                };
                prop_assert!(length <= LONGEST_VALUE + 60, "{length}");
            }
        }
    }
}
