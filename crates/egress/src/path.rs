//! Paths of requests, and patterns of them.
//!
//! A server may read one path in several ways: with its dots resolved, decoded once more, cut at a semicolon. A path
//! that could mean another one there is in no plain form, and no pattern matches it.

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
        "\"{0}\" is not a plain path: write it decoded, without `..`, query or fragment; the query of a request is not \
         compared"
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
    let is_plain = |segment: &str| {
        // Some servers cut what follows a semicolon off each segment.
        let name = segment.split(';').next().unwrap_or_default();
        !matches!(name, "." | "..")
    };
    if !decoded.split('/').all(is_plain) {
        return Err(NotPlain);
    }
    Ok(decoded)
}

/// Decodes `%XX`. `None` if a character results that separates, ends or begins an encoding, or text that is not UTF-8.
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
                    b'/' | b'\\' | b'%' | b';' | b'?' | b'#' | 0..=31 | 127
                ) {
                    return None;
                }
                decoded.push(value);
            }
            b'\\' | 0..=32 | 127 => return None,
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
            "/..",
            "/public%2f..%2fadmin",
            "/public%5cadmin",
            "/public\\..\\admin",
            "/public/%252e%252e/admin",
            "/a%00",
            "/a%0d%0a",
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
        for path in ["/a..b", "/...", "/.well-known/x", "//x", "/a;b=c", "/a%20b"] {
            assert!(plain(path).is_ok(), "{path}");
        }
    }

    #[test]
    fn a_pattern_is_a_plain_path() {
        for text in ["user", "", "*", "http://a.b/"] {
            let refused = PathPattern::from_str(text);
            assert_eq!(refused, Err(PatternError::Relative(text.into())), "{text}");
        }
        for text in ["/a?b", "/a#b", "/a%20b", "/a/../b", "/a b"] {
            let refused = PathPattern::from_str(text);
            assert_eq!(refused, Err(PatternError::NotPlain(text.into())), "{text}");
        }
    }
}
