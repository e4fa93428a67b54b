//! Requests that a page of another site has a browser send. A server on a person's own machine needs no token, and the
//! person's browser reaches it, so that any page could run code there.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::failure::Failure;
use crate::server::App;

/// Refuses what comes after it to pages of other sites.
pub async fn refuse_other_sites(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Response {
    let is_open = !app.authenticator.has_tokens();
    match check(request.method(), request.headers(), is_open) {
        Ok(()) => next.run(request).await,
        Err(problem) => {
            app.bodies.discard(request.into_body()).await;
            Failure::OtherSite(problem).into_response()
        }
    }
}

/// Where a server is open, it is so for this machine by its own names alone: a name of a page's site may lead here too.
fn check(method: &Method, headers: &HeaderMap, is_open: bool) -> Result<(), &'static str> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = text(HOST.as_str()).unwrap_or_default();
    if is_open && !is_of_this_machine(host) {
        return Err(
            "the server has no tokens, and answers to the names of this machine only, such as `localhost`",
        );
    }
    // Nothing is done for these methods, and no other site's page sees the answer.
    if method == Method::GET || method == Method::HEAD {
        return Ok(());
    }
    let is_own = match (text("sec-fetch-site"), text(ORIGIN.as_str())) {
        (Some(site), _) => matches!(site, "same-origin" | "none"),
        // A browser that does not say it. Behind a proxy the host may have another name.
        (None, Some(origin)) if is_open => origin
            .split_once("://")
            .is_some_and(|(_, site)| site.eq_ignore_ascii_case(host)),
        _ => true,
    };
    if is_own {
        Ok(())
    } else {
        Err("a page of another site has sent the request")
    }
}

/// Whether a host of a request is an address, or a name that no other machine can have.
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

    fn is_served(method: &Method, is_open: bool, headers: &[(&'static str, &'static str)]) -> bool {
        let headers = headers.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        check(method, &headers.collect(), is_open).is_ok()
    }

    #[test]
    fn an_open_server_has_the_names_of_its_machine() {
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
    fn a_page_of_another_site_has_nothing_done() {
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
