//! Sends spans together, while nobody waits for it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use disbatch_metrics::Metrics;
use disbatch_metrics::labels::Export;
use opentelemetry::KeyValue;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::EnvResourceDetector;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use crate::{TracesError, variable};

/// So many are sent at once.
const TOGETHER: usize = 512;

/// One waits for others for so long.
const PAUSE: Duration = Duration::from_secs(1);

/// A collector that answers later has not got them.
const PATIENCE: Duration = Duration::from_secs(10);

/// A collector that cannot be reached is spoken of so often.
const SAID_EVERY: Duration = Duration::from_secs(300);

/// The sending of spans.
#[derive(Debug)]
pub struct Sending {
    end: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Sending {
    pub(crate) fn start(
        service: &'static str,
        version: &'static str,
        node: Option<&str>,
        waiting: mpsc::Receiver<SpanData>,
        metrics: &Arc<Metrics>,
    ) -> Result<Self, TracesError> {
        let failed = |error: &dyn std::fmt::Display| TracesError::Exporter(error.to_string());
        // Fails where there is one already, which is as good.
        let _already_installed = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().timeout(PATIENCE).redirect(reqwest::redirect::Policy::none());
        let client = client.build().map_err(|error| failed(&error))?;
        let exporter = SpanExporter::builder().with_http().with_http_client(Client(client)).build();
        let mut exporter = exporter.map_err(|error| failed(&error))?;
        exporter.set_resource(&resource(service, version, node)?);
        let (end, ends) = oneshot::channel();
        let task = tokio::spawn(send(exporter, waiting, ends, Arc::clone(metrics)));
        Ok(Self { end, task })
    }

    /// Sends what there is, if the collector takes it within this time.
    pub async fn finish(self, within: Duration) {
        // It may have ended.
        let _told = self.end.send(());
        if timeout(within, self.task).await.is_err() {
            tracing::warn!("the last spans of traces could not be sent in time");
        }
    }
}

/// `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` go before what is said here.
fn resource(
    service: &'static str,
    version: &'static str,
    node: Option<&str>,
) -> Result<Resource, TracesError> {
    let own = [("service.name", service), ("service.version", version)].into_iter();
    let own = own.chain(node.map(|node| ("service.instance.id", node)));
    let own = own.map(|(name, value)| KeyValue::new(name, value.to_owned()));
    let resource =
        Resource::builder_empty().with_attributes(own).with_detector(Box::new(EnvResourceDetector::new()));
    Ok(match variable("OTEL_SERVICE_NAME")? {
        Some(name) => resource.with_service_name(name).build(),
        None => resource.build(),
    })
}

async fn send(
    exporter: SpanExporter,
    mut waiting: mpsc::Receiver<SpanData>,
    mut ends: oneshot::Receiver<()>,
    metrics: Arc<Metrics>,
) {
    let mut said: Option<Instant> = None;
    loop {
        let first = tokio::select! {
            biased;
            // Also if nobody is left to say so.
            _ = &mut ends => None,
            first = waiting.recv() => first,
        };
        let is_last = first.is_none();
        let mut batch: Vec<SpanData> = first.into_iter().collect();
        if is_last {
            waiting.close();
            while waiting.recv_many(&mut batch, TOGETHER).await > 0 {}
        } else {
            collect(&mut waiting, &mut batch).await;
        }
        for part in batch.chunks(TOGETHER) {
            let spans = part.len() as u64;
            let outcome = match exporter.export(part.to_vec()).await {
                Ok(()) => Export::Sent,
                Err(error) => {
                    if said.is_none_or(|at| at.elapsed() > SAID_EVERY) {
                        said = Some(Instant::now());
                        tracing::warn!(%error, spans, "spans of traces cannot be sent");
                    }
                    Export::Failed
                }
            };
            metrics.trace_spans.of(outcome).add(spans);
        }
        if is_last {
            return;
        }
    }
}

/// Those that come within a moment.
async fn collect(waiting: &mut mpsc::Receiver<SpanData>, batch: &mut Vec<SpanData>) {
    let until = Instant::now() + PAUSE;
    while batch.len() < TOGETHER {
        match timeout_at(until, waiting.recv()).await {
            Ok(Some(span)) => batch.push(span),
            Ok(None) | Err(_) => return,
        }
    }
}

/// The client that there is, as OpenTelemetry wants it.
#[derive(Debug)]
struct Client(reqwest::Client);

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let request = self.0.request(parts.method, parts.uri.to_string()).headers(parts.headers).body(body);
        let answer = request.send().await?;
        let mut response = Response::builder().status(answer.status());
        if let Some(headers) = response.headers_mut() {
            headers.clone_from(answer.headers());
        }
        Ok(response.body(answer.bytes().await?)?)
    }
}
