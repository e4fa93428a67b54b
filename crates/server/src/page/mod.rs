//! The page at `/`: what runs, how it ended, and a cell to try. It uses the API as any client does, with the token that
//! its user types, and shows all texts of guests as texts.

use axum::Router;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::IntoResponse;
use axum::routing::get;

/// Nothing but the page's own script and style, its own server, and pictures that the script has as bytes. No other page
/// frames it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The routes. They need no token: what they answer is the same for all.
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
