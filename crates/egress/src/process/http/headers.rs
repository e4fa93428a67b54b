//! Decides which headers are forwarded between two connections (RFC 9110, 7.6.1).

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::request::Parts;
use hyper::{StatusCode, Version};

use crate::rules::Credential;

/// Hop-by-hop headers, which are not forwarded.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Headers by which some servers override the method or path of the request line, which are the ones that were checked.
const OVERRIDES: [&str; 5] = [
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
];

/// Removes a header, including spellings of its name with `_` for `-`, which some servers treat alike.
fn remove_variants(headers: &mut HeaderMap, name: &str) {
    let plain = |name: &str| name.replace('_', "-");
    let alike: Vec<HeaderName> = headers
        .keys()
        .filter(|own| plain(own.as_str()) == plain(name))
        .cloned()
        .collect();
    for own in alike {
        headers.remove(own);
    }
}

/// Removes the hop-by-hop headers, including those that `Connection` lists.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Returns the protocol that a request asks to upgrade to, if a guest may use it. With any other protocol, above all
/// HTTP/2, the requests after the upgrade would bypass the checks.
pub fn requested_upgrade(parts: &Parts) -> Option<HeaderValue> {
    let mut protocols = parts.headers.get_all(UPGRADE).iter();
    let protocol = protocols.next().filter(|_| protocols.next().is_none())?;
    let is_websocket = protocol.as_bytes().eq_ignore_ascii_case(b"websocket");
    let asks = parts.headers.get_all(CONNECTION).iter();
    let asks = asks.filter_map(|value| value.to_str().ok());
    let asks = asks
        .flat_map(|value| value.split(','))
        .any(|token| token.trim().eq_ignore_ascii_case("upgrade"));
    (is_websocket && asks && parts.version == Version::HTTP_11).then(|| protocol.clone())
}

/// Turns a guest's headers into those of the request to the host. The credential replaces the guest's header of that
/// name; hop-by-hop headers and overrides are removed. `Expect`, `Content-Length` and `Host` are removed too: the body
/// supplies its own length, and the connection to the host supplies the host name.
pub fn prepare_request(
    parts: &mut Parts,
    credential: Option<(HeaderName, HeaderValue)>,
    switch: Option<HeaderValue>,
) {
    let headers = &mut parts.headers;
    let is_http2 = parts.version == Version::HTTP_2;
    // gRPC requires `TE: trailers`.
    let trailers = headers.get(TE).cloned().filter(|it| it == "trailers");
    remove_hop_by_hop(headers);
    for name in [HOST, CONTENT_LENGTH, EXPECT] {
        headers.remove(name);
    }
    for name in OVERRIDES {
        remove_variants(headers, name);
    }
    join_cookies(headers);
    if let Some((name, value)) = credential {
        remove_variants(headers, name.as_str());
        headers.insert(name, value);
    }
    if let Some(trailers) = trailers.filter(|_| is_http2) {
        headers.insert(TE, trailers);
    }
    if let Some(protocol) = switch {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol);
    }
}

/// Joins the `Cookie` headers, which HTTP/2 may split (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(AsRef::as_ref).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

/// Returns the header of a credential, marked as sensitive. `None` if it is not a valid header, which the rules
/// exclude.
pub fn credential_header(credential: &Credential) -> Option<(HeaderName, HeaderValue)> {
    let name = credential.header.parse().ok()?;
    let mut value = HeaderValue::from_str(&credential.value).ok()?;
    value.set_sensitive(true);
    Some((name, value))
}

/// Turns a host's headers into those of the response to the guest.
pub fn prepare_response(headers: &mut HeaderMap, status: StatusCode) {
    // The body was framed by `Transfer-Encoding`; the guest must not frame it by `Content-Length`.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    let protocol = headers.get(UPGRADE).cloned();
    remove_hop_by_hop(headers);
    if status == StatusCode::SWITCHING_PROTOCOLS {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        if let Some(protocol) = protocol {
            headers.insert(UPGRADE, protocol);
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn parts(headers: &[(&str, &str)]) -> Parts {
        let builder = headers
            .iter()
            .fold(Request::builder(), |builder, (name, value)| {
                builder.header(*name, *value)
            });
        builder.body(()).expect("a request").into_parts().0
    }

    fn lines(headers: &HeaderMap) -> Vec<String> {
        let lines = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().expect("text")));
        let mut lines: Vec<String> = lines.collect();
        lines.sort();
        lines
    }

    #[test]
    fn hop_by_hop_headers_are_not_forwarded() {
        let mut parts = parts(&[
            ("connection", "keep-alive, X-Own"),
            ("x-own", "1"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("te", "trailers"),
            ("proxy-authorization", "Basic x"),
            ("host", "other"),
            ("upgrade", "h2c"),
            ("http2-settings", "x"),
            ("x-http-method-override", "DELETE"),
            ("X_Original_URL", "/admin"),
            ("accept", "*/*"),
            ("cookie", "a=1"),
            ("cookie", "b=2"),
        ]);
        assert_eq!(requested_upgrade(&parts), None);
        prepare_request(&mut parts, None, None);
        let expected = ["accept: */*", "cookie: a=1; b=2", "http2-settings: x"];
        assert_eq!(lines(&parts.headers), expected);
    }

    #[test]
    fn credential_replaces_every_spelling_of_the_header() {
        let mut parts = parts(&[
            ("x-api-key", "guest"),
            ("X_Api_Key", "guest"),
            ("x-api_key", "guest"),
            ("connection", "x-api-key"),
        ]);
        let credential = Credential {
            header: "X-Api-Key".to_owned(),
            value: "ours".to_owned(),
        };
        prepare_request(&mut parts, credential_header(&credential), None);
        assert_eq!(lines(&parts.headers), ["x-api-key: ours"]);
    }

    #[test]
    fn only_upgrades_to_websocket_are_allowed() {
        let asks = |connection: &str, upgrade: &[&str]| {
            let mut headers = vec![("connection", connection)];
            headers.extend(upgrade.iter().map(|protocol| ("upgrade", *protocol)));
            requested_upgrade(&parts(&headers)).is_some()
        };
        assert!(asks("keep-alive, Upgrade", &["WebSocket"]));
        for (connection, upgrade) in [
            ("close", &["websocket"][..]),
            ("upgrade", &["h2c"]),
            ("upgrade", &["websocket, h2c"]),
            ("upgrade", &["websocket", "h2c"]),
            ("upgrade", &["TLS/1.0"]),
            ("upgrade", &[]),
        ] {
            assert!(!asks(connection, upgrade), "{connection} {upgrade:?}");
        }
    }

    #[test]
    fn chunked_response_has_no_content_length() {
        let mut headers = parts(&[
            ("content-length", "5"),
            ("transfer-encoding", "chunked"),
            ("set-cookie", "a"),
            ("connection", "close"),
        ])
        .headers;
        prepare_response(&mut headers, StatusCode::OK);
        assert_eq!(lines(&headers), ["set-cookie: a"]);
    }
}
