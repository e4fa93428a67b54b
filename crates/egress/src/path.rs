//! Parses request paths, and matches them against the path patterns of a policy.
//!
//! Servers interpret a path differently: some resolve dots, merge slashes, decode twice or cut at a semicolon. A path
//! that some server could read as a different path is not plain, and no pattern matches it. What remains is similarity
//! between plain paths, such as a difference in case, which [`PathPattern::could_match`] covers.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A pattern of paths. `*` matches any characters, including none and `/`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PathPattern(String);

/// The reason why a text is not a path pattern.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum PatternError {
    /// The text does not begin with `/`.
    #[error("\"{0}\" is not a path: begin it with `/`, as in \"/repos/*\"")]
    Relative(String),
    /// The text has a query, a fragment, or parts that a plain path cannot have.
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
    /// Returns whether the pattern matches a plain path.
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
        // The leftmost match of each part leaves the most text for the parts that follow.
        for part in parts {
            match rest.find(part) {
                Some(start) => rest = &rest[start + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }

    /// Returns whether some server could treat a plain path as a match: servers may ignore case and a trailing slash,
    /// and trim dots and spaces at the end of a segment.
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

/// The error for a path that some server could read as a different path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NotPlain;

/// Returns the decoded path of a request target, without its query.
///
/// # Errors
/// Returns [`NotPlain`] if some server could read it as a different path.
pub fn plain(target: &str) -> Result<String, NotPlain> {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    if !path.starts_with('/') {
        return Err(NotPlain);
    }
    let decoded = decode(path).ok_or(NotPlain)?;
    // Some servers merge slashes, and trim spaces at the end of a segment.
    let is_plain = |segment: &str| !matches!(segment.trim_end_matches(' '), "." | "..");
    if decoded.contains("//") || !decoded.split('/').all(is_plain) {
        return Err(NotPlain);
    }
    Ok(decoded)
}

/// Decodes percent-encoding. Returns `None` for a character at which some servers split or cut a path, for an encoded
/// character that is significant in a path, and for text that is not UTF-8.
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
    fn star_matches_any_characters() {
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
    fn ambiguous_path_is_not_plain() {
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
    fn similar_plain_paths_could_match() {
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
    fn pattern_must_be_a_plain_path() {
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
