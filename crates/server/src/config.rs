//! The configuration of the server: the configuration file, overridden by the command line.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::Uri;
use bytesize::ByteSize;
use sandfork::Override;
use serde::Deserialize;

use crate::account::Quota;
use crate::args::ServeArguments;
use crate::http::HttpBounds;
use crate::start_error::StartError;
use crate::tokens::is_tenant;

/// The standard environment variable for the collector, used if neither the command line nor the file names one.
const OTLP_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// A validated configuration.
#[derive(Debug)]
pub struct Config {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The token file.
    pub token_file: Option<PathBuf>,
    /// The maximum number of concurrent runs.
    pub jobs: Option<NonZeroUsize>,
    /// The maximum number of queued runs.
    pub queue: usize,
    /// How long active runs may continue after a request to stop.
    pub drain: Duration,
    /// The idle timeout of sessions.
    pub session_idle: Duration,
    /// Limits of connections and bodies.
    pub http: HttpBounds,
    /// The certificate and key for TLS.
    pub tls: Option<TlsFiles>,
    /// The trace collector, over plain HTTP.
    pub otlp: Option<String>,
    /// The profile of tenants without a table of their own.
    pub others: Profile,
    /// The profiles of configured tenants.
    pub tenants: BTreeMap<String, Profile>,
}

/// The policy and the quota of a tenant.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The policy: a built-in name or a file.
    pub policy: String,
    /// Overrides of policy keys.
    pub set: Vec<Override>,
    /// The quota.
    pub quota: Quota,
}

/// The PEM files of a certificate and its key.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The certificate chain.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ConfigFile {
    listen: Option<SocketAddr>,
    token_file: Option<PathBuf>,
    jobs: Option<NonZeroUsize>,
    queue: Option<usize>,
    #[serde(with = "humantime_serde")]
    drain: Option<Duration>,
    #[serde(with = "humantime_serde")]
    session_idle: Option<Duration>,
    http: HttpBounds,
    otlp: Option<String>,
    tls: Option<TlsFiles>,
    default: ProfileTable,
    tenants: BTreeMap<String, ProfileTable>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ProfileTable {
    policy: Option<String>,
    set: Vec<String>,
    runs: Option<usize>,
    sessions: Option<usize>,
    rate: Option<f64>,
    #[serde(with = "humantime_serde")]
    cpu_an_hour: Option<Duration>,
    memory: Option<ByteSize>,
}

/// Returns whether an address is a URL of a host over plain HTTP.
fn is_collector(address: &str) -> bool {
    let address = address.parse::<Uri>().ok();
    address.is_some_and(|uri| uri.scheme_str() == Some("http") && uri.host().is_some())
}

impl ConfigFile {
    /// Checks that the limits are usable.
    fn check(&self) -> Result<(), String> {
        if self.session_idle.is_some_and(|idle| idle.is_zero()) {
            return Err(
                "session_idle: 0 closes each session at once: set a longer time".to_owned(),
            );
        }
        let checked = self.http.check();
        checked.map_err(|problem| format!("http.{problem}"))
    }
}

impl Config {
    /// Merges the arguments with the configuration file that they name, if any.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is invalid, or if the result would let everyone run code.
    pub fn of(arguments: &ServeArguments) -> Result<Self, StartError> {
        let sandboxes = &arguments.sandboxes;
        let mut file = ConfigFile::default();
        let mut directory = Path::new("");
        let mut path = Path::new("the command line");
        if let Some(named) = &sandboxes.config {
            let text = fs::read_to_string(named);
            let text = text.map_err(|cause| invalid(named, cause))?;
            file = toml::from_str(&text).map_err(|error| {
                let before = error.span().map_or(0, |span| span.start);
                let line = text[..before].matches('\n').count() + 1;
                invalid(named, format!("line {line}: {}", error.message()))
            })?;
            directory = named.parent().unwrap_or(directory);
            path = named;
        }
        file.check().map_err(|problem| invalid(path, problem))?;
        let mut others = Profile {
            policy: "standard".to_owned(),
            set: Vec::new(),
            quota: Quota::default(),
        };
        others
            .change(file.default, directory)
            .map_err(|problem| invalid(path, problem))?;
        if let Some(policy) = &sandboxes.policy {
            others.policy.clone_from(policy);
        }
        others.set.extend(sandboxes.set.iter().cloned());
        let mut tenants = BTreeMap::new();
        for (name, table) in file.tenants {
            if !is_tenant(&name) {
                let problem = format!(
                    "tenants.{name}: a tenant name consists of letters, digits, `-` and `_`"
                );
                return Err(invalid(path, problem));
            }
            let mut profile = others.clone();
            let changed = profile.change(table, directory);
            changed.map_err(|problem| invalid(path, format!("tenants.{name}: {problem}")))?;
            tenants.insert(name, profile);
        }
        let token_file = arguments.token_file.clone();
        let config = Self {
            listen: arguments
                .listen
                .or(file.listen)
                .unwrap_or((Ipv4Addr::LOCALHOST, 8080).into()),
            token_file: token_file.or(file.token_file.map(|file| directory.join(file))),
            jobs: sandboxes.jobs.or(file.jobs),
            queue: sandboxes.queue.or(file.queue).unwrap_or(256),
            drain: file.drain.unwrap_or(Duration::from_secs(30)),
            session_idle: file.session_idle.unwrap_or(Duration::from_secs(15 * 60)),
            http: file.http,
            tls: file.tls.map(|tls| TlsFiles {
                certificate: directory.join(tls.certificate),
                key: directory.join(tls.key),
            }),
            otlp: sandboxes
                .otlp
                .clone()
                .or(file.otlp)
                .or_else(|| env::var(OTLP_ENDPOINT).ok()),
            others,
            tenants,
        };
        if let Some(collector) = &config.otlp
            && !is_collector(collector)
        {
            return Err(StartError::Usage(format!(
                "the collector `{collector}` is not a plain HTTP URL: use one such as http://127.0.0.1:4318, \
                 which can forward traces over TLS"
            )));
        }
        config.may_listen(config.listen)?;
        Ok(config)
    }

    /// Refuses to listen on an address through which others could run code.
    ///
    /// # Errors
    /// Returns an error if other machines can connect to the address and no tokens are required.
    pub fn may_listen(&self, address: SocketAddr) -> Result<(), StartError> {
        if self.token_file.is_none() && !address.ip().is_loopback() {
            return Err(StartError::Usage(format!(
                "{address} is reachable from other machines, where anyone could run code without a token: add \
                 `--token-file FILE`, or listen on 127.0.0.1"
            )));
        }
        Ok(())
    }

    /// Returns one tenant's share of a resource: half of it if there may be several tenants, so that the others get the
    /// rest.
    pub fn share(&self, total: u64) -> u64 {
        match self.token_file {
            None => total,
            Some(_) => (total / 2).max(1),
        }
    }

    /// Returns the profile of a tenant.
    pub fn profile(&self, tenant: &str) -> &Profile {
        self.tenants.get(tenant).unwrap_or(&self.others)
    }
}

impl Profile {
    /// Applies a table. Policy files are relative to the directory of the configuration file.
    fn change(&mut self, table: ProfileTable, directory: &Path) -> Result<(), String> {
        if let Some(policy) = table.policy {
            let is_file = Path::new(&policy).extension().is_some() || policy.contains('/');
            self.policy = if is_file {
                directory.join(policy).display().to_string()
            } else {
                policy
            };
        }
        for set in table.set {
            let read: Result<Override, _> = set.parse();
            self.set
                .push(read.map_err(|error| format!("set: {error}"))?);
        }
        if table
            .rate
            .is_some_and(|rate| !rate.is_finite() || rate <= 0.0)
        {
            return Err("rate: a number of runs per second must be greater than 0".to_owned());
        }
        let quota = &mut self.quota;
        quota.runs = table.runs.unwrap_or(quota.runs);
        quota.sessions = table.sessions.unwrap_or(quota.sessions);
        quota.rate = table.rate.or(quota.rate);
        quota.cpu = table.cpu_an_hour.or(quota.cpu);
        quota.memory = table.memory.map(|size| size.as_u64()).or(quota.memory);
        Ok(())
    }
}

fn invalid(path: &Path, problem: impl fmt::Display) -> StartError {
    StartError::Usage(format!("{}: {problem}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, mut arguments: ServeArguments) -> Result<Config, StartError> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("server.toml");
        fs::write(&path, text).expect("a successful write");
        arguments.sandboxes.config = Some(path);
        Config::of(&arguments)
    }

    #[test]
    fn tenant_table_overrides_the_default() {
        let text = "[default]\npolicy = 'strict'\nruns = 3\nset = ['limits.pids=9']\n\
                    [tenants.alpha]\npolicy = 'alpha.toml'\nsessions = 5\nmemory = '1GiB'\ncpu_an_hour = '10min'";
        let config = of(text, ServeArguments::default()).expect("a valid configuration");
        assert_eq!(config.profile("beta").policy, "strict");
        let alpha = config.profile("alpha");
        assert!(
            alpha.policy.ends_with("/alpha.toml") && alpha.policy.starts_with('/'),
            "{}",
            alpha.policy
        );
        let expected = Quota {
            runs: 3,
            sessions: 5,
            cpu: Some(Duration::from_secs(600)),
            memory: Some(1 << 30),
            ..Quota::default()
        };
        assert_eq!((&alpha.quota, alpha.set.len()), (&expected, 1));
    }

    #[test]
    fn command_line_overrides_the_file() {
        let mut arguments = ServeArguments {
            listen: Some(([127, 0, 0, 1], 9).into()),
            ..ServeArguments::default()
        };
        arguments.sandboxes.policy = Some("data-science".to_owned());
        arguments.sandboxes.queue = Some(7);
        let config = of(
            "listen = '127.0.0.1:1'\nqueue = 1\n[default]\npolicy = 'strict'",
            arguments,
        )
        .expect("a valid configuration");
        assert_eq!((config.listen.port(), config.queue), (9, 7));
        assert_eq!(config.others.policy, "data-science");
    }

    #[test]
    fn public_address_requires_tokens() {
        let error = of("listen = '0.0.0.0:80'", ServeArguments::default())
            .expect_err("nothing keeps others out");
        assert!(error.to_string().contains("--token-file"), "{error}");
        let config = of(
            "listen = '0.0.0.0:80'\ntoken_file = 'tokens'",
            ServeArguments::default(),
        );
        let path = config
            .expect("it has tokens")
            .token_file
            .expect("it is named");
        assert!(path.is_absolute());
    }

    #[test]
    fn errors_name_the_line() {
        for (text, line) in [
            ("queues = 3", "line 1"),
            ("queue = 3\n[default]\nrats = 1", "line 3"),
            ("queue = 3\n\n[default]\n  rate = 'x'", "line 4"),
        ] {
            let error = of(text, ServeArguments::default()).expect_err(text);
            assert!(error.to_string().contains(line), "{error}");
        }
    }

    #[test]
    fn errors_name_the_file() {
        for (text, word) in [
            ("polic = 'x'", "polic"),
            ("[http]\nbody = 'much'", "much"),
            ("[default]\nrate = 0", "rate"),
            ("[http]\nbodies = '1MiB'", "http.bodies"),
            ("[http]\nconnections = 0", "http.connections"),
            ("session_idle = '0s'", "session_idle"),
            ("[tenants.'a b']", "a b"),
            ("[tenants.a]\nset = ['limits.wall']", "tenants.a"),
        ] {
            let error = of(text, ServeArguments::default())
                .expect_err(text)
                .to_string();
            assert!(
                error.contains("server.toml: ") && error.contains(word),
                "{error}"
            );
        }
    }
}
