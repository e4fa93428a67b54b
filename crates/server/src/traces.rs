//! Exports traces over OTLP: a span for each response, within it a span for each run or cell, and within that a span
//! for each phase.
//!
//! Without a collector, the tracer of `opentelemetry` does nothing. If the collector does not respond, spans are
//! dropped: a queue of 2,048 spans absorbs the delay, and requests never wait.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use axum::http::HeaderMap;
use opentelemetry::global;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{Span, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_http::{Bytes, HeaderExtractor, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use sandfork::Outcome;
use tokio::runtime::Handle;

/// The timeout for exporting one batch, and for the last one at shutdown.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

const NAME: &str = "sandfork-server";

/// The trace export. Dropping it flushes the queued spans.
#[derive(Debug)]
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// Exports spans to a collector, such as `http://127.0.0.1:4318`. The standard environment variables, such as
    /// `OTEL_SERVICE_NAME` and `OTEL_TRACES_SAMPLER`, configure the rest.
    ///
    /// # Errors
    /// Returns an error if the address or a variable is invalid.
    pub fn to(collector: &str, runtime: &Handle) -> Result<Self, ExporterBuildError> {
        let exporter = SpanExporter::builder()
            .with_http()
            .with_endpoint(format!("{}/v1/traces", collector.trim_end_matches('/')))
            .with_protocol(protocol()?)
            .with_timeout(EXPORT_TIMEOUT)
            .with_http_client(Client {
                hyper: HyperClient::with_default_connector(EXPORT_TIMEOUT, None),
                runtime: runtime.clone(),
                is_lost: AtomicBool::new(false),
            })
            .build()?;
        let mut resource = Resource::builder();
        if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name(NAME);
        }
        let provider = SdkTracerProvider::builder()
            .with_resource(resource.build())
            .with_batch_exporter(exporter)
            .build();
        global::set_tracer_provider(provider.clone());
        Ok(Self(provider))
    }
}

/// Returns the protocol from the standard environment variables, or the default.
fn protocol() -> Result<Protocol, ExporterBuildError> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let named =
        variable("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL").or(variable("OTEL_EXPORTER_OTLP_PROTOCOL"));
    match named.as_deref() {
        None | Some("http/protobuf") => Ok(Protocol::HttpBinary),
        Some("http/json") => Ok(Protocol::HttpJson),
        Some(other) => Err(ExporterBuildError::InvalidConfiguration(format!(
            "OTEL_EXPORTER_OTLP_PROTOCOL: use http/protobuf or http/json instead of {other}"
        ))),
    }
}

/// Returns whether the standard environment variable disables tracing.
pub fn are_disabled() -> bool {
    std::env::var("OTEL_SDK_DISABLED").is_ok_and(|value| value.eq_ignore_ascii_case("true"))
}

impl Drop for Traces {
    fn drop(&mut self) {
        // The client has already logged a lost collector.
        _ = self.0.shutdown_with_timeout(EXPORT_TIMEOUT);
    }
}

/// Sends batches from a thread without a runtime. Logs once when the collector is lost, and once when it is back.
struct Client {
    hyper: HyperClient,
    runtime: Handle,
    is_lost: AtomicBool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (hyper, uri) = (self.hyper.clone(), request.uri().clone());
        let sent = self
            .runtime
            .spawn(async move { hyper.send_bytes(request).await });
        let sent = sent.await?;
        let problem = match &sent {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(response.status().to_string()),
            Err(error) => Some(error.to_string()),
        };
        let was_lost = self.is_lost.swap(problem.is_some(), Ordering::Relaxed);
        match problem {
            Some(problem) if !was_lost => {
                tracing::warn!("traces are lost until {uri} takes them: {problem}");
            }
            None if was_lost => tracing::info!("{uri} takes traces again"),
            _ => {}
        }
        sent
    }
}

/// Starts the span of a response, as part of the client's trace if the request has one (`traceparent`).
pub fn answering(method: &'static str, route: &str, headers: &HeaderMap) -> Context {
    let of_client = TraceContextPropagator::new().extract(&HeaderExtractor(headers));
    let tracer = global::tracer(NAME);
    let span = tracer
        .span_builder(format!("{method} {route}"))
        .with_kind(SpanKind::Server)
        .with_attributes([
            KeyValue::new("http.request.method", method),
            KeyValue::new("http.route", route.to_owned()),
        ])
        .start_with_context(&tracer, &of_client);
    of_client.with_span(span)
}

/// Ends the span of a response.
pub fn answered(answering: &Context, code: u16, tenant: &str, failure: &'static str) {
    let span = answering.span();
    span.set_attribute(KeyValue::new("http.response.status_code", i64::from(code)));
    span.set_attribute(KeyValue::new("sandfork.tenant", tenant.to_owned()));
    if !failure.is_empty() {
        span.set_attribute(KeyValue::new("error.type", failure));
    }
    if code >= 500 {
        span.set_status(Status::error(failure));
    }
    span.end();
}

/// Records the span of a run or a cell that has just ended. A failure of guest code is not an error of the server.
pub fn ended(within: &Context, outcome: &Outcome) {
    let tracer = global::tracer(NAME);
    let phases = outcome.usage().phases;
    let lasted: Duration = phases.each().into_iter().map(|(_, time)| time).sum();
    let mut begin = SystemTime::now() - lasted;
    let mut run = tracer
        .span_builder("run")
        .with_start_time(begin)
        .with_attributes([KeyValue::new("sandfork.status", outcome.status().as_str())])
        .start_with_context(&tracer, within);
    if let Some(limit) = outcome.limit() {
        run.set_attribute(KeyValue::new("sandfork.limit", limit.name.key()));
    }
    let run = within.with_span(run);
    for (phase, time) in phases.each() {
        if time.is_zero() {
            continue;
        }
        let mut span = tracer
            .span_builder(phase)
            .with_start_time(begin)
            .start_with_context(&tracer, &run);
        begin += time;
        span.end_with_timestamp(begin);
    }
    run.span().end();
}
