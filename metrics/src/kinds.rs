//! The kinds of metrics, and how each is written.

use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use std::time::Duration;

use prometheus_client::encoding::{MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;

use crate::labels::Label;

/// Labels of one sample.
pub type Labels<'a> = [(&'static str, &'a str)];

/// A label, and its values where these are known beforehand.
pub type KnownLabel = (&'static str, &'static [&'static str]);

/// What can be exported.
pub trait Metric: Debug + Send + Sync + 'static {
    fn kind(&self) -> MetricType;

    /// The labels that it has by itself.
    fn labels(&self) -> Vec<KnownLabel> {
        Vec::new()
    }

    /// Writes its samples, each with `labels` besides its own.
    fn samples(&self, encoder: &mut MetricEncoder<'_>, labels: &Labels<'_>) -> fmt::Result;
}

fn counted(encoder: &mut MetricEncoder<'_>, labels: &Labels<'_>, value: f64) -> fmt::Result {
    let none = None::<&Exemplar<NoLabelSet, f64>>;
    match labels {
        [] => encoder.encode_counter(&value, none),
        labels => encoder.encode_family(&labels)?.encode_counter(&value, none),
    }
}

fn gauged(encoder: &mut MetricEncoder<'_>, labels: &Labels<'_>, value: f64) -> fmt::Result {
    match labels {
        [] => encoder.encode_gauge(&value),
        labels => encoder.encode_family(&labels)?.encode_gauge(&value),
    }
}

/// A number in an atomic.
#[derive(Debug, Default)]
struct Number(AtomicU64);

impl Number {
    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    fn add(&self, value: f64) {
        let sum = |bits| Some((f64::from_bits(bits) + value).to_bits());
        let _before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
    }
}

/// A number that grows.
#[derive(Debug, Default)]
pub struct Counter(Number);

impl Counter {
    pub fn get(&self) -> f64 {
        self.0.get()
    }

    pub fn inc(&self) {
        self.0.add(1.0);
    }

    pub fn add(&self, times: u64) {
        self.0.add(float(times));
    }

    pub fn add_seconds(&self, seconds: f64) {
        // A document of another program may have anything.
        if seconds.is_finite() && seconds > 0.0 {
            self.0.add(seconds);
        }
    }
}

impl Metric for Counter {
    fn kind(&self) -> MetricType {
        MetricType::Counter
    }

    fn samples(&self, encoder: &mut MetricEncoder<'_>, labels: &Labels<'_>) -> fmt::Result {
        counted(encoder, labels, self.0.get())
    }
}

/// A number that is as it is. One that nobody has told of is not exported.
#[derive(Debug)]
pub struct Gauge(Number);

impl Default for Gauge {
    fn default() -> Self {
        let unknown = Number::default();
        unknown.set(f64::NAN);
        Self(unknown)
    }
}

impl Gauge {
    /// One that begins with zero.
    pub fn zero() -> Self {
        Self(Number::default())
    }

    pub fn set(&self, value: u64) {
        self.0.set(float(value));
    }

    pub fn set_time(&self, time: Duration) {
        self.0.set(time.as_secs_f64());
    }

    pub fn set_whether(&self, is_so: bool) {
        self.0.set(f64::from(u8::from(is_so)));
    }

    /// What was told last, if anything was.
    pub fn get(&self) -> Option<f64> {
        Some(self.0.get()).filter(|value| !value.is_nan())
    }

    /// It is not known any more.
    pub fn forget(&self) {
        self.0.set(f64::NAN);
    }

    pub fn inc(&self) {
        self.0.add(1.0);
    }

    pub fn dec(&self) {
        self.0.add(-1.0);
    }
}

impl Metric for Gauge {
    fn kind(&self) -> MetricType {
        MetricType::Gauge
    }

    fn samples(&self, encoder: &mut MetricEncoder<'_>, labels: &Labels<'_>) -> fmt::Result {
        self.get().map_or(Ok(()), |value| gauged(encoder, labels, value))
    }
}

/// How many values were up to which bound.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One more than there are bounds.
    counts: Box<[AtomicU64]>,
    sum: Number,
}

impl Histogram {
    pub fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: Number::default(),
        }
    }

    pub fn observe(&self, value: f64) {
        // A document of another program may have anything.
        if !value.is_finite() {
            return;
        }
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.add(value);
    }

    pub fn observe_time(&self, time: Duration) {
        self.observe(time.as_secs_f64());
    }

    pub fn observe_count(&self, count: usize) {
        self.observe(float(count as u64));
    }
}

impl Metric for Histogram {
    fn kind(&self) -> MetricType {
        MetricType::Histogram
    }

    /// One with labels that has seen nothing is left out: it is long, and of some values there will never be any.
    fn samples(&self, encoder: &mut MetricEncoder<'_>, labels: &Labels<'_>) -> fmt::Result {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let (sum, count) = (self.sum.get(), buckets.iter().map(|(_, count)| count).sum());
        match labels {
            [] => encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None),
            _ if count == 0 => Ok(()),
            labels => {
                encoder.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
            }
        }
    }
}

/// One for each value of a label.
#[derive(Debug)]
pub struct By<L, M> {
    each: Box<[M]>,
    of: PhantomData<L>,
}

impl<L: Label, M> By<L, M> {
    pub fn new(make: impl Fn() -> M) -> Self {
        Self { each: L::VALUES.iter().map(|_| make()).collect(), of: PhantomData }
    }

    pub fn of(&self, label: L) -> &M {
        &self.each[label.index()]
    }
}

impl<L: Label, M: Default> Default for By<L, M> {
    fn default() -> Self {
        Self::new(M::default)
    }
}

impl<L: Label, M: Metric> Metric for By<L, M> {
    fn kind(&self) -> MetricType {
        self.each[0].kind()
    }

    fn labels(&self) -> Vec<KnownLabel> {
        [vec![(L::NAME, L::VALUES)], self.each[0].labels()].concat()
    }

    fn samples(&self, encoder: &mut MetricEncoder<'_>, labels: &Labels<'_>) -> fmt::Result {
        for (value, metric) in L::VALUES.iter().zip(&self.each) {
            metric.samples(encoder, &[labels, &[(L::NAME, *value)]].concat())?;
        }
        Ok(())
    }
}

/// One for each set of values that was met. Whoever adds to it sees to it that these are not many.
#[derive(Debug)]
pub struct Met<K, M> {
    names: &'static [&'static str],
    make: fn() -> M,
    each: RwLock<HashMap<K, Arc<M>>>,
}

impl<K: AsValues + Eq + Hash + Clone, M> Met<K, M> {
    pub fn new(names: &'static [&'static str], make: fn() -> M) -> Self {
        Self { names, make, each: RwLock::default() }
    }

    pub fn of(&self, key: &K) -> Arc<M> {
        if let Some(known) = self.each.read().unwrap_or_else(PoisonError::into_inner).get(key) {
            return Arc::clone(known);
        }
        let mut each = self.each.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(each.entry(key.clone()).or_insert_with(|| Arc::new((self.make)())))
    }
}

/// What stands for a set of values of labels.
pub trait AsValues {
    fn values(&self) -> Vec<String>;
}

impl<K, M> Metric for Met<K, M>
where
    K: AsValues + Debug + Send + Sync + 'static,
    M: Metric,
{
    fn kind(&self) -> MetricType {
        (self.make)().kind()
    }

    fn labels(&self) -> Vec<KnownLabel> {
        self.names.iter().map(|name| (*name, &[] as &[_])).collect()
    }

    fn samples(&self, encoder: &mut MetricEncoder<'_>, labels: &Labels<'_>) -> fmt::Result {
        let each = self.each.read().unwrap_or_else(PoisonError::into_inner);
        let mut rows: Vec<_> = each.iter().map(|(key, metric)| (key.values(), metric)).collect();
        rows.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (values, metric) in rows {
            metric.samples(encoder, &[labels, &named(self.names, &values)].concat())?;
        }
        Ok(())
    }
}

fn named<'a>(names: &'static [&'static str], values: &'a [String]) -> Vec<(&'static str, &'a str)> {
    names.iter().copied().zip(values.iter().map(String::as_str)).collect()
}

/// Gauges that are found out all at once.
#[derive(Debug)]
pub struct Rows {
    names: &'static [&'static str],
    rows: RwLock<Vec<Row>>,
}

/// The values of the labels, and the number.
pub type Row = (Vec<String>, f64);

impl Rows {
    pub fn new(names: &'static [&'static str]) -> Self {
        Self { names, rows: RwLock::default() }
    }

    /// Takes the place of what was there.
    pub fn set(&self, rows: Vec<Row>) {
        *self.rows.write().unwrap_or_else(PoisonError::into_inner) = rows;
    }
}

impl Metric for Rows {
    fn kind(&self) -> MetricType {
        MetricType::Gauge
    }

    fn labels(&self) -> Vec<KnownLabel> {
        self.names.iter().map(|name| (*name, &[] as &[_])).collect()
    }

    fn samples(&self, encoder: &mut MetricEncoder<'_>, labels: &Labels<'_>) -> fmt::Result {
        for (values, number) in self.rows.read().unwrap_or_else(PoisonError::into_inner).iter() {
            gauged(encoder, &[labels, &named(self.names, values)].concat(), *number)?;
        }
        Ok(())
    }
}

/// What the whole process counts in one place, as whoever counts has nothing else at hand.
#[derive(Debug)]
pub struct OfProcess<M: 'static>(pub &'static LazyLock<M>);

impl<M: Metric> Metric for OfProcess<M> {
    fn kind(&self) -> MetricType {
        self.0.kind()
    }

    fn labels(&self) -> Vec<KnownLabel> {
        self.0.labels()
    }

    fn samples(&self, encoder: &mut MetricEncoder<'_>, labels: &Labels<'_>) -> fmt::Result {
        self.0.samples(encoder, labels)
    }
}

/// What is looked up when it is asked for. Where it cannot be, it is not exported.
#[derive(Debug)]
pub struct LookedUp {
    pub kind: MetricType,
    pub look: fn() -> Option<f64>,
}

impl Metric for LookedUp {
    fn kind(&self) -> MetricType {
        self.kind
    }

    fn samples(&self, encoder: &mut MetricEncoder<'_>, labels: &Labels<'_>) -> fmt::Result {
        match ((self.look)(), self.kind) {
            (None, _) => Ok(()),
            (Some(value), MetricType::Counter) => counted(encoder, labels, value),
            (Some(value), _) => gauged(encoder, labels, value),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "what is lost of numbers beyond 2^53 is nothing that anybody would see"
)]
fn float(number: u64) -> f64 {
    number as f64
}
