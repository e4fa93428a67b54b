//! Tokens, and the tenants that they stand for. Pure, but for drawing a new one.
//!
//! A line of the file is `TOKEN`, `TENANT TOKEN` or `TENANT TOKEN UNTIL`. A token is itself or `sha256:` and its digest in
//! hexadecimal, so that a file need not hold what clients present. UNTIL is a time as in RFC 3339.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::start_error::StartError;

/// The tenant of a token without one, and of all clients where there are no tokens.
pub const DEFAULT_TENANT: &str = "default";

/// Fewer characters could be guessed.
const SHORTEST: usize = 20;

/// Before the digest of a token.
const DIGEST: &str = "sha256:";

/// What a tenant's name has to be.
const NAME: &str = "a tenant is named by at most 64 letters, digits, `-` and `_`";

/// Why a token is not accepted: no line has it, or its time is over.
const UNKNOWN: &str = "the token is unknown";
const EXPIRED: &str = "the token has expired";

/// The tokens of a file, by their digests.
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
    /// Reads the lines of a file. Empty ones, and those that begin with `#`, count for nothing.
    ///
    /// # Errors
    /// If a line is not a token, or none is. The sentence has no token.
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
                    return Err(wrong("a line is TOKEN, TENANT TOKEN or TENANT TOKEN UNTIL"));
                }
            };
            if !is_tenant(tenant) {
                return Err(wrong(NAME));
            }
            let until = until.map(humantime::parse_rfc3339).transpose();
            let stands_for = Token {
                tenant: tenant.into(),
                until: until.map_err(|_| wrong("the time is not as in 2027-01-31T12:00:00Z"))?,
            };
            let digest = digest_of(token).map_err(|what| wrong(&what))?;
            if by_digest.insert(digest, stands_for).is_some() {
                return Err(wrong("the token is that of an earlier line"));
            }
        }
        if by_digest.is_empty() {
            return Err(
                "it has no token, so no client could run code; `sandfork server token` draws one"
                    .to_owned(),
            );
        }
        Ok(Self { by_digest })
    }

    /// The tenant of a token that a client presents.
    ///
    /// The comparison is that of digests, so its time says nothing about the tokens.
    ///
    /// # Errors
    /// If it is unknown or expired.
    pub fn tenant_of(&self, token: &str, now: SystemTime) -> Result<&Arc<str>, &'static str> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let token = self.by_digest.get(&digest).ok_or(UNKNOWN)?;
        if !token.is_valid(now) {
            return Err(EXPIRED);
        }
        Ok(&token.tenant)
    }

    /// Whether a token of this tenant is accepted.
    pub fn admit(&self, tenant: &str, now: SystemTime) -> bool {
        let mut tokens = self.by_digest.values();
        tokens.any(|token| &*token.tenant == tenant && token.is_valid(now))
    }

    /// All tenants, some more than once.
    pub fn tenants(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_digest.values().map(|token| &token.tenant)
    }
}

/// Whether a file has tokens that clients could present.
pub fn has_plain_tokens(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim);
    lines.any(|line| !line.is_empty() && !line.starts_with('#') && !line.contains(DIGEST))
}

/// Whether a text can name a tenant.
pub fn is_tenant(text: &str) -> bool {
    let is_of_names = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (1..=64).contains(&text.len()) && text.chars().all(is_of_names)
}

/// Draws a token. Returns it, and its line of a token file.
///
/// # Errors
/// If the text cannot name a tenant, or the kernel gives no random bytes (getrandom(2)).
pub fn draw(tenant: &str) -> Result<(String, String), StartError> {
    if !is_tenant(tenant) {
        return Err(StartError::Usage(NAME.to_owned()));
    }
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| {
        StartError::Failed(format!("a token is drawn by getrandom(2): {error}"))
    })?;
    let token = URL_SAFE_NO_PAD.encode(bytes);
    let mut line = format!("{tenant} {DIGEST}");
    for byte in Sha256::digest(&token) {
        // Writing to a string does not fail.
        let _ = write!(line, "{byte:02x}");
    }
    Ok((token, line))
}

fn digest_of(token: &str) -> Result<[u8; 32], String> {
    let wrong = || format!("behind `{DIGEST}` stand 64 hexadecimal digits");
    let is_digest = token
        .get(..DIGEST.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(DIGEST));
    let Some(digits) = token.strip_prefix(DIGEST) else {
        if is_digest {
            // In capitals: as a token, it would let no client in.
            return Err(wrong());
        }
        return if token.len() < SHORTEST {
            Err(format!(
                "a token has {SHORTEST} characters or more; `sandfork server token` draws one"
            ))
        } else {
            Ok(Sha256::digest(token).into())
        };
    };
    if digits.len() != 64 || !digits.is_ascii() {
        return Err(wrong());
    }
    let mut digest = [0; 32];
    for (byte, place) in digest.iter_mut().zip((0..64).step_by(2)) {
        match u8::from_str_radix(&digits[place..place + 2], 16) {
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
    fn a_line_is_a_token_with_or_without_a_tenant_and_a_time() {
        let text =
            format!("# two\n\n{TOKEN}1\nalpha {TOKEN}2\nbeta {TOKEN}3 2027-01-31T12:00:00Z\n");
        let tokens = Tokens::read(&text).expect("it is read");
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
    fn a_drawn_token_is_that_of_its_line() {
        let (token, line) = draw("alpha").expect("it is drawn");
        assert!(!line.contains(&token));
        assert!(!has_plain_tokens(&line) && has_plain_tokens(&token));
        let tokens = Tokens::read(&line).expect("it is read");
        let tenant = tokens.tenant_of(&token, SystemTime::now());
        assert_eq!(tenant.map(|it| &**it), Ok("alpha"));
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said_without_its_token() {
        refused("# nothing\n", "it has no token");
        refused("\nshort", "line 2: a token has 20 characters");
        refused("a b c d", "line 1: a line is TOKEN,");
        refused(&format!("a/b {TOKEN}"), "line 1: a tenant is named by");
        refused(&format!("a {TOKEN} soon"), "line 1: the time is not as in");
        let twice = "line 2: the token is that of an earlier line";
        refused(&format!("{TOKEN}\na {TOKEN}"), twice);
        let digits = "line 1: behind `sha256:` stand 64 hexadecimal digits";
        refused(&format!("SHA256:{}", "a".repeat(64)), digits);
        for wrong in ["", "12", &"g".repeat(64), &"é".repeat(32)] {
            refused(&format!("sha256:{wrong}"), digits);
        }
    }
}
