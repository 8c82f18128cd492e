//! Whether a value fits a schema.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::time::Instant;

use disbatch_values::text::closest;
use serde_json::{Map, Number, Value};

use super::compile::below;
use super::{
    Bound, Extent, MOST_PROBLEMS, NodeId, Pattern, Problem, Properties, Rule, Schema, Wrong, bits_of,
    shortened, type_of, types_in_words, values_in_words,
};

/// Schemas are followed so deep. One that refers to itself, about the same value, ends here.
const DEEPEST: usize = 300;

/// The clock is looked at after so many steps.
const STEPS: u32 = 128;

const LONGEST_TEXT: usize = 64 * 1024;

pub(super) fn check(schema: &Schema, value: &Value, until: Instant) -> Result<(), Wrong> {
    let mut run = Run::new(schema, until);
    let fits = run.node(0, value);
    match (run.is_over, fits) {
        (true, _) => Err(Wrong::TooLong),
        (false, true) => Ok(()),
        (false, false) => Err(Wrong::Problems(run.problems)),
    }
}

#[derive(Clone, Copy)]
enum Part<'a> {
    Key(&'a str),
    Index(usize),
}

struct Run<'a> {
    schema: &'a Schema,
    until: Instant,
    /// Nobody is told what does not fit.
    is_quiet: bool,
    steps: u32,
    depth: usize,
    /// Nothing that is told counts any more.
    is_over: bool,
    place: Vec<Part<'a>>,
    problems: Vec<Problem>,
}

impl<'a> Run<'a> {
    fn new(schema: &'a Schema, until: Instant) -> Self {
        let (place, problems) = (Vec::new(), Vec::new());
        Self { schema, until, is_quiet: false, steps: 0, depth: 0, is_over: false, place, problems }
    }

    fn quietly(&mut self, id: NodeId, value: &'a Value) -> bool {
        let was_quiet = std::mem::replace(&mut self.is_quiet, true);
        let fits = self.node(id, value);
        self.is_quiet = was_quiet;
        fits
    }

    fn node(&mut self, id: NodeId, value: &'a Value) -> bool {
        let schema = self.schema;
        let Some(rules) = schema.nodes.get(id) else { return true };
        self.depth += 1;
        self.is_over |= self.depth > DEEPEST;
        let mut fits = true;
        for rule in rules {
            if self.is_over() || self.is_told(fits) {
                break;
            }
            fits &= self.rule(rule, value);
        }
        self.depth -= 1;
        fits
    }

    fn is_over(&mut self) -> bool {
        self.steps += 1;
        if self.steps >= STEPS {
            self.steps = 0;
            self.is_over |= Instant::now() >= self.until;
        }
        self.is_over
    }

    fn rule(&mut self, rule: &'a Rule, value: &'a Value) -> bool {
        match (rule, value) {
            (Rule::Never, _) => self.problem(|| "is not allowed".to_owned()),
            (Rule::Types(bits), value) => {
                bits_of(value) & bits != 0
                    || self.problem(|| {
                        format!("must be of type {}, and is {}", types_in_words(*bits), type_of(value))
                    })
            }
            (Rule::Values(values), value) => {
                values.iter().any(|one| self.same(one, value))
                    || self.problem(|| format!("must be one of {}", values_in_words(values)))
            }
            (Rule::Bound(bound, limit), Value::Number(number)) => {
                is_within(*bound, number, limit)
                    || self.problem(|| format!("must be {} {limit}", bound_word(*bound)))
            }
            (Rule::MultipleOf(step), Value::Number(number)) => {
                is_multiple(number, step) || self.problem(|| format!("must be a multiple of {step}"))
            }
            (Rule::Length(extent), Value::String(text)) => {
                extent.has(text.chars().count())
                    || self.problem(|| must_have(*extent, "character", "characters"))
            }
            (Rule::Pattern(pattern), Value::String(text)) => self.pattern(pattern, text),
            (_, Value::Array(items)) => self.of_array(rule, items) && self.of_schemas(rule, value),
            (_, Value::Object(object)) => self.of_object(rule, object) && self.of_schemas(rule, value),
            _ => self.of_schemas(rule, value),
        }
    }

    fn of_array(&mut self, rule: &'a Rule, items: &'a [Value]) -> bool {
        match rule {
            Rule::Items { first, others } => {
                let with_schema = |(index, item): (usize, &'a Value)| {
                    Some((index, item, first.get(index).copied().or(*others)?))
                };
                let items = items.iter().enumerate().map_while(with_schema);
                self.all(items, |run, (index, item, id)| {
                    run.within(Part::Index(index), |run| run.node(id, item))
                })
            }
            Rule::Contains(what, extent) => {
                let found = items.iter().filter(|item| self.quietly(*what, item)).count();
                extent.has(found)
                    || self.problem(|| format!("{} that fit contains", must_have(*extent, "item", "items")))
            }
            Rule::Count(extent) => {
                extent.has(items.len()) || self.problem(|| must_have(*extent, "item", "items"))
            }
            Rule::Unique => {
                let mut seen = BTreeSet::new();
                let is_new = |item: &Value| !self.is_over() && seen.insert(canonical(item));
                items.iter().all(is_new) || self.problem(|| "must not have the same item twice".to_owned())
            }
            _ => true, // It is about something else, or about all values.
        }
    }

    fn of_object(&mut self, rule: &'a Rule, object: &'a Map<String, Value>) -> bool {
        match rule {
            Rule::Required(names) => {
                let missing = names.iter().filter(|name| !object.contains_key(*name));
                self.all(missing, |run, name| {
                    run.within(Part::Key(name), |run| run.problem(|| "must be given".to_owned()))
                })
            }
            Rule::Properties(properties) => self.properties(properties, object),
            Rule::Keys(extent) => {
                extent.has(object.len()) || self.problem(|| must_have(*extent, "property", "properties"))
            }
            Rule::Dependent(name, others) if object.contains_key(name) => {
                match others.iter().find(|other| !object.contains_key(*other)) {
                    None => true,
                    Some(other) => self.within(Part::Key(other), |run| {
                        run.problem(|| format!("must be given where {name} is"))
                    }),
                }
            }
            _ => true, // It is about something else, or about all values.
        }
    }

    fn properties(&mut self, rules: &'a Properties, object: &'a Map<String, Value>) -> bool {
        self.all(object, |run, (name, value)| {
            let patterned = rules.patterned.iter().filter(|(pattern, _)| pattern.matches(name));
            let known: Vec<NodeId> =
                rules.named.get(name).into_iter().chain(patterned.map(|(_, id)| id)).copied().collect();
            run.within(Part::Key(name), |run| match rules.others {
                Some(id) if known.is_empty() => run.other(id, (name, value), rules),
                // Each of them says what does not fit.
                _ => known.into_iter().filter(|id| !run.node(*id, value)).count() == 0,
            })
        })
    }

    /// A property that has no schema of its own.
    fn other(&mut self, id: NodeId, (name, value): (&str, &'a Value), rules: &'a Properties) -> bool {
        if !matches!(self.schema.nodes.get(id).map(Vec::as_slice), Some([Rule::Never])) {
            return self.node(id, value);
        }
        let known = rules.named.keys().map(String::as_str);
        self.problem(|| match closest(name, known) {
            Some(meant) => format!("is unknown: did you mean {meant}?"),
            None => "is unknown".to_owned(),
        })
    }

    /// What schemas that are put together ask of a value of any type.
    fn of_schemas(&mut self, rule: &'a Rule, value: &'a Value) -> bool {
        match rule {
            Rule::All(all) => self.all(all, |run, id| run.node(*id, value)),
            Rule::Any(any) => {
                any.iter().any(|id| self.quietly(*id, value))
                    || self.problem(|| format!("must fit one of the {} schemas of anyOf", any.len()))
            }
            Rule::One(one) => match one.iter().filter(|id| self.quietly(**id, value)).take(2).count() {
                1 => true,
                found => self.problem(|| {
                    let found = if found == 0 { "none" } else { "more than one" };
                    format!("must fit one of the {} schemas of oneOf, and fits {found}", one.len())
                }),
            },
            Rule::Not(id) => {
                !self.quietly(*id, value) || self.problem(|| "must not fit the schema of not".to_owned())
            }
            Rule::If { test, then, otherwise } => {
                let branch = if self.quietly(*test, value) { then } else { otherwise };
                branch.is_none_or(|id| self.node(id, value))
            }
            Rule::DependentSchema(name, id) if value.get(name).is_some() => self.node(*id, value),
            Rule::Names(id) => self.names(*id, value),
            _ => true, // It is about a type that the value has not got.
        }
    }

    fn names(&mut self, id: NodeId, value: &'a Value) -> bool {
        let Value::Object(object) = value else { return true };
        // Names are no values of the parameters, so they are looked at by themselves.
        self.all(object.keys(), |run, name| match check_name(run.schema, id, name, run.until) {
            Some(wrong) => {
                run.within(Part::Key(name), |run| run.problem(|| format!("has a name that {wrong}")))
            }
            None => true,
        })
    }

    fn pattern(&mut self, pattern: &Pattern, text: &str) -> bool {
        if text.len() > LONGEST_TEXT {
            return self.problem(|| {
                format!("must have at most {LONGEST_TEXT} bytes to be compared with its pattern")
            });
        }
        pattern.matches(text)
            || self.problem(|| format!("must match the pattern {}", shortened(&pattern.text)))
    }

    /// Whether all of these fit, as far as anybody wants to know.
    fn all<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut fits: impl FnMut(&mut Self, T) -> bool,
    ) -> bool {
        let mut all_fit = true;
        for item in items {
            all_fit &= fits(self, item);
            if self.is_over() || self.is_told(all_fit) {
                break;
            }
        }
        all_fit
    }

    fn within<T>(&mut self, part: Part<'a>, look: impl FnOnce(&mut Self) -> T) -> T {
        self.place.push(part);
        let seen = look(self);
        self.place.pop();
        seen
    }

    /// Whether nobody wants to know more.
    fn is_told(&self, fits: bool) -> bool {
        !fits && (self.is_quiet || self.problems.len() >= MOST_PROBLEMS)
    }

    /// It does not fit, which is told unless quietly.
    fn problem(&mut self, text: impl FnOnce() -> String) -> bool {
        if !self.is_quiet && self.problems.len() < MOST_PROBLEMS {
            let pointer = self.place.iter().fold(String::new(), |at, part| match part {
                Part::Key(key) => below(&at, key),
                Part::Index(index) => format!("{at}/{index}"),
            });
            self.problems.push(Problem { pointer, text: text() });
        }
        false
    }

    fn same(&mut self, one: &Value, other: &Value) -> bool {
        match (one, other) {
            _ if self.is_over() => false,
            (Value::Number(one), Value::Number(other)) => compare(one, other) == Some(Ordering::Equal),
            (Value::Array(one), Value::Array(other)) => {
                one.len() == other.len() && one.iter().zip(other).all(|(one, other)| self.same(one, other))
            }
            (Value::Object(one), Value::Object(other)) => {
                let is_there = |(key, value): (&String, &Value)| {
                    other.get(key).is_some_and(|other| self.same(value, other))
                };
                one.len() == other.len() && one.iter().all(is_there)
            }
            (one, other) => one == other,
        }
    }
}

/// What is wrong with the name of a property.
fn check_name(schema: &Schema, id: NodeId, name: &str, until: Instant) -> Option<String> {
    let value = Value::from(name);
    let mut run = Run::new(schema, until);
    match run.node(id, &value) {
        true => None,
        false => run.problems.pop().map(|problem| problem.text),
    }
}

impl Pattern {
    fn matches(&self, text: &str) -> bool {
        self.regex.as_ref().is_none_or(|regex| regex.is_match(text))
    }
}

fn compare(one: &Number, other: &Number) -> Option<Ordering> {
    match (integer(one), integer(other)) {
        (Some(one), Some(other)) => Some(one.cmp(&other)),
        _ => one.as_f64()?.partial_cmp(&other.as_f64()?),
    }
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn is_within(bound: Bound, number: &Number, limit: &Number) -> bool {
    let Some(order) = compare(number, limit) else { return true };
    match bound {
        Bound::Least => order != Ordering::Less,
        Bound::Above => order == Ordering::Greater,
        Bound::Most => order != Ordering::Greater,
        Bound::Below => order == Ordering::Less,
    }
}

const fn bound_word(bound: Bound) -> &'static str {
    match bound {
        Bound::Least => "at least",
        Bound::Above => "more than",
        Bound::Most => "at most",
        Bound::Below => "less than",
    }
}

fn is_multiple(number: &Number, step: &Number) -> bool {
    if let (Some(number), Some(step)) = (integer(number), integer(step)) {
        return number.checked_rem(step) == Some(0);
    }
    let (Some(number), Some(step)) = (number.as_f64(), step.as_f64()) else { return true };
    let times = number / step;
    // 0.3 is a multiple of 0.1, although not to the last bit.
    (times - times.round()).abs() <= f64::EPSILON * times.abs().max(1.0) * 4.0
}

fn must_have(extent: Extent, one: &str, many: &str) -> String {
    let word = |number: u64| if number == 1 { one } else { many };
    match (extent.least, extent.most) {
        (Some(least), Some(most)) if least == most => format!("must have {least} {}", word(least)),
        (Some(least), Some(most)) => format!("must have from {least} to {most} {}", word(most)),
        (Some(least), None) => format!("must have at least {least} {}", word(least)),
        (None, most) => {
            let most = most.unwrap_or_default();
            format!("must have at most {most} {}", word(most))
        }
    }
}

/// The same text for values that are the same.
fn canonical(value: &Value) -> String {
    match value {
        Value::Number(number) => match (integer(number), number.as_f64()) {
            (Some(integer), _) => integer.to_string(),
            (None, Some(float)) if float.fract() == 0.0 && float.abs() < 1e15 => format!("{float:.0}"),
            _ => number.to_string(),
        },
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        Value::Object(object) => {
            let mut fields: Vec<String> = object
                .iter()
                .map(|(key, value)| format!("{}:{}", Value::from(key.as_str()), canonical(value)))
                .collect();
            fields.sort_unstable();
            format!("{{{}}}", fields.join(","))
        }
        other => other.to_string(),
    }
}
