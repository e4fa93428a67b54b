//! Which headers cross from one connection to the other (RFC 9110, 7.6.1).

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::request::Parts;
use hyper::{StatusCode, Version};

use crate::rules::Credential;

/// Headers that end with the connection that they came on.
const OF_CONNECTION: [HeaderName; 9] = [
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

/// Headers by which some servers take another method or path than the request line's, which was judged.
const OF_ANOTHER_REQUEST: [&str; 5] = [
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
];

/// Removes a header, also where its name has `_` for `-`: some servers make no difference.
fn remove_alike(headers: &mut HeaderMap, name: &str) {
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

/// Removes what belongs to the connection, and what its `Connection` headers name.
fn remove_those_of_connection(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&OF_CONNECTION) {
        headers.remove(name);
    }
}

/// The other protocol that a request asks to switch to, if it is one that a guest may use. With any other, HTTP/2
/// foremost, later requests would not be seen.
pub fn switch(parts: &Parts) -> Option<HeaderValue> {
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

/// Turns a guest's headers into those of the request to the host: with the credential in place of what the guest has under
/// its name, and none of the connection or of a request that was not judged. The body brings its length by itself, and the
/// connection to the host the host's name.
pub fn of_request(
    parts: &mut Parts,
    credential: Option<(HeaderName, HeaderValue)>,
    switch: Option<HeaderValue>,
) {
    let headers = &mut parts.headers;
    let is_http2 = parts.version == Version::HTTP_2;
    // gRPC asks for them so.
    let trailers = headers.get(TE).cloned().filter(|it| it == "trailers");
    remove_those_of_connection(headers);
    for name in [HOST, CONTENT_LENGTH, EXPECT] {
        headers.remove(name);
    }
    for name in OF_ANOTHER_REQUEST {
        remove_alike(headers, name);
    }
    join_cookies(headers);
    if let Some((name, value)) = credential {
        remove_alike(headers, name.as_str());
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

/// Makes one header of the several that HTTP/2 may send cookies in (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(AsRef::as_ref).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

/// The header of a credential. `None` if it cannot be one, which the rules exclude. Its value is kept out of logs.
pub fn of_credential(credential: &Credential) -> Option<(HeaderName, HeaderValue)> {
    let name = credential.header.parse().ok()?;
    let mut value = HeaderValue::from_str(&credential.value).ok()?;
    value.set_sensitive(true);
    Some((name, value))
}

/// Turns a host's headers into those of the response to the guest.
pub fn of_response(headers: &mut HeaderMap, status: StatusCode) {
    // The body was read by one of the two, and the guest must not read it by the other.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    let protocol = headers.get(UPGRADE).cloned();
    remove_those_of_connection(headers);
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

    fn shown(headers: &HeaderMap) -> Vec<String> {
        let shown = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().expect("text")));
        let mut shown: Vec<String> = shown.collect();
        shown.sort();
        shown
    }

    #[test]
    fn headers_of_the_connection_end_with_it() {
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
        assert_eq!(switch(&parts), None);
        of_request(&mut parts, None, None);
        let expected = ["accept: */*", "cookie: a=1; b=2", "http2-settings: x"];
        assert_eq!(shown(&parts.headers), expected);
    }

    #[test]
    fn the_guests_own_header_does_not_stay_beside_the_credential() {
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
        of_request(&mut parts, of_credential(&credential), None);
        assert_eq!(shown(&parts.headers), ["x-api-key: ours"]);
    }

    #[test]
    fn only_websockets_can_be_switched_to() {
        let asks = |connection: &str, upgrade: &[&str]| {
            let mut headers = vec![("connection", connection)];
            headers.extend(upgrade.iter().map(|protocol| ("upgrade", *protocol)));
            switch(&parts(&headers)).is_some()
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
    fn a_response_has_one_length() {
        let mut headers = parts(&[
            ("content-length", "5"),
            ("transfer-encoding", "chunked"),
            ("set-cookie", "a"),
            ("connection", "close"),
        ])
        .headers;
        of_response(&mut headers, StatusCode::OK);
        assert_eq!(shown(&headers), ["set-cookie: a"]);
    }
}
