//! The trace that a task belongs to: the headers `traceparent`, `tracestate` (W3C Trace Context) and `baggage` (W3C Baggage) of whoever
//! submitted it, as plugins get them.

use std::ops::Range;

use bson::{Bson, Document, doc};
use disbatch_values::text::{hex, of_hex};

use super::document::put;

pub const TRACE: &str = "trace";

/// `00-` with 32 digits, 16 and 2.
const PARENT: usize = 55;

/// What others may add to a trace: the recommendation has programs pass on so much.
const LONGEST_STATE: usize = 512;

const LONGEST_BAGGAGE: usize = 8192;

/// A trace, and the place in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    parent: String,
    state: Option<String>,
    baggage: Option<String>,
}

impl TraceContext {
    /// As headers say. What cannot be used is as if it were not there, as W3C wants it: without a place there is no trace, and a wrong
    /// state or baggage is left out.
    pub fn of(parent: Option<&str>, state: Option<&str>, baggage: Option<&str>) -> Option<Self> {
        let parent = parent.map(str::trim).filter(|parent| is_parent(parent))?;
        let text = |text: Option<&str>, longest: usize| {
            let text = text.map(str::trim).filter(|text| (1..=longest).contains(&text.len()))?;
            text.bytes().all(|byte| (b' '..=b'~').contains(&byte)).then(|| text.to_owned())
        };
        Some(Self {
            // Later versions may say more behind that, which this one does not know.
            parent: format!("00{}", &parent[2..PARENT]),
            state: text(state, LONGEST_STATE),
            baggage: text(baggage, LONGEST_BAGGAGE),
        })
    }

    /// As a task has it. Somebody may have written anything there.
    pub fn of_task(task: &Document) -> Option<Self> {
        Self::of_field(task.get_document(TRACE).ok()?)
    }

    pub fn of_field(field: &Document) -> Option<Self> {
        let text = |name: &str| field.get_str(name).ok();
        Self::of(text("parent"), text("state"), text("baggage"))
    }

    pub fn field(&self) -> Bson {
        let mut field = doc! { "parent": &self.parent };
        put(&mut field, "state", self.state.as_ref());
        put(&mut field, "baggage", self.baggage.as_ref());
        field.into()
    }

    pub fn place(&self) -> Place {
        let digits = |range: Range<usize>| self.parent.get(range).unwrap_or_default();
        let [flags]: [u8; 1] = of_hex(digits(53..55)).unwrap_or_default();
        Place {
            trace: of_hex(digits(3..35)).unwrap_or_default(),
            span: of_hex(digits(36..52)).unwrap_or_default(),
            is_sampled: flags & 1 == 1,
        }
    }

    pub fn trace_id(&self) -> &str {
        self.parent.get(3..35).unwrap_or_default()
    }

    /// Another place, with the same state and baggage.
    pub fn at(&self, place: Place) -> Self {
        Self { parent: place.parent(), ..self.clone() }
    }

    /// A place in a trace that nobody has said anything of.
    pub fn new(place: Place) -> Self {
        Self { parent: place.parent(), state: None, baggage: None }
    }

    pub fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.named(["traceparent", "tracestate", "baggage"])
    }

    /// The variables of an environment (OpenTelemetry, Environment Variables as Context Propagation Carriers), and their values.
    pub fn variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.named(VARIABLES)
    }

    fn named(&self, names: [&'static str; 3]) -> impl Iterator<Item = (&'static str, &str)> {
        let values = [Some(&self.parent), self.state.as_ref(), self.baggage.as_ref()];
        names.into_iter().zip(values).filter_map(|(name, value)| Some((name, value?.as_str())))
    }
}

/// A place in a trace: a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    pub is_sampled: bool,
}

impl Place {
    fn parent(self) -> String {
        format!("00-{}-{}-0{}", hex(self.trace), hex(self.span), u8::from(self.is_sampled))
    }
}

pub const VARIABLES: [&str; 3] = ["TRACEPARENT", "TRACESTATE", "BAGGAGE"];

/// `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`, where neither id is zero. Version ff is none, and one that is
/// later than 00 may go on behind another `-`.
fn is_parent(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() < PARENT || !text.is_ascii() {
        return false;
    }
    let is_hex = |bytes: &[u8]| bytes.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_some = |bytes: &[u8]| is_hex(bytes) && bytes.iter().any(|byte| *byte != b'0');
    let ends = bytes.len() == PARENT || (&bytes[..2] != b"00" && bytes[PARENT] == b'-');
    let dashes = [2, 35, 52].iter().all(|at| bytes[*at] == b'-');
    let version = is_hex(&bytes[..2]) && &bytes[..2] != b"ff";
    ends && dashes && version && is_some(&bytes[3..35]) && is_some(&bytes[36..52]) && is_hex(&bytes[53..55])
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_parent_is_as_the_recommendation_has_it() {
        let of = |parent: &str| TraceContext::of(Some(parent), None, None);
        assert_eq!(of(GOOD).unwrap().headers().collect::<Vec<_>>(), [("traceparent", GOOD)]);
        let later = GOOD.replacen("00", "01", 1);
        assert_eq!(of(&later), of(GOOD), "of a later version");
        assert_eq!(of(&format!("{later}-more")), of(GOOD));
        for wrong in [
            "",
            "00",
            &format!("{GOOD}-more"),
            &format!("{later}more"),
            &GOOD.to_uppercase(),
            &GOOD.replacen("00", "ff", 1),
            &GOOD.replace("b7ad6b7169203331", "0000000000000000"),
            &GOOD.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &GOOD.replace('-', "_"),
            &GOOD.replace("-01", "-0x"),
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b71692033é1-01",
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        assert_eq!(TraceContext::of(None, Some("a=b"), Some("c=d")), None);
    }

    #[test]
    fn a_place_is_written_as_it_was_read() {
        let context = TraceContext::of(Some(GOOD), Some("a=b"), None).unwrap();
        let place = context.place();
        assert_eq!((place.trace[0], place.span[7], place.is_sampled), (0x0a, 0x31, true));
        assert_eq!(context.at(place), context);
        let other = Place { span: [1; 8], is_sampled: false, ..place };
        assert_eq!(
            TraceContext::new(other).headers().next().unwrap().1,
            "00-0af7651916cd43dd8448eb211c80319c-0101010101010101-00"
        );
    }

    #[test]
    fn what_cannot_be_passed_on_is_left_out() {
        let of = |state: &str, baggage: &str| {
            let context = TraceContext::of(Some(GOOD), Some(state), Some(baggage)).unwrap();
            context.variables().skip(1).map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        assert_eq!(of("a=b", " user=ann "), ["TRACESTATE=a=b", "BAGGAGE=user=ann"]);
        assert_eq!(of("", "user=ann\nX: y"), [""; 0]);
        assert_eq!(of(&"s".repeat(513), &"b".repeat(8193)), [""; 0]);
    }

    #[test]
    fn a_task_has_it_as_it_was() {
        let context = TraceContext::of(Some(GOOD), Some("a=b"), None).unwrap();
        assert_eq!(TraceContext::of_task(&doc! { TRACE: context.field() }), Some(context));
        for odd in
            [doc! {}, doc! { TRACE: 5 }, doc! { TRACE: { "parent": "x" } }, doc! { TRACE: { "parent": 5 } }]
        {
            assert_eq!(TraceContext::of_task(&odd), None, "{odd}");
        }
    }
}
