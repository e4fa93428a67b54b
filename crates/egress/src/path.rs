//! Paths of requests, and patterns of them.
//!
//! A server may read one path in several ways: with its dots resolved, its slashes merged, decoded once more, cut at a
//! semicolon. A path that could mean any other one there is in no plain form, and no pattern matches it. What is left
//! are plain paths that some servers take for a similar one.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A pattern of paths. `*` stands for any characters, also none and also `/`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PathPattern(String);

/// Why a text is not a pattern of paths.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum PatternError {
    /// It does not begin with `/`.
    #[error("\"{0}\" is not a path: begin it with `/`, as in \"/repos/*\"")]
    Relative(String),
    /// It has a query, a fragment, or what no plain path has.
    #[error(
        "\"{0}\" is not a plain path: write it decoded, without `..`, `//`, query or fragment; the query of a request is \
         not compared"
    )]
    NotPlain(String),
}

impl FromStr for PathPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if !text.starts_with('/') {
            return Err(PatternError::Relative(text.to_owned()));
        }
        let is_plain = !text.contains(['?', '#', '%']) && plain(text).is_ok();
        if !is_plain {
            return Err(PatternError::NotPlain(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PathPattern {
    /// Whether a plain path is one of these.
    pub fn matches(&self, path: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = path.strip_prefix(first) else {
            return false;
        };
        let mut parts: Vec<&str> = parts.collect();
        let Some(last) = parts.pop() else {
            return rest.is_empty();
        };
        // The first place of each part leaves the most for those that follow.
        for part in parts {
            match rest.find(part) {
                Some(place) => rest = &rest[place + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }

    /// Whether some server takes a plain path for one of these: servers may ignore the case of letters and a slash at
    /// the end, and cut dots and spaces off the end of a segment.
    pub fn could_match(&self, path: &str) -> bool {
        if path.split('/').any(|segment| segment.ends_with(['.', ' '])) {
            return true;
        }
        let pattern = Self(self.0.to_lowercase());
        let path = path.to_lowercase();
        let other = path
            .strip_suffix('/')
            .map_or_else(|| format!("{path}/"), ToOwned::to_owned);
        pattern.matches(&path) || pattern.matches(&other)
    }
}

/// A path that no server can read in another way than the pattern's author.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NotPlain;

/// The path of a request target without its query, decoded.
///
/// # Errors
/// If a server could take it for another path.
pub fn plain(target: &str) -> Result<String, NotPlain> {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    if !path.starts_with('/') {
        return Err(NotPlain);
    }
    let decoded = decode(path).ok_or(NotPlain)?;
    // Some servers take two slashes for one, and cut spaces off the end of a segment.
    let is_plain = |segment: &str| !matches!(segment.trim_end_matches(' '), "." | "..");
    if decoded.contains("//") || !decoded.split('/').all(is_plain) {
        return Err(NotPlain);
    }
    Ok(decoded)
}

/// Decodes `%XX`. `None` if there is a character that some servers split or cut a path at, one that is encoded to hide
/// what it means, or text that is not UTF-8.
fn decode(path: &str) -> Option<String> {
    let mut bytes = path.bytes();
    let mut decoded = Vec::with_capacity(path.len());
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let value = u8::try_from(digit()? * 16 + digit()?).ok()?;
                if matches!(
                    value,
                    b'/' | b'.' | b'\\' | b'%' | b';' | b'?' | b'#' | 0..=31 | 127
                ) {
                    return None;
                }
                decoded.push(value);
            }
            b'\\' | b';' | 0..=32 | 127 => return None,
            other => decoded.push(other),
        }
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        let matches = |pattern: &str, path: &str| {
            let pattern: PathPattern = pattern.parse().expect("a pattern");
            pattern.matches(&plain(path).expect("plain"))
        };
        for (pattern, path) in [
            ("/user", "/user"),
            ("/user", "/user?x=/admin"),
            ("/user", "/%75ser"),
            ("/*", "/"),
            ("/repos/*", "/repos/"),
            ("/repos/*/issues", "/repos/a/b/issues"),
            ("/repos/*/issues/*", "/repos/issues/issues/1"),
            ("/a*a", "/aaa"),
            ("/é", "/%C3%A9"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("/user", "/users"),
            ("/user", "/user/"),
            ("/user", "/User"),
            ("/repos/*", "/repos"),
            ("/repos/*", "/x/repos/y"),
            ("/a*a", "/a"),
            ("/repos/*/issues", "/repos/a/issues/1"),
        ] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn what_a_server_could_read_in_another_way_is_not_plain() {
        for path in [
            "/public/../admin",
            "/public/%2e%2E/admin",
            "/public/.%2e/admin",
            "/public/..;x=1/admin",
            "/public/./x",
            "/public/..%20/admin",
            "/public%2ehtml",
            "//public",
            "/public//x",
            "/public//",
            "//",
            "/..",
            "/public%2f..%2fadmin",
            "/public%5cadmin",
            "/public\\..\\admin",
            "/public/%252e%252e/admin",
            "/a%00",
            "/a%0d%0a",
            "/a;b=c",
            "/a;/x",
            "/a%3bx",
            "/a%3fx",
            "/a%2",
            "/a%zz",
            "/%ff",
            "*",
            "",
            "http://a.b/c",
            "/a b",
        ] {
            assert_eq!(plain(path), Err(NotPlain), "{path:?}");
        }
        for path in [
            "/",
            "/a/",
            "/a..b",
            "/...",
            "/.well-known/x",
            "/a%20b",
            "/?a=//b/../c",
        ] {
            assert!(plain(path).is_ok(), "{path}");
        }
    }

    #[test]
    fn some_servers_take_a_plain_path_for_a_similar_one() {
        let could_match = |pattern: &str, path: &str| {
            let pattern: PathPattern = pattern.parse().expect("a pattern");
            pattern.could_match(&plain(path).expect("plain"))
        };
        for (pattern, path) in [
            ("/echo/*", "/echo/h"),
            ("/echo/*", "/ECHO/h"),
            ("/Echo/*", "/echo/h"),
            ("/écho/*", "/%C3%89cho/h"),
            ("/echo/*", "/Echo/"),
            ("/echo/*", "/echo"),
            ("/echo", "/echo/"),
            ("/echo/", "/echo"),
            ("/echo/*", "/echo./h"),
            ("/echo/*", "/echo%20/h"),
        ] {
            assert!(could_match(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("/echo/*", "/"),
            ("/echo/*", "/echoes/h"),
            ("/echo", "/echo/h"),
            ("/echo", "/a/echo"),
            ("/echo/*", "/a.b/c%20d/e"),
        ] {
            assert!(!could_match(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn a_pattern_is_a_plain_path() {
        for text in ["user", "", "*", "http://a.b/"] {
            let refused = PathPattern::from_str(text);
            assert_eq!(refused, Err(PatternError::Relative(text.into())), "{text}");
        }
        for text in ["/a?b", "/a#b", "/a%20b", "/a/../b", "/a b", "//a/*"] {
            let refused = PathPattern::from_str(text);
            assert_eq!(refused, Err(PatternError::NotPlain(text.into())), "{text}");
        }
    }
}
