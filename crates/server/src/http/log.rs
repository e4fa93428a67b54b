//! Logs, counts and traces each response.

use std::io::IsTerminal;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use opentelemetry::trace::FutureExt;
use tracing::Level;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::failure::FailureKind;
use crate::metrics::Metrics;
use crate::traces;

/// The tenant of a request, which its handler reports to the log.
#[derive(Clone, Debug, Default)]
pub struct TenantName(Arc<OnceLock<Arc<str>>>);

impl TenantName {
    /// Records the tenant of a request, which may still be rejected.
    pub fn set(request: &Request, tenant: &Arc<str>) {
        if let Some(name) = request.extensions().get::<Self>() {
            name.0.get_or_init(|| Arc::clone(tenant));
        }
    }
}

/// Middleware that logs, counts and traces responses. The logged path is that of the route, because a request's own
/// path may contain confidential parts.
pub async fn log(
    State(metrics): State<Arc<Metrics>>,
    mut request: Request,
    next: Next,
) -> Response {
    let begun = Instant::now();
    let route: Arc<str> = match request.extensions().get::<MatchedPath>() {
        Some(path) => path.as_str().into(),
        // Not the client's path, because each distinct path would create another metric.
        None => "unknown".into(),
    };
    let method = method_name(request.method());
    let span = traces::answering(method, &route, request.headers());
    // For MCP, whose calls run in separate tasks.
    request.extensions_mut().insert(span.clone());
    let tenant = TenantName::default();
    request.extensions_mut().insert(tenant.clone());
    let response = next.run(request).with_context(span.clone()).await;
    let (code, time) = (response.status().as_u16(), begun.elapsed());
    let tenant = tenant.0.get().map_or_else(|| "".into(), Arc::clone);
    let kind = response
        .extensions()
        .get::<FailureKind>()
        .map_or("", |kind| kind.0);
    if !kind.is_empty() {
        metrics.refused(&tenant, kind);
    }
    metrics.answered(&route, code, time);
    traces::answered(&span, code, &tenant, kind);
    let ms = time.as_secs_f64() * 1000.0;
    tracing::info!(target: "access", method, route = &*route, code, tenant = &*tenant, failure = kind, ms);
    response
}

/// Returns the name of a standard method, or `other`, because clients may send arbitrarily long names.
fn method_name(method: &Method) -> &'static str {
    const NAMES: [&str; 9] = [
        "CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE",
    ];
    let mut known = NAMES.into_iter().filter(|name| method == name);
    known.next().unwrap_or("other")
}

/// The maximum number of buffered log lines.
const MAX_BUFFERED_LINES: usize = 4096;

/// Starts logging: readable lines on a terminal, JSON otherwise. `SANDFORK_LOG=off` disables it. Dropping the returned
/// guard flushes the buffered lines.
pub fn begin_log() -> Option<WorkerGuard> {
    if std::env::var("SANDFORK_LOG").is_ok_and(|level| level == "off") {
        return None;
    }
    // A separate thread writes: if the reader of a pipe stalls, requests continue and lines are lost.
    let (lines, written) = NonBlockingBuilder::default()
        .buffered_lines_limit(MAX_BUFFERED_LINES)
        .thread_name("log")
        .finish(std::io::stderr());
    let builder = tracing_subscriber::fmt().with_writer(lines);
    // rmcp logs each call at INFO, which the access log already covers.
    let levels = Targets::new()
        .with_default(Level::INFO)
        .with_target("rmcp", Level::WARN);
    // Fails only if a subscriber is already set.
    _ = if std::io::stderr().is_terminal() {
        let lines = builder.compact().with_target(false).finish();
        lines.with(levels).try_init()
    } else {
        let lines = builder.json().flatten_event(true).finish();
        lines.with(levels).try_init()
    };
    Some(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonstandard_methods_are_logged_as_other() {
        let long = "A".repeat(60_000);
        for (method, name) in [
            ("GET", "GET"),
            ("PUT", "PUT"),
            ("get", "other"),
            (&long, "other"),
        ] {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            assert_eq!(method_name(&method), name);
        }
    }
}
