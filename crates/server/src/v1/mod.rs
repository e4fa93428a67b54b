//! Sandfork's own API, which `openapi.json` specifies.

mod amount;
mod batches;
mod events;
mod files;
mod runs;
mod sessions;

use std::sync::Arc;

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};

use serde_json::Value;

use crate::server::App;
use crate::tenant::Tenant;

/// Returns the routes.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/runs", post(runs::run))
        .route("/v1/batches", post(batches::batch))
        .route("/v1/activity", get(activity))
        .route("/v1/sessions", post(sessions::open).get(sessions::list))
        .route(
            "/v1/sessions/{id}",
            get(sessions::show).delete(sessions::close),
        )
        .route("/v1/sessions/{id}/cells", post(sessions::cell))
        .route("/v1/sessions/{id}/fork", post(sessions::fork))
        .route("/v1/sessions/{id}/interrupt", post(sessions::interrupt))
        .route("/v1/sessions/{id}/restart", post(sessions::restart))
        .route("/v1/sessions/{id}/directories", get(files::list_root))
        .route("/v1/sessions/{id}/directories/", get(files::list_root))
        .route(
            "/v1/sessions/{id}/directories/{*path}",
            get(files::list).put(files::make_directory),
        )
        .route(
            "/v1/sessions/{id}/files/{*path}",
            get(files::read).put(files::write).delete(files::remove),
        )
}

/// Returns statistics of the tenant's recent runs and cells.
async fn activity(Extension(tenant): Extension<Arc<Tenant>>) -> Json<Value> {
    Json(tenant.activity().described())
}

/// Returns the specification of the API, which needs no token.
pub async fn openapi() -> impl IntoResponse {
    (
        [(CONTENT_TYPE, "application/json")],
        include_str!("openapi.json"),
    )
}
