//! Reads a schema once, so that checks need not. Schemas inside it become places of a list, and so does what `$ref` names: schemas
//! that refer to themselves are nothing special.

use std::collections::{BTreeMap, VecDeque};

use regex::RegexBuilder;
use serde_json::{Map, Number, Value};

use super::{
    Bound, Extent, LARGEST, NodeId, Pattern, Properties, Rule, Schema, SchemaError, bit_of_type, shortened,
};

/// So many schemas are in a schema at most.
const MOST_NODES: usize = 8_192;

const MOST_PATTERNS: usize = 200;

/// So many bytes a compiled pattern has at most.
const LARGEST_PATTERN: usize = 64 * 1024;

/// Drafts whose schemas with a `$ref` have nothing else.
const REFERENCE_ALONE: [&str; 4] = ["draft-03", "draft-04", "draft-06", "draft-07"];

impl Schema {
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        if schema.to_string().len() > LARGEST {
            return Err(SchemaError::TooLarge);
        }
        let draft = schema.get("$schema").and_then(Value::as_str).unwrap_or_default();
        let mut reader = Reader {
            whole: schema,
            is_reference_alone: REFERENCE_ALONE.iter().any(|old| draft.contains(old)),
            anchors: BTreeMap::new(),
            known: BTreeMap::new(),
            to_read: VecDeque::new(),
            nodes: Vec::new(),
            patterns: 0,
        };
        find_anchors(schema, &mut String::new(), &mut reader.anchors);
        reader.place(String::new())?;
        while let Some((id, at)) = reader.to_read.pop_front() {
            let rules = reader.rules(&at)?;
            if let Some(node) = reader.nodes.get_mut(id) {
                *node = rules;
            }
        }
        Ok(Self { nodes: reader.nodes })
    }
}

/// A schema inside the whole, and its pointer.
#[derive(Clone, Copy)]
struct Here<'a> {
    schema: &'a Map<String, Value>,
    at: &'a str,
}

impl Here<'_> {
    fn below(self, keyword: &str) -> String {
        below(self.at, keyword)
    }

    fn wrong(self, keyword: &str, expected: &'static str) -> SchemaError {
        wrong(&self.below(keyword), expected)
    }
}

struct Reader<'a> {
    whole: &'a Value,
    is_reference_alone: bool,
    /// Where schemas with `$anchor` are.
    anchors: BTreeMap<String, String>,
    known: BTreeMap<String, NodeId>,
    to_read: VecDeque<(NodeId, String)>,
    nodes: Vec<Vec<Rule>>,
    patterns: usize,
}

impl Reader<'_> {
    /// The place of the schema at this pointer, which is read later.
    fn place(&mut self, at: String) -> Result<NodeId, SchemaError> {
        if let Some(id) = self.known.get(&at) {
            return Ok(*id);
        }
        let id = self.nodes.len();
        if id >= MOST_NODES {
            return Err(SchemaError::TooLarge);
        }
        self.nodes.push(Vec::new());
        self.known.insert(at.clone(), id);
        self.to_read.push_back((id, at));
        Ok(id)
    }

    fn rules(&mut self, at: &str) -> Result<Vec<Rule>, SchemaError> {
        let whole = self.whole;
        let schema = match whole.pointer(at) {
            Some(Value::Bool(true)) => return Ok(Vec::new()),
            Some(Value::Bool(false)) => return Ok(vec![Rule::Never]),
            Some(Value::Object(schema)) => schema,
            _ => return Err(wrong(at, "a schema: an object, true or false")),
        };
        let here = Here { schema, at };
        let mut rules = Vec::new();
        for keyword in ["$ref", "$recursiveRef"] {
            if let Some(reference) = schema.get(keyword) {
                let id = self.referred(&here.below(keyword), reference)?;
                rules.push(Rule::All(vec![id]));
            }
        }
        if !rules.is_empty() && self.is_reference_alone {
            return Ok(rules);
        }
        Self::of_any(here, &mut rules)?;
        Self::of_numbers(here, &mut rules)?;
        self.of_text(here, &mut rules)?;
        self.of_arrays(here, &mut rules)?;
        self.of_objects(here, &mut rules)?;
        self.of_schemas(here, &mut rules)?;
        Ok(rules)
    }

    fn of_any(here: Here<'_>, rules: &mut Vec<Rule>) -> Result<(), SchemaError> {
        if let Some(kind) = here.schema.get("type") {
            let one = |kind: &Value| kind.as_str().and_then(bit_of_type);
            let bits = match kind {
                Value::Array(kinds) => kinds.iter().map(one).try_fold(0, |all, bit| Some(all | bit?)),
                kind => one(kind),
            };
            let bits = bits.ok_or_else(|| here.wrong("type", "the name of a type, or a list of them"))?;
            rules.push(Rule::Types(bits));
        }
        if let Some(values) = here.schema.get("enum") {
            let values = values.as_array().ok_or_else(|| here.wrong("enum", "a list of values"))?;
            rules.push(Rule::Values(values.clone()));
        }
        if let Some(value) = here.schema.get("const") {
            rules.push(Rule::Values(vec![value.clone()]));
        }
        Ok(())
    }

    fn of_numbers(here: Here<'_>, rules: &mut Vec<Rule>) -> Result<(), SchemaError> {
        let number = |keyword: &str| -> Result<Option<Number>, SchemaError> {
            match here.schema.get(keyword) {
                None => Ok(None),
                Some(Value::Number(number)) => Ok(Some(number.clone())),
                Some(_) => Err(here.wrong(keyword, "a number")),
            }
        };
        for (keyword, exclusive, bound, strict) in [
            ("minimum", "exclusiveMinimum", Bound::Least, Bound::Above),
            ("maximum", "exclusiveMaximum", Bound::Most, Bound::Below),
        ] {
            // In draft 4 it says of the other one what it is.
            let flag = here.schema.get(exclusive).and_then(Value::as_bool);
            let bound = if flag == Some(true) { strict } else { bound };
            rules.extend(number(keyword)?.map(|number| Rule::Bound(bound, number)));
            if flag.is_none() {
                rules.extend(number(exclusive)?.map(|number| Rule::Bound(strict, number)));
            }
        }
        if let Some(step) = number("multipleOf")? {
            if step.as_f64().is_none_or(|step| step <= 0.0) {
                return Err(here.wrong("multipleOf", "a number above 0"));
            }
            rules.push(Rule::MultipleOf(step));
        }
        Ok(())
    }

    fn of_text(&mut self, here: Here<'_>, rules: &mut Vec<Rule>) -> Result<(), SchemaError> {
        rules.extend(extent(here, "minLength", "maxLength")?.map(Rule::Length));
        match here.schema.get("pattern") {
            None => {}
            Some(Value::String(text)) => {
                let pattern = self.pattern(text)?;
                rules.push(Rule::Pattern(pattern));
            }
            Some(_) => return Err(here.wrong("pattern", "text")),
        }
        Ok(())
    }

    fn of_arrays(&mut self, here: Here<'_>, rules: &mut Vec<Rule>) -> Result<(), SchemaError> {
        let is_old = here.schema.get("items").is_some_and(Value::is_array);
        let (first, others) = if is_old { ("items", "additionalItems") } else { ("prefixItems", "items") };
        let first = self.list(here, first)?;
        let others = self.one(here, others)?;
        if !first.is_empty() || others.is_some() {
            rules.push(Rule::Items { first, others });
        }
        if let Some(what) = self.one(here, "contains")? {
            let given = extent(here, "minContains", "maxContains")?.unwrap_or_default();
            rules.push(Rule::Contains(what, Extent { least: given.least.or(Some(1)), ..given }));
        }
        rules.extend(extent(here, "minItems", "maxItems")?.map(Rule::Count));
        if here.schema.get("uniqueItems") == Some(&Value::Bool(true)) {
            rules.push(Rule::Unique);
        }
        Ok(())
    }

    fn of_objects(&mut self, here: Here<'_>, rules: &mut Vec<Rule>) -> Result<(), SchemaError> {
        if let Some(names) = here.schema.get("required").filter(|required| !required.is_boolean()) {
            rules.push(Rule::Required(texts(names, &here.below("required"))?));
        }
        let named = self.by_name(here, "properties")?;
        let mut patterned = Vec::new();
        for (text, id) in self.by_name(here, "patternProperties")? {
            patterned.push((self.pattern(&text)?, id));
        }
        let others = self.one(here, "additionalProperties")?;
        if !named.is_empty() || !patterned.is_empty() || others.is_some() {
            let named = named.into_iter().collect();
            rules.push(Rule::Properties(Properties { named, patterned, others }));
        }
        if let Some(id) = self.one(here, "propertyNames")? {
            rules.push(Rule::Names(id));
        }
        rules.extend(extent(here, "minProperties", "maxProperties")?.map(Rule::Keys));
        for keyword in ["dependentRequired", "dependentSchemas", "dependencies"] {
            let Some(given) = here.schema.get(keyword) else { continue };
            let at = here.below(keyword);
            let given = given.as_object().ok_or_else(|| wrong(&at, "an object"))?;
            for (name, value) in given {
                let at = below(&at, name);
                rules.push(match value {
                    Value::Array(_) => Rule::Dependent(name.clone(), texts(value, &at)?),
                    _ => Rule::DependentSchema(name.clone(), self.place(at)?),
                });
            }
        }
        Ok(())
    }

    fn of_schemas(&mut self, here: Here<'_>, rules: &mut Vec<Rule>) -> Result<(), SchemaError> {
        for (keyword, rule) in
            [("allOf", Rule::All as fn(Vec<NodeId>) -> Rule), ("anyOf", Rule::Any), ("oneOf", Rule::One)]
        {
            let all = self.list(here, keyword)?;
            if !all.is_empty() {
                rules.push(rule(all));
            }
        }
        if let Some(id) = self.one(here, "not")? {
            rules.push(Rule::Not(id));
        }
        if let Some(test) = self.one(here, "if")? {
            let (then, otherwise) = (self.one(here, "then")?, self.one(here, "else")?);
            rules.push(Rule::If { test, then, otherwise });
        }
        Ok(())
    }

    fn one(&mut self, here: Here<'_>, keyword: &str) -> Result<Option<NodeId>, SchemaError> {
        here.schema.contains_key(keyword).then(|| self.place(here.below(keyword))).transpose()
    }

    fn list(&mut self, here: Here<'_>, keyword: &str) -> Result<Vec<NodeId>, SchemaError> {
        let Some(given) = here.schema.get(keyword) else { return Ok(Vec::new()) };
        let at = here.below(keyword);
        let given = given.as_array().ok_or_else(|| wrong(&at, "a list of schemas"))?;
        (0..given.len()).map(|index| self.place(format!("{at}/{index}"))).collect()
    }

    fn by_name(&mut self, here: Here<'_>, keyword: &str) -> Result<Vec<(String, NodeId)>, SchemaError> {
        let Some(given) = here.schema.get(keyword) else { return Ok(Vec::new()) };
        let at = here.below(keyword);
        let given = given.as_object().ok_or_else(|| wrong(&at, "an object of schemas by name"))?;
        given.keys().map(|name| Ok((name.clone(), self.place(below(&at, name))?))).collect()
    }

    fn pattern(&mut self, text: &str) -> Result<Pattern, SchemaError> {
        self.patterns += 1;
        if self.patterns > MOST_PATTERNS {
            return Err(SchemaError::TooLarge);
        }
        let regex =
            RegexBuilder::new(&ascii_classes(text)).size_limit(LARGEST_PATTERN).nest_limit(50).build();
        Ok(Pattern { text: text.to_owned(), regex: regex.ok() })
    }

    /// The place of what a `$ref` names.
    fn referred(&mut self, at: &str, reference: &Value) -> Result<NodeId, SchemaError> {
        let text = reference.as_str().ok_or_else(|| wrong(at, "text"))?;
        let outside = || SchemaError::Reference { at: at.to_owned(), reference: shortened(text) };
        let own = ["$id", "id"].iter().find_map(|key| self.whole.get(*key)).and_then(Value::as_str);
        let inside = own.and_then(|own| text.strip_prefix(own.trim_end_matches('#'))).unwrap_or(text);
        let pointer = match inside.strip_prefix('#') {
            None if inside.is_empty() => String::new(),
            None => return Err(outside()),
            Some(fragment) => {
                let fragment = decoded(fragment).ok_or_else(outside)?;
                match self.anchors.get(&fragment) {
                    Some(anchored) => anchored.clone(),
                    None => fragment,
                }
            }
        };
        if self.whole.pointer(&pointer).is_none() {
            return Err(outside());
        }
        self.place(pointer)
    }
}

fn wrong(at: &str, expected: &'static str) -> SchemaError {
    SchemaError::Wrong { at: if at.is_empty() { "/".to_owned() } else { at.to_owned() }, expected }
}

/// The pointer of a key below a pointer.
pub(super) fn below(at: &str, key: &str) -> String {
    format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"))
}

fn texts(value: &Value, at: &str) -> Result<Vec<String>, SchemaError> {
    let texts =
        value.as_array().and_then(|all| all.iter().map(|text| text.as_str().map(str::to_owned)).collect());
    texts.ok_or_else(|| wrong(at, "a list of names"))
}

fn extent(here: Here<'_>, least: &str, most: &str) -> Result<Option<Extent>, SchemaError> {
    let number = |keyword: &str| -> Result<Option<u64>, SchemaError> {
        let Some(value) = here.schema.get(keyword) else { return Ok(None) };
        let whole = value.as_u64().or_else(|| whole(value.as_f64()?));
        whole.map(Some).ok_or_else(|| here.wrong(keyword, "a whole number from 0"))
    };
    let extent = Extent { least: number(least)?, most: number(most)? };
    Ok((extent != Extent::default()).then_some(extent))
}

/// A whole number that was written as `5.0`.
fn whole(number: f64) -> Option<u64> {
    (number.fract() == 0.0 && (0.0..=1e15).contains(&number)).then(|| format!("{number:.0}").parse().ok())?
}

/// Where the schemas with an `$anchor` are.
fn find_anchors(value: &Value, at: &mut String, found: &mut BTreeMap<String, String>) {
    let length = at.len();
    match value {
        Value::Object(object) => {
            if let Some(name) = object.get("$anchor").and_then(Value::as_str) {
                found.insert(name.to_owned(), at.clone());
            }
            for (key, inner) in object {
                *at = below(at, key);
                find_anchors(inner, at, found);
                at.truncate(length);
            }
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                *at = format!("{at}/{index}");
                find_anchors(inner, at, found);
                at.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A fragment of an address without its `%20`.
fn decoded(fragment: &str) -> Option<String> {
    let mut bytes = fragment.bytes();
    let mut out = Vec::with_capacity(fragment.len());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(out).ok()
}

/// `\d` and `\w` mean ASCII in JSON Schema.
fn ascii_classes(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let (mut chars, mut depth) = (pattern.chars(), 0_u32);
    while let Some(c) = chars.next() {
        match c {
            '[' => depth = depth.saturating_add(1),
            ']' => depth = depth.saturating_sub(1),
            _ => {} // It opens and closes nothing.
        }
        if c != '\\' {
            out.push(c);
            continue;
        }
        match (chars.next(), depth > 0) {
            (Some('d'), true) => out.push_str("0-9"),
            (Some('d'), false) => out.push_str("[0-9]"),
            (Some('w'), true) => out.push_str("A-Za-z0-9_"),
            (Some('w'), false) => out.push_str("[A-Za-z0-9_]"),
            (Some('D'), false) => out.push_str("[^0-9]"),
            (Some('W'), false) => out.push_str("[^A-Za-z0-9_]"),
            (other, _) => {
                out.push('\\');
                out.extend(other);
            }
        }
    }
    out
}
