//! What the server is asked to be: the configuration file, with the command line in place of what both say.

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

/// Where the standard's programs find the collector, if nothing else says it.
const OTLP: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// A checked configuration.
#[derive(Debug)]
pub struct Config {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The file of the tokens.
    pub token_file: Option<PathBuf>,
    /// How many runs are active at once.
    pub jobs: Option<NonZeroUsize>,
    /// How many more wait.
    pub queue: usize,
    /// How long what runs may go on when the server is asked to end.
    pub drain: Duration,
    /// The longest time without use of a session.
    pub session_idle: Duration,
    /// Bounds of connections.
    pub http: HttpBounds,
    /// What encrypts connections.
    pub tls: Option<TlsFiles>,
    /// The collector of traces, over plain HTTP.
    pub otlp: Option<String>,
    /// What tenants have that the configuration does not name.
    pub others: Profile,
    /// What it names.
    pub tenants: BTreeMap<String, Profile>,
}

/// The policy and the quota of a tenant.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The policy: a built-in name or a file.
    pub policy: String,
    /// Its keys that are replaced.
    pub set: Vec<Override>,
    /// The quota.
    pub quota: Quota,
}

/// The files of a certificate and its key, in PEM.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The certificate, and those between it and its authority.
    pub certificate: PathBuf,
    /// Its private key.
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

/// Whether it is the address of a host over plain HTTP.
fn is_collector(address: &str) -> bool {
    let address = address.parse::<Uri>().ok();
    address.is_some_and(|uri| uri.scheme_str() == Some("http") && uri.host().is_some())
}

impl ConfigFile {
    /// Checks that its bounds let something through.
    fn check(&self) -> Result<(), String> {
        if self.session_idle.is_some_and(|idle| idle.is_zero()) {
            return Err(
                "session_idle: without any time, each session is closed at once".to_owned(),
            );
        }
        let checked = self.http.check();
        checked.map_err(|problem| format!("http.{problem}"))
    }
}

impl Config {
    /// Merges the file that the arguments name, if they name one, with the arguments.
    ///
    /// # Errors
    /// If the file cannot be read or is no configuration, or the result would let everyone run code.
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
                let problem =
                    format!("tenants.{name}: a tenant is named by letters, digits, `-` and `_`");
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
                .or_else(|| env::var(OTLP).ok()),
            others,
            tenants,
        };
        if let Some(collector) = &config.otlp
            && !is_collector(collector)
        {
            return Err(StartError::Usage(format!(
                "the collector `{collector}`: traces are sent over plain HTTP: name one such as http://127.0.0.1:4318, \
                 which may send them on"
            )));
        }
        config.may_listen(config.listen)?;
        Ok(config)
    }

    /// Refuses an address at which others could run code.
    ///
    /// # Errors
    /// If other machines reach it, and need no token.
    pub fn may_listen(&self, address: SocketAddr) -> Result<(), StartError> {
        if self.token_file.is_none() && !address.ip().is_loopback() {
            return Err(StartError::Usage(format!(
                "{address} can be reached from other machines, and without tokens anyone there could run code: add \
                 `--token-file FILE`, or listen on 127.0.0.1"
            )));
        }
        Ok(())
    }

    /// How much of something one tenant may have. Where there are several, it leaves the rest to the others.
    pub fn share(&self, of: u64) -> u64 {
        match self.token_file {
            None => of,
            Some(_) => (of / 2).max(1),
        }
    }

    /// What a tenant has.
    pub fn profile(&self, tenant: &str) -> &Profile {
        self.tenants.get(tenant).unwrap_or(&self.others)
    }
}

impl Profile {
    /// Replaces what the table has. A policy that is a file is beside the configuration.
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
            return Err("rate: the runs in a second are more than none".to_owned());
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
        fs::write(&path, text).expect("it is written");
        arguments.sandboxes.config = Some(path);
        Config::of(&arguments)
    }

    #[test]
    fn a_tenant_has_what_all_have_but_for_what_its_table_says() {
        let text = "[default]\npolicy = 'strict'\nruns = 3\nset = ['limits.pids=9']\n\
                    [tenants.alpha]\npolicy = 'alpha.toml'\nsessions = 5\nmemory = '1GiB'\ncpu_an_hour = '10min'";
        let config = of(text, ServeArguments::default()).expect("it is read");
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
    fn the_command_line_comes_first() {
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
        .expect("it is read");
        assert_eq!((config.listen.port(), config.queue), (9, 7));
        assert_eq!(config.others.policy, "data-science");
    }

    #[test]
    fn what_others_reach_needs_tokens() {
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
    fn a_mistake_is_named_with_its_line() {
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
    fn a_mistake_is_named_with_its_file() {
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
