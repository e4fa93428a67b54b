//! Derives from pip's configuration what a sandbox needs to reach the package sources. Pure.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sandfork_egress::host::{Authority, Host};

use super::allowed::{Allowed, Proxied};
use super::place::Place;
use crate::host::{PYPI, PipConfig};

/// The hosts of PyPI: its index, and its files.
const PYPI_HOSTS: [&str; 2] = ["pypi.org", "files.pythonhosted.org"];

/// The prefix of the variables through which secrets reach the egress process.
const SECRET: &str = "SANDFORK_INDEX_SECRET_";

/// Returns the error for an unsupported setting of pip.
fn unsupported(option: &str, remedy: &str) -> String {
    format!("pip's `{option}` is set, which Sandfork does not support: {remedy}")
}

/// How a sandbox reaches the package sources.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Access {
    /// Options for pip.
    pub options: Vec<String>,
    /// Overrides of the sandbox's policy.
    pub overrides: Vec<String>,
    /// Directories of packages that are shown to the sandbox.
    pub directories: Vec<PathBuf>,
    /// Single package files from other directories that are shown to the sandbox.
    pub files: Vec<PathBuf>,
    /// Variables of the sandbox's caller: secrets, which the guest never receives.
    pub variables: Vec<(String, String)>,
    /// Hosts whose certificates are not verified, because pip's configuration says so.
    pub unchecked: Vec<String>,
}

impl Access {
    /// Combines the configuration, the variables and the hosts that the caller allows. `own` is the caller's own part
    /// of the configuration.
    ///
    /// # Errors
    /// If a setting is invalid or unsupported.
    pub fn new<'a>(
        config: &PipConfig,
        own: &PipConfig,
        variable: impl Fn(&str) -> Option<&'a str>,
        allowed: &[String],
    ) -> Result<Self, String> {
        if config.value("client-cert").is_some() {
            return Err(unsupported(
                "client-cert",
                "use an index with a user and password instead, or `--find-links` with a directory of wheels",
            ));
        }
        let mut access = Self::default();
        let mut places = Vec::new();
        if config.flag("no-index") {
            access.options.push("--no-index".to_owned());
        } else {
            let main = config.value("index-url").unwrap_or(PYPI);
            places.push(access.index("--index-url", "index-url", main)?);
            for url in config.values("extra-index-url") {
                places.push(access.index("--extra-index-url", "extra-index-url", url)?);
            }
        }
        for links in config.values("find-links") {
            let path = links.strip_prefix("file://").unwrap_or(links);
            if path.starts_with('/') {
                // pip ignores a missing directory.
                access
                    .options
                    .extend(["--find-links".to_owned(), path.to_owned()]);
                access.directories.push(path.into());
            } else {
                places.push(access.index("--find-links", "find-links", links)?);
            }
        }
        for host in config.values("trusted-host") {
            access
                .options
                .extend(["--trusted-host".to_owned(), host.clone()]);
            access.unchecked.push(host.clone());
        }
        if config.flag("pre") {
            access.options.push("--pre".to_owned());
        }
        if let Some(certificates) = config.value("cert") {
            access
                .variables
                .push(("SSL_CERT_FILE".to_owned(), certificates.to_owned()));
        }
        let proxy = access.proxy(config, &variable)?;
        let allowed = Allowed::new(own, proxy, allowed)?;
        access.allow(&places, &allowed)?;
        Ok(access)
    }

    /// Adds a directory of which only these packages are shown. Without any package, the directory would not exist in
    /// the sandbox: pip would ignore it, but uv would fail.
    pub fn add_links(&mut self, directory: &Path, files: Vec<PathBuf>) {
        if !files.is_empty() {
            let directory = directory.display().to_string();
            self.options.extend(["--find-links".to_owned(), directory]);
            self.files.extend(files);
        }
    }

    fn index(&mut self, flag: &str, option: &str, url: &str) -> Result<Place, String> {
        let place = Place::read(option, url)?;
        self.options.extend([flag.to_owned(), place.url.clone()]);
        Ok(place)
    }

    /// Adds the proxy that pip would use to the policy.
    fn proxy<'a>(
        &mut self,
        config: &PipConfig,
        variable: &impl Fn(&str) -> Option<&'a str>,
    ) -> Result<Proxied<'a>, String> {
        let names = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
        let set = names
            .into_iter()
            .find_map(variable)
            .filter(|url| !url.is_empty());
        let Some(url) = config.value("proxy").or(set) else {
            return Ok(Proxied::Nothing);
        };
        let url = if url.contains("://") {
            url.to_owned()
        } else {
            format!("http://{url}")
        };
        if !url.starts_with("http://") {
            return Err(unsupported(
                "proxy",
                "name a proxy whose URL begins with http://",
            ));
        }
        let place = Place::read("proxy", &url)?;
        let user = place.user.map(|user| self.secret(user));
        let user = user.map_or(String::new(), |user| format!("{user}@"));
        let authority = Authority {
            host: place.host,
            port: Some(place.port),
        };
        self.overrides
            .push(format!("network.proxy=http://{user}{authority}"));
        let without = ["no_proxy", "NO_PROXY"].into_iter().find_map(variable);
        Ok(Proxied::But(without.unwrap_or_default()))
    }

    /// Stores a secret, and returns a reference to it that only the egress process resolves.
    fn secret(&mut self, value: String) -> String {
        let name = format!("{SECRET}{}", self.variables.len());
        self.variables.push((name.clone(), value));
        format!("${{{name}}}")
    }

    fn allow(&mut self, places: &[Place], allowed: &Allowed) -> Result<(), String> {
        let mut entries = Vec::new();
        let mut seen: Vec<(&Host, u16)> = Vec::new();
        for place in places {
            let is_new = !seen.contains(&(&place.host, place.port));
            seen.push((&place.host, place.port));
            let host = place.host.to_string();
            if !is_new || PYPI_HOSTS.contains(&&*host) {
                continue;
            }
            let private = allowed.is_private(place)?;
            let mut same = places
                .iter()
                .filter(|it| it.host == place.host && it.port == place.port);
            let user = same.find_map(|it| it.user.clone());
            let credential = user.map(|user| {
                let reference = self.secret(BASE64_STANDARD.encode(user));
                // Build code reaches the index too, and must not be able to publish there.
                format!(
                    ", methods = ['GET', 'HEAD'], credential = {{ header = 'Authorization', value = 'Basic {reference}' }}"
                )
            });
            let credential = credential.unwrap_or_default();
            entries.push(format!(
                "{{ host = '{host}', ports = [{}], private = {private}{credential} }}",
                place.port
            ));
        }
        if places
            .iter()
            .any(|place| PYPI_HOSTS.contains(&&*place.host.to_string()))
        {
            // A local network may resolve these names to its own mirror.
            entries.extend(PYPI_HOSTS.map(|host| {
                let private = !allowed.proxied.applies_to(host);
                format!("{{ host = '{host}', ports = [443], private = {private} }}")
            }));
        }
        for (host, ports) in &allowed.hosts {
            let private = !allowed.proxied.applies_to(&host.to_string());
            let entry = format!("{{ host = '{host}', ports = {ports:?}, private = {private} }}");
            if !entries.contains(&entry) {
                entries.push(entry);
            }
        }
        if !entries.is_empty() {
            self.overrides.push("network.mode=allow".to_owned());
            self.overrides
                .push(format!("network.allow=[{}]", entries.join(", ")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{BuiltInsOnly, Override, Policy};

    fn access(
        settings: &[(&str, &str)],
        variables: &[(&str, &'static str)],
    ) -> Result<Access, String> {
        let mut config = PipConfig::default();
        for (option, value) in settings {
            config.set(option, value);
        }
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| *value)
        };
        Access::new(&config, &config, variable, &[])
    }

    #[test]
    fn default_index_is_pypi() {
        let access = access(&[], &[]).expect("access");
        assert_eq!(access.options, ["--index-url", "https://pypi.org/simple"]);
        assert_eq!(
            access.overrides,
            [
                "network.mode=allow",
                "network.allow=[{ host = 'pypi.org', ports = [443], private = true }, \
                 { host = 'files.pythonhosted.org', ports = [443], private = true }]"
            ]
        );
    }

    #[test]
    fn password_is_passed_as_an_egress_secret() {
        let url = "https://me:p%40ss@index.example:8443/simple/";
        let access = access(&[("index-url", url)], &[]).expect("access");
        assert_eq!(
            access.options,
            ["--index-url", "https://index.example:8443/simple/"]
        );
        assert_eq!(
            access.overrides[1],
            "network.allow=[{ host = 'index.example', ports = [8443], private = true, methods = ['GET', 'HEAD'], \
             credential = { header = 'Authorization', value = 'Basic ${SANDFORK_INDEX_SECRET_0}' } }]"
        );
        let secret = BASE64_STANDARD.encode("me:p@ss");
        assert_eq!(
            access.variables,
            [("SANDFORK_INDEX_SECRET_0".to_owned(), secret)]
        );
        let error = Place::read("index-url", "ftp://me:p@index.example").expect_err("refused");
        assert!(!error.contains("me:p"), "{error}");
    }

    #[test]
    fn proxy_applies_to_all_but_excluded_hosts() {
        let set = [("index-url", "https://index.corp.example/simple")];
        let proxy = ("HTTPS_PROXY", "http://u:p@proxy.example:3128");
        let through = access(&set, &[proxy]).expect("access");
        assert_eq!(
            through.overrides[0],
            "network.proxy=http://${SANDFORK_INDEX_SECRET_0}@proxy.example:3128"
        );
        assert!(
            through.overrides[2].contains("private = false"),
            "{through:?}"
        );
        let around =
            access(&set, &[proxy, ("NO_PROXY", "localhost, .corp.example")]).expect("access");
        assert!(around.overrides[2].contains("private = true"), "{around:?}");
        assert!(access(&set, &[("HTTPS_PROXY", "socks5://proxy.example")]).is_err());
        let by_address = access(&set, &[("HTTPS_PROXY", "http://[::1]:3128")]).expect("access");
        assert_eq!(by_address.overrides[0], "network.proxy=http://[::1]:3128");
        let sets = by_address.overrides.iter().map(|set| set.parse());
        let sets: Result<Vec<Override>, _> = sets.collect();
        let policy = Policy::load("standard", &sets.expect("overrides"), &BuiltInsOnly);
        assert!(policy.is_ok(), "{policy:?}");
    }

    #[test]
    fn local_directory_needs_no_network() {
        let access =
            access(&[("no-index", "true"), ("find-links", "/srv/wheels")], &[]).expect("access");
        assert_eq!(
            access.options,
            ["--no-index", "--find-links", "/srv/wheels"]
        );
        assert_eq!(access.directories, [PathBuf::from("/srv/wheels")]);
        assert_eq!(access.overrides, Vec::<String>::new());
    }

    #[test]
    fn host_from_a_requirements_file_is_not_private() {
        let (mut own, mut all) = (PipConfig::default(), PipConfig::default());
        own.set("index-url", "http://10.0.0.1/simple");
        all.set("index-url", "http://file.example:8080/simple");
        all.set("extra-index-url", "http://10.0.0.1/other");
        let access = |all: &PipConfig, allowed: &[&str]| {
            let allowed: Vec<String> = allowed.iter().map(|it| (*it).to_owned()).collect();
            Access::new(all, &own, |_| None, &allowed).map(|access| access.overrides[1].clone())
        };
        let own_one = "{ host = '10.0.0.1', ports = [80], private = true }";
        assert_eq!(
            access(&all, &[]),
            Ok(format!(
                "network.allow=[{{ host = 'file.example', ports = [8080], private = false }}, {own_one}]"
            ))
        );
        assert_eq!(
            access(&all, &["file.example:8080"]),
            Ok(format!(
                "network.allow=[{{ host = 'file.example', ports = [8080], private = true }}, {own_one}]"
            ))
        );
        all.set("index-url", "http://10.0.0.1:8080/simple");
        let refused = access(&all, &["10.0.0.1"]).expect_err("another port");
        assert_eq!(
            refused,
            "only a requirements file names 10.0.0.1:8080, which is on a private network: `--allow-host 10.0.0.1:8080` lets \
             the installation reach it"
        );
        assert!(access(&all, &["10.0.0.1:8080"]).is_ok());
    }
}
