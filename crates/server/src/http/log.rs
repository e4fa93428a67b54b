//! A line in the log and a count for each answer.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;

use crate::failure::FailureKind;
use crate::metrics::Metrics;

/// The tenant of a request, which its handler tells the log.
#[derive(Clone, Debug)]
pub struct TenantName(pub Arc<str>);

/// Logs and counts what comes after it. The path of the log is that of the route: one of a request may have what its
/// client wants to keep for itself.
pub async fn log(State(metrics): State<Arc<Metrics>>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let route: Arc<str> = match request.extensions().get::<MatchedPath>() {
        Some(path) => path.as_str().into(),
        // Not the client's path: there would be as many counts as it makes up.
        None => "unknown".into(),
    };
    let method = request.method().clone();
    let response = next.run(request).await;
    let (code, time) = (response.status().as_u16(), begun.elapsed());
    let tenant = response.extensions().get::<TenantName>();
    let tenant = tenant.map_or_else(|| "".into(), |tracked| Arc::clone(&tracked.0));
    let kind = response
        .extensions()
        .get::<FailureKind>()
        .map_or("", |kind| kind.0);
    if !kind.is_empty() {
        metrics.refused(&tenant, kind);
    }
    metrics.answered(&route, code, time);
    let ms = time.as_secs_f64() * 1000.0;
    tracing::info!(target: "access", %method, route = &*route, code, tenant = &*tenant, failure = kind, ms);
    response
}
