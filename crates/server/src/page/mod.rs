//! The web page at `/`: shows activity, sessions and failures, and runs cells. It uses the API like any other client,
//! with the token that the user enters, and renders text from guests only as text nodes.

use axum::Router;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::IntoResponse;
use axum::routing::get;

/// The content security policy: only the page's own script and style, requests to its own server, and inline images. No
/// other page may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Returns the routes. They need no token, because their contents are the same for everyone.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let file = |kind, text| get(async move || answer(kind, text));
    Router::new()
        .route(
            "/",
            file("text/html; charset=utf-8", include_str!("page.html")),
        )
        .route(
            "/page.js",
            file("text/javascript; charset=utf-8", include_str!("page.js")),
        )
        .route(
            "/page.css",
            file("text/css; charset=utf-8", include_str!("page.css")),
        )
}

fn answer(kind: &'static str, text: &'static str) -> impl IntoResponse {
    let headers = [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, text)
}
