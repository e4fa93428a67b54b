//! Parses the token file, and maps tokens to tenants. Does no I/O except for generating a token.
//!
//! A line is `TOKEN`, `TENANT TOKEN` or `TENANT TOKEN UNTIL`. TOKEN is either the token itself, or `sha256:` and its
//! digest in hexadecimal, so that the file need not contain what clients present. UNTIL is an RFC 3339 timestamp.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::start_error::StartError;

/// The tenant of a token without a tenant, and of all clients if no tokens are required.
pub const DEFAULT_TENANT: &str = "default";

/// The minimum length of a token. Shorter ones could be guessed.
const MIN_LENGTH: usize = 20;

/// The prefix of a digest.
const DIGEST: &str = "sha256:";

/// The rule for tenant names.
const NAME: &str = "a tenant name has at most 64 characters: letters, digits, `-` and `_`";

/// The reasons for which a token is rejected.
const UNKNOWN: &str = "the token is unknown";
const EXPIRED: &str = "the token has expired";

/// The tokens of a file, by digest.
#[derive(Debug)]
pub struct Tokens {
    by_digest: HashMap<[u8; 32], Token>,
}

#[derive(Debug)]
struct Token {
    tenant: Arc<str>,
    until: Option<SystemTime>,
}

impl Token {
    fn is_valid(&self, now: SystemTime) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

impl Tokens {
    /// Parses a token file. Empty lines and lines that begin with `#` are ignored.
    ///
    /// # Errors
    /// Returns an error if a line is invalid, or if there is no token. The message quotes no token.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut by_digest = HashMap::new();
        for (number, text) in text.lines().enumerate() {
            let wrong = |what: &str| format!("line {}: {what}", number + 1);
            let words: Vec<&str> = text.split_whitespace().collect();
            let (tenant, token, until) = match words[..] {
                [] => continue,
                [first, ..] if first.starts_with('#') => continue,
                [token] => (DEFAULT_TENANT, token, None),
                [tenant, token] => (tenant, token, None),
                [tenant, token, until] => (tenant, token, Some(until)),
                _ => {
                    return Err(wrong("write TOKEN, TENANT TOKEN or TENANT TOKEN UNTIL"));
                }
            };
            if !is_tenant(tenant) {
                return Err(wrong(NAME));
            }
            let until = until.map(humantime::parse_rfc3339).transpose();
            let stands_for = Token {
                tenant: tenant.into(),
                until: until.map_err(|_| {
                    wrong("the time is invalid: write it like 2027-01-31T12:00:00Z")
                })?,
            };
            let digest = digest_of(token).map_err(|what| wrong(&what))?;
            if by_digest.insert(digest, stands_for).is_some() {
                return Err(wrong("the token is a duplicate of an earlier line"));
            }
        }
        if by_digest.is_empty() {
            return Err(
                "it contains no token, so no client could run code: create one with `sandfork server token`"
                    .to_owned(),
            );
        }
        Ok(Self { by_digest })
    }

    /// Returns the tenant of a token that a client presents.
    ///
    /// The digests are compared, so the time of the comparison reveals nothing about the tokens.
    ///
    /// # Errors
    /// Returns the reason if the token is unknown or expired.
    pub fn tenant_of(&self, token: &str, now: SystemTime) -> Result<&Arc<str>, &'static str> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let token = self.by_digest.get(&digest).ok_or(UNKNOWN)?;
        if !token.is_valid(now) {
            return Err(EXPIRED);
        }
        Ok(&token.tenant)
    }

    /// Returns whether this tenant has a valid token.
    pub fn admit(&self, tenant: &str, now: SystemTime) -> bool {
        let mut tokens = self.by_digest.values();
        tokens.any(|token| &*token.tenant == tenant && token.is_valid(now))
    }

    /// Returns the tenants of all tokens, possibly with duplicates.
    pub fn tenants(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_digest.values().map(|token| &token.tenant)
    }
}

/// Returns whether a file contains tokens in plain text.
pub fn has_plain_tokens(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim);
    lines.any(|line| !line.is_empty() && !line.starts_with('#') && !line.contains(DIGEST))
}

/// Returns whether a text is a valid tenant name.
pub fn is_tenant(text: &str) -> bool {
    let is_of_names = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (1..=64).contains(&text.len()) && text.chars().all(is_of_names)
}

/// Generates a token. Returns the token and its line for the token file.
///
/// # Errors
/// Returns an error if the tenant name is invalid, or if the kernel provides no random bytes (getrandom(2)).
pub fn generate(tenant: &str) -> Result<(String, String), StartError> {
    if !is_tenant(tenant) {
        return Err(StartError::Usage(NAME.to_owned()));
    }
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| StartError::Failed(format!("getrandom(2): {error}")))?;
    let token = URL_SAFE_NO_PAD.encode(bytes);
    let mut line = format!("{tenant} {DIGEST}");
    for byte in Sha256::digest(&token) {
        // Writing to a string does not fail.
        let _ = write!(line, "{byte:02x}");
    }
    Ok((token, line))
}

fn digest_of(token: &str) -> Result<[u8; 32], String> {
    let wrong = || format!("`{DIGEST}` must be followed by 64 hexadecimal digits");
    let is_digest = token
        .get(..DIGEST.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(DIGEST));
    let Some(digits) = token.strip_prefix(DIGEST) else {
        if is_digest {
            // An upper-case prefix. As a plain token, it would admit no client.
            return Err(wrong());
        }
        return if token.len() < MIN_LENGTH {
            Err(format!(
                "a token needs at least {MIN_LENGTH} characters: create one with `sandfork server token`"
            ))
        } else {
            Ok(Sha256::digest(token).into())
        };
    };
    if digits.len() != 64 || !digits.is_ascii() {
        return Err(wrong());
    }
    let mut digest = [0; 32];
    for (byte, index) in digest.iter_mut().zip((0..64).step_by(2)) {
        match u8::from_str_radix(&digits[index..index + 2], 16) {
            Ok(read) => *byte = read,
            Err(_) => return Err(wrong()),
        }
    }
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const TOKEN: &str = "abcdefghijklmnopqrstuvwxyz";

    #[track_caller]
    fn refused(text: &str, sentence: &str) {
        let error = Tokens::read(text).expect_err(text);
        assert!(error.starts_with(sentence), "{error}");
        assert!(!error.contains(TOKEN), "{error}");
    }

    #[test]
    fn lines_have_an_optional_tenant_and_expiry() {
        let text =
            format!("# two\n\n{TOKEN}1\nalpha {TOKEN}2\nbeta {TOKEN}3 2027-01-31T12:00:00Z\n");
        let tokens = Tokens::read(&text).expect("a valid token file");
        let now = humantime::parse_rfc3339("2027-01-31T11:59:59Z").expect("a time");
        let tenant = |number| {
            tokens
                .tenant_of(&format!("{TOKEN}{number}"), now)
                .map(|it| &**it)
        };
        assert_eq!(tenant(1), Ok(DEFAULT_TENANT));
        assert_eq!(tenant(2), Ok("alpha"));
        assert_eq!(tenant(3), Ok("beta"));
        assert_eq!(tenant(4), Err(UNKNOWN));
        let later = tokens.tenant_of(&format!("{TOKEN}3"), now + Duration::from_secs(1));
        assert_eq!(later, Err(EXPIRED));
    }

    #[test]
    fn generated_line_accepts_the_generated_token() {
        let (token, line) = generate("alpha").expect("random bytes");
        assert!(!line.contains(&token));
        assert!(!has_plain_tokens(&line) && has_plain_tokens(&token));
        let tokens = Tokens::read(&line).expect("a valid token file");
        let tenant = tokens.tenant_of(&token, SystemTime::now());
        assert_eq!(tenant.map(|it| &**it), Ok("alpha"));
    }

    #[test]
    fn errors_do_not_quote_the_token() {
        refused("# nothing\n", "it contains no token");
        refused("\nshort", "line 2: a token needs at least 20 characters");
        refused("a b c d", "line 1: write TOKEN,");
        refused(&format!("a/b {TOKEN}"), "line 1: a tenant name has at most");
        refused(&format!("a {TOKEN} soon"), "line 1: the time is invalid");
        let twice = "line 2: the token is a duplicate of an earlier line";
        refused(&format!("{TOKEN}\na {TOKEN}"), twice);
        let digits = "line 1: `sha256:` must be followed by 64 hexadecimal digits";
        refused(&format!("SHA256:{}", "a".repeat(64)), digits);
        for wrong in ["", "12", &"g".repeat(64), &"é".repeat(32)] {
            refused(&format!("sha256:{wrong}"), digits);
        }
    }
}
