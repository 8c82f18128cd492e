//! The queues of the overview as a table, in the order that its reader has chosen, and in groups if they are asked for. By default those that
//! have something to do come first, and those that have not are folded away where there are many.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use askama::Template;
use askama::filters::HtmlSafe;
use bson::DateTime;
use disbatch_core::series::Ended;
use disbatch_values::words;

use super::facts::QueueFacts;
use super::throughput::{Span, sum};
use crate::error::HttpError;
use crate::params::Params;
use crate::ui::live::Part;
use crate::ui::queue_state::Tally;
use crate::ui::text;

const FEW: usize = 12;

const TOO_FEW_FOR_GROUPS: usize = 5;

words! {
    /// A column that the table can be sorted by, with its name in addresses.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Column {
        Name = "name",
        State = "state",
        Threads = "threads",
        Waiting = "waiting",
        Running = "running",
        Finished = "finished",
        Failed = "failed",
        Hour = "hour",
        Oldest = "oldest",
    }
}

impl Column {
    const fn heading(self) -> &'static str {
        match self {
            Self::Name => "Name",
            Self::State => "State",
            Self::Threads => "Threads",
            Self::Waiting => "Waiting",
            Self::Running => "Running",
            Self::Finished => "Finished",
            Self::Failed => "Failed",
            Self::Hour => "Last hour",
            Self::Oldest => "Oldest waiting",
        }
    }

    /// Whether its cells are numbers, of which the largest come first.
    const fn is_number(self) -> bool {
        matches!(self, Self::Threads | Self::Waiting | Self::Running | Self::Finished | Self::Failed)
    }

    /// Whether it is left out where a window is too narrow.
    const fn is_spare(self) -> bool {
        matches!(self, Self::Finished | Self::Hour)
    }

    fn compare(self, one: &QueueFacts, other: &QueueFacts) -> Ordering {
        let by = |number: fn(&QueueFacts) -> u64| number(one).cmp(&number(other));
        match self {
            Self::Name => Ordering::Equal, // They come in this order.
            Self::State => one.state().word().cmp(other.state().word()),
            Self::Threads => by(|queue| queue.queue.thread_limit()),
            Self::Waiting => by(|queue| queue.waiting.least()),
            Self::Running => by(|queue| queue.running),
            Self::Finished => by(|queue| queue.finished.least()),
            Self::Failed => by(|queue| queue.failed.least()),
            Self::Hour => by(|queue| queue.last_hour().total()),
            // Those in which nothing waits come last.
            Self::Oldest => {
                let key = |queue: &QueueFacts| queue.waits_since().map(Reverse);
                key(other).cmp(&key(one))
            }
        }
    }
}

/// In which order queues are shown, what groups them, and of which time the chart is: what the address of the page says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Order {
    /// By which column, if one was chosen, and whether the other way round.
    by: Option<(Column, bool)>,
    pub groups: Option<Grouping>,
    span: Option<Span>,
}

impl Order {
    /// What an address says: `sort=waiting`, or `sort=-waiting` with the largest first.
    pub fn of(params: &Params) -> Self {
        let sort = text(params.fields.get("sort"));
        let (name, down) = sort.strip_prefix('-').map_or((sort.as_str(), false), |name| (name, true));
        Self {
            by: Column::named(name).map(|column| (column, down)),
            groups: Grouping::named(&text(params.fields.get("group"))),
            span: Span::asked(params),
        }
    }

    pub fn query(self) -> String {
        let sort =
            self.by.map(|(column, down)| format!("sort={}{}", if down { "-" } else { "" }, column.as_str()));
        let groups = self.groups.map(|groups| format!("group={}", groups.as_str()));
        let span = self.span.map(|span| format!("span={}", span.as_str()));
        let given: Vec<String> = sort.into_iter().chain(groups).chain(span).collect();
        if given.is_empty() { String::new() } else { format!("?{}", given.join("&")) }
    }

    pub fn with_span(self, span: Span) -> Self {
        Self { span: Some(span), ..self }
    }

    pub fn with_groups(self, groups: Option<Grouping>) -> Self {
        Self { groups, ..self }
    }

    /// How the table is sorted by a column, as `aria-sort` has it; empty if it is not.
    fn sorted(self, column: Column) -> &'static str {
        match self.by.filter(|(by, _)| *by == column) {
            Some((_, true)) => "descending",
            Some((_, false)) => "ascending",
            None => "",
        }
    }

    /// Where the table is sorted by a column, or the other way round.
    fn address(self, column: Column) -> String {
        let begins_with_largest = column.is_number() || column == Column::Hour;
        let now = self.by.filter(|(by, _)| *by == column);
        let down = now.map_or(begins_with_largest, |(_, down)| !down);
        format!("/{}", Self { by: Some((column, down)), ..self }.query())
    }

    fn sort(self, rows: &mut [&QueueFacts]) {
        match self.by {
            Some((Column::Name, true)) => rows.reverse(),
            Some((column, true)) => rows.sort_by(|one, other| column.compare(other, one)),
            Some((column, false)) => rows.sort_by(|one, other| column.compare(one, other)),
            None => {} // As they come.
        }
    }
}

#[derive(Debug, Template)]
#[template(path = "overview/queues.html", blocks = ["busy", "idle"])]
pub struct QueueTable<'a> {
    busy: Vec<Row<'a>>,
    /// Those that have nothing to do, where there are many.
    idle: Vec<Row<'a>>,
    order: Order,
}

impl HtmlSafe for QueueTable<'_> {}

#[derive(Debug, Template)]
enum Row<'a> {
    #[template(source = "{{ self.0 }}", ext = "html")]
    Queue(&'a QueueFacts),
    /// Stands above its queues.
    #[template(source = "{{ self.0 }}", ext = "html")]
    Group(Box<Group>),
}

impl HtmlSafe for Row<'_> {}

impl<'a> QueueTable<'a> {
    /// Queues, which come in order of name.
    pub fn of(queues: &'a [QueueFacts], order: Order) -> Self {
        let folds = queues.len() > FEW && order.by.is_none();
        let (idle, mut busy): (Vec<_>, Vec<_>) = queues.iter().partition(|queue| folds && queue.is_idle());
        order.sort(&mut busy);
        let busy = match order.groups {
            Some(groups) => in_groups(queues, &busy, groups),
            None => busy.into_iter().map(Row::Queue).collect(),
        };
        let idle = idle.into_iter().map(Row::Queue).collect();
        Self { busy, idle, order }
    }

    pub fn can_be_grouped(&self) -> bool {
        self.order.groups.is_some() || self.busy.len() + self.idle.len() > TOO_FEW_FOR_GROUPS
    }

    /// The tables, whenever there are other queues in them, and each queue.
    pub fn parts(&self) -> Result<Vec<Part>, HttpError> {
        let busy = Part::table(&self.as_busy(), &self.busy)?;
        let idle = Part::table(&self.as_idle(), &self.idle)?;
        Ok([busy, idle].concat())
    }
}

/// Each group of `all`, with those of its queues that are `shown`. A group of which none is shown is left out.
fn in_groups<'a>(all: &[QueueFacts], shown: &[&'a QueueFacts], grouping: Grouping) -> Vec<Row<'a>> {
    let mut groups = BTreeMap::<String, Vec<&QueueFacts>>::new();
    let mut rest = Vec::new();
    for queue in all {
        match grouping.key(queue) {
            Some(key) => groups.entry(key).or_default().push(queue),
            None => rest.push(queue),
        }
    }
    if grouping == Grouping::Prefix {
        let (alone, several): (BTreeMap<_, _>, _) =
            groups.into_iter().partition(|(_, queues)| queues.len() == 1);
        rest.extend(alone.into_values().flatten());
        groups = several;
    }
    let groups = groups.into_iter().map(|(name, queues)| (name, false, queues));
    let mut rows = Vec::new();
    for (name, is_rest, queues) in groups.chain([(grouping.rest().to_owned(), true, rest)]) {
        let is_in = |queue: &&&QueueFacts| queues.iter().any(|own| own.queue.id == queue.queue.id);
        let shown: Vec<_> = shown.iter().filter(is_in).map(|queue| Row::Queue(queue)).collect();
        if !shown.is_empty() {
            rows.push(Row::Group(Box::new(Group { name, is_rest, all: Sum::of(&queues) })));
            rows.extend(shown);
        }
    }
    rows
}

/// What ends the first word of a queue's name.
const SEPARATORS: [char; 6] = ['-', '_', '.', ':', '/', ' '];

words! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Grouping {
        /// By the first word of their names. Those whose word no other has are together, at the end.
        Prefix = "prefix",
        /// Those that have none are together, at the end.
        Tenant = "tenant",
    }
}

impl Grouping {
    /// What the group of those is called that are in no other.
    const fn rest(self) -> &'static str {
        match self {
            Self::Prefix => "Others",
            Self::Tenant => "No tenant",
        }
    }

    fn key(self, queue: &QueueFacts) -> Option<String> {
        let name = queue.queue.display_name();
        match self {
            Self::Prefix => name.split(SEPARATORS).find(|word| !word.is_empty()).map(str::to_owned),
            Self::Tenant => queue.queue.tenant().map(str::to_owned),
        }
    }
}

/// A group, and what all of its queues have: also a row of their table.
#[derive(Debug, Template)]
#[template(path = "overview/group.html")]
struct Group {
    name: String,
    /// Whether it is of those that are in no other.
    is_rest: bool,
    all: Sum,
}

impl HtmlSafe for Group {}

/// What several queues have together.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub queues: usize,
    pub idle: usize,
    pub threads: u64,
    pub waiting: Tally,
    pub running: u64,
    pub finished: Tally,
    pub failed: Tally,
    pub hour: Vec<Ended>,
    pub oldest: Option<DateTime>,
}

impl Sum {
    pub fn of(queues: &[&QueueFacts]) -> Self {
        let tally = |of: fn(&QueueFacts) -> &Tally| Tally::sum(queues.iter().map(|queue| of(queue)));
        let total =
            |of: fn(&QueueFacts) -> u64| queues.iter().map(|queue| of(queue)).fold(0, u64::saturating_add);
        let steps = queues.iter().map(|queue| queue.hour.len()).max().unwrap_or(0);
        let step = |at: usize| sum(queues.iter().filter_map(|queue| queue.hour.get(at)));
        Self {
            queues: queues.len(),
            idle: queues.iter().filter(|queue| queue.is_idle()).count(),
            threads: total(|queue| queue.queue.thread_limit()),
            waiting: tally(|queue| &queue.waiting),
            running: total(|queue| queue.running),
            finished: tally(|queue| &queue.finished),
            failed: tally(|queue| &queue.failed),
            hour: (0..steps).map(step).collect(),
            oldest: queues.iter().filter_map(|queue| queue.waits_since()).min(),
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use disbatch_core::counters::count::Amount;

    use super::*;

    fn queue(name: &str, waiting: u64, running: u64) -> QueueFacts {
        let id = bson::oid::ObjectId::from_bytes([u8::try_from(name.len()).unwrap(); 12]);
        let oldest = (waiting > 0).then(|| DateTime::from_millis(i64::try_from(waiting).unwrap()));
        QueueFacts {
            queue: bson::deserialize_from_document(doc! { "_id": id, "name": name, "threads": 1 }).unwrap(),
            waiting: Tally::new(vec![-2], Amount::Exactly(waiting)),
            running,
            finished: Tally::default(),
            failed: Tally::default(),
            hour: Vec::new(),
            oldest,
            blocked: None,
            asks: None,
            rate: None,
            intake: None,
            lacks: None,
        }
    }

    fn order(sort: &str) -> Order {
        let (sort, group) = sort.split_once(" by ").unwrap_or((sort, ""));
        let fields = [("sort".to_owned(), sort.into()), ("group".to_owned(), group.into())];
        Order::of(&Params { fields: fields.into_iter().collect(), ..Params::default() })
    }

    fn names(queues: &[QueueFacts], sort: &str) -> (Vec<String>, usize) {
        let table = QueueTable::of(queues, order(sort));
        let name = |row: &Row<'_>| match row {
            Row::Queue(queue) => queue.queue.display_name(),
            Row::Group(group) => format!("[{}]", group.name),
        };
        (table.busy.iter().map(name).collect(), table.idle.len())
    }

    #[test]
    fn any_column_sorts_both_ways() {
        let queues = [queue("a", 5, 0), queue("bb", 0, 2), queue("ccc", 9, 1)];
        let of = |sort: &str| names(&queues, sort).0.join(" ");
        assert_eq!(
            [of(""), of("name"), of("-name"), of("<x>")],
            ["a bb ccc", "a bb ccc", "ccc bb a", "a bb ccc"]
        );
        assert_eq!([of("-waiting"), of("waiting"), of("-running")], ["ccc a bb", "bb a ccc", "bb ccc a"]);
        assert_eq!([of("oldest"), of("state")], ["a ccc bb", "a bb ccc"]);
        let html = QueueTable::of(&queues, order("-waiting")).render().unwrap();
        assert!(html.contains("aria-sort=\"descending\"><a href=\"/?sort=waiting\">Waiting</a>"), "{html}");
        assert!(html.contains("<a href=\"/?sort=-running\">Running</a>"), "{html}");
        assert_eq!((order("-waiting").query(), order("").query()), ("?sort=-waiting".into(), String::new()));
        let both = order("-waiting").with_span(Span::Week);
        assert_eq!(both.query(), "?sort=-waiting&span=7d");
        let html = QueueTable::of(&queues, both).render().unwrap();
        assert!(html.contains("<a href=\"/?sort=-running&#38;span=7d\">Running</a>"), "{html}");
    }

    #[test]
    fn groups_stand_above_their_queues_with_what_all_of_these_have() {
        let mut queues = vec![queue("a", 5, 0), queue("mail-in", 1, 2), queue("mail.out.a", 9, 1)];
        assert_eq!(
            names(&queues, "-waiting by prefix").0,
            ["[mail]", "mail.out.a", "mail-in", "[Others]", "a"]
        );
        queues[2].queue.rest.insert("tenant", "acme");
        assert_eq!(names(&queues, " by tenant").0, ["[acme]", "mail.out.a", "[No tenant]", "a", "mail-in"]);
        assert_eq!(names(&queues, " by <x>").0, ["a", "mail-in", "mail.out.a"]);
        let order = order("-waiting by prefix");
        assert_eq!(order.query(), "?sort=-waiting&group=prefix");
        let html = QueueTable::of(&queues, order).render().unwrap();
        for part in ["2 queues", "<td data-label=\"Waiting\" class=\"number\">10</td>", "id=\"group-mail\""] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
    }

    #[test]
    fn idle_queues_are_folded_where_there_are_many() {
        let name = |n: usize| "x".repeat(n);
        let many: Vec<QueueFacts> = (1..=20).map(|n| queue(&name(n), u64::from(n == 7), 0)).collect();
        assert_eq!(names(&many, ""), (vec![name(7)], 19));
        assert_eq!(names(&many, "name").1, 0, "who sorts sees all of them");
        assert_eq!(names(&many[..FEW], "").1, 0, "few are all shown");
        let html = QueueTable::of(&many, Order::default()).render().unwrap();
        assert!(html.contains("19 idle queues") && html.matches("<tr id=").count() == 20, "{html}");
        let parts = QueueTable::of(&many, Order::default()).parts().unwrap();
        crate::ui::live::assert_on_page(&parts, &html);
        assert_eq!(parts.len(), 22);
    }
}
