//! Authenticates requests and maps them to tenants.
//!
//! A client presents a token as its protocol does: `Authorization: Bearer TOKEN`, `X-API-Key: TOKEN`, or as the
//! password of a URL (`http://any:TOKEN@host`), which HTTP clients send as `Authorization: Basic`.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::config::Config;
use crate::failure::Failure;
use crate::http::{Budget, RequestSlots};
use crate::locked;
use crate::start_error::StartError;
use crate::tenant::{Tenant, TenantError};
use crate::tokens::{DEFAULT_TENANT, Tokens, has_plain_tokens};

/// Resolves tokens to tenants.
#[derive(Debug)]
pub struct Authenticator {
    config: Arc<Config>,
    /// The memory budget of all bodies.
    bodies: Budget,
    tokens: RwLock<Option<Tokens>>,
    tenants: Mutex<HashMap<Arc<str>, Arc<Tenant>>>,
}

impl Authenticator {
    /// Reads the token file, if the configuration names one.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn new(config: &Arc<Config>, bodies: &Budget) -> Result<Self, StartError> {
        let tokens = config.token_file.as_deref().map(read).transpose()?;
        Ok(Self {
            config: Arc::clone(config),
            bodies: bodies.clone(),
            tokens: RwLock::new(tokens),
            tenants: Mutex::default(),
        })
    }

    /// Rereads the token file. On failure the previous tokens stay valid.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn reload(&self) -> Result<(), StartError> {
        if let Some(path) = &self.config.token_file {
            let tokens = read(path)?;
            // Load the policies of new tenants now rather than at their first request. A policy that cannot be loaded
            // fails each request of its tenant.
            for name in tokens.tenants() {
                _ = self.tenant(Arc::clone(name));
            }
            *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = Some(tokens);
        }
        Ok(())
    }

    /// Returns whether requests need a token.
    pub fn has_tokens(&self) -> bool {
        self.config.token_file.is_some()
    }

    /// Returns whether a tenant still has a valid token, or tokens are not required.
    pub fn admits(&self, tenant: &str) -> bool {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let tokens = tokens.as_ref();
        tokens.is_none_or(|tokens| tokens.admit(tenant, SystemTime::now()))
    }

    /// Returns the tenant of a request.
    ///
    /// # Errors
    /// Returns an error if the token is missing or invalid, or if the tenant cannot be created.
    pub fn tenant_of(&self, headers: &HeaderMap) -> Result<Arc<Tenant>, Failure> {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let name = match &*tokens {
            None => DEFAULT_TENANT.into(),
            Some(tokens) => {
                let token = presented(headers).ok_or(Failure::Unauthorized(
                    "a token is required: send `Authorization: Bearer TOKEN`",
                ))?;
                let tenant = tokens.tenant_of(&token, SystemTime::now());
                Arc::clone(tenant.map_err(Failure::Unauthorized)?)
            }
        };
        drop(tokens);
        Ok(self.tenant(name)?)
    }

    /// Returns all tenants that the configuration and the token file name, and creates those that do not exist yet.
    ///
    /// # Errors
    /// Returns an error if a tenant cannot be created.
    pub fn all(&self) -> Result<Vec<Arc<Tenant>>, TenantError> {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let mut names: Vec<Arc<str>> = match &*tokens {
            Some(tokens) => tokens.tenants().cloned().collect(),
            None => vec![DEFAULT_TENANT.into()],
        };
        drop(tokens);
        names.extend(self.config.tenants.keys().map(|name| name.as_str().into()));
        names.sort();
        names.dedup();
        names.into_iter().map(|name| self.tenant(name)).collect()
    }

    /// Returns the tenant of this name, and creates it if it does not exist yet.
    ///
    /// # Errors
    /// Returns an error if the tenant cannot be created.
    pub fn tenant(&self, name: Arc<str>) -> Result<Arc<Tenant>, TenantError> {
        if let Some(tenant) = locked(&self.tenants).get(&name) {
            return Ok(Arc::clone(tenant));
        }
        // Loading the policy takes a while, so the lock is not held meanwhile.
        let profile = self.config.profile(&name);
        let http = &self.config.http;
        let slots = self.config.share(http.connections as u64);
        let slots = RequestSlots::new(usize::try_from(slots).unwrap_or(usize::MAX));
        // The share always has room for one body.
        let bodies = self.config.share(http.bodies.as_u64());
        let budget = self.bodies.share(bodies.max(http.body.as_u64()));
        let tenant = Tenant::new(Arc::clone(&name), profile, slots, budget)?;
        let mut tenants = locked(&self.tenants);
        let first = tenants.entry(name).or_insert_with(|| Arc::new(tenant));
        Ok(Arc::clone(first))
    }
}

fn read(path: &Path) -> Result<Tokens, StartError> {
    let name = path.display();
    let wrong = |problem: String| StartError::Usage(format!("the token file {name}: {problem}"));
    let metadata = fs::metadata(path).map_err(|cause| wrong(cause.to_string()))?;
    let text = fs::read_to_string(path).map_err(|cause| wrong(cause.to_string()))?;
    if metadata.permissions().mode() & 0o077 != 0 && has_plain_tokens(&text) {
        return Err(StartError::Usage(format!(
            "the token file {name} is readable by other users: `chmod 600 {name}`, or store only digests \
             (`sandfork server token`)"
        )));
    }
    Tokens::read(&text).map_err(wrong)
}

/// Returns the token of a request, from any of the supported headers.
fn presented(headers: &HeaderMap) -> Option<String> {
    if let Some(key) = headers.get("x-api-key") {
        return key.to_str().ok().map(str::to_owned);
    }
    let (scheme, rest) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = String::from_utf8(STANDARD.decode(rest).ok()?).ok()?;
    pair.split_once(':')
        .map(|(_, password)| password.to_owned())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn token_is_read_from_each_header() {
        for (name, value, token) in [
            ("authorization", "Bearer abc", Some("abc")),
            ("authorization", "bearer  abc", Some("abc")),
            ("x-api-key", "abc", Some("abc")),
            // `any:a:bc`
            ("authorization", "Basic YW55OmE6YmM=", Some("a:bc")),
            ("authorization", "Basic ???", None),
            ("authorization", "Digest abc", None),
            ("authorization", "abc", None),
            ("cookie", "abc", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            assert_eq!(presented(&headers).as_deref(), token, "{name}: {value}");
        }
    }
}
