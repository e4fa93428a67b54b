//! Rejects requests that a browser sends on behalf of another site (CSRF, DNS rebinding). A server on a person's own
//! machine needs no token and is reachable from that person's browser, so any web page could otherwise run code.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::failure::Failure;
use crate::server::App;

/// Middleware that rejects cross-site requests.
pub async fn reject_cross_site(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Response {
    let needs_no_token = !app.authenticator.has_tokens();
    match check(request.method(), request.headers(), needs_no_token) {
        Ok(()) => next.run(request).await,
        Err(problem) => {
            app.bodies.discard(request.into_body()).await;
            Failure::CrossSite(problem).into_response()
        }
    }
}

/// Checks a request. A server without tokens accepts only host names of this machine, because a name of an attacker's
/// site may resolve to it too.
fn check(method: &Method, headers: &HeaderMap, needs_no_token: bool) -> Result<(), &'static str> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = text(HOST.as_str()).unwrap_or_default();
    if needs_no_token && !is_of_this_machine(host) {
        return Err(
            "a server without tokens accepts only host names of this machine, such as `localhost`",
        );
    }
    // These methods change nothing, and the browser hides the response from other sites.
    if method == Method::GET || method == Method::HEAD {
        return Ok(());
    }
    let is_own = match (text("sec-fetch-site"), text(ORIGIN.as_str())) {
        (Some(site), _) => matches!(site, "same-origin" | "none"),
        // An older browser, without `Sec-Fetch-Site`. Behind a proxy, the host name may differ from the origin.
        (None, Some(origin)) if needs_no_token => origin
            .split_once("://")
            .is_some_and(|(_, site)| site.eq_ignore_ascii_case(host)),
        _ => true,
    };
    if is_own {
        Ok(())
    } else {
        Err("the request was sent by a page of another site: call the server from your own program")
    }
}

/// Returns whether a host is an IP address or a name that no other machine can have.
fn is_of_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let in_brackets = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    name.is_empty()
        || name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<Ipv4Addr>().is_ok()
        || in_brackets.is_some_and(|name| name.parse::<Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn is_served(
        method: &Method,
        needs_no_token: bool,
        headers: &[(&'static str, &'static str)],
    ) -> bool {
        let headers = headers.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        check(method, &headers.collect(), needs_no_token).is_ok()
    }

    #[test]
    fn server_without_tokens_requires_a_local_host_name() {
        for host in [
            "localhost",
            "localhost:8080",
            "a.localhost:1",
            "127.0.0.1:8080",
            "[::1]:8080",
            "LOCALHOST.",
        ] {
            assert!(is_served(&Method::POST, true, &[("host", host)]), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "xlocalhost",
            "[evil]",
        ] {
            for method in [Method::GET, Method::POST] {
                assert!(!is_served(&method, true, &[("host", host)]), "{host}");
            }
            assert!(is_served(&Method::POST, false, &[("host", host)]), "{host}");
        }
        assert!(is_served(&Method::POST, true, &[]));
    }

    #[test]
    fn cross_site_requests_are_rejected() {
        const HERE: (&str, &str) = ("host", "localhost:8080");
        for (header, opened, with_tokens) in [
            (("sec-fetch-site", "cross-site"), false, false),
            (("sec-fetch-site", "same-site"), false, false),
            (("sec-fetch-site", "same-origin"), true, true),
            (("sec-fetch-site", "none"), true, true),
            (("origin", "https://evil.example"), false, true),
            (("origin", "http://localhost:3000"), false, true),
            (("origin", "null"), false, true),
            (("origin", "http://localhost:8080"), true, true),
        ] {
            assert_eq!(
                is_served(&Method::POST, true, &[HERE, header]),
                opened,
                "{header:?}"
            );
            assert_eq!(
                is_served(&Method::POST, false, &[HERE, header]),
                with_tokens,
                "{header:?}"
            );
            assert!(is_served(&Method::GET, true, &[HERE, header]));
        }
    }
}
