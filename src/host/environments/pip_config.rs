//! Merges the configuration of pip and uv from the text of their files and from variables. Pure.

use std::collections::BTreeMap;

use crate::policy::SourcesDigest;

/// The default index.
pub const PYPI: &str = "https://pypi.org/simple";

/// Settings that determine where packages come from, by pip's option names.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PipConfig(BTreeMap<String, Vec<String>>);

/// The sections of a file that apply to `pip install`, lowest precedence first.
const SECTIONS: [&str; 2] = ["global", "install"];

/// The options that are read, each with the equivalent variables of uv.
const OPTIONS: [(&str, &[&str]); 9] = [
    ("index-url", &["UV_INDEX_URL", "UV_DEFAULT_INDEX"]),
    ("extra-index-url", &["UV_EXTRA_INDEX_URL", "UV_INDEX"]),
    ("find-links", &["UV_FIND_LINKS"]),
    ("trusted-host", &["UV_INSECURE_HOST"]),
    ("no-index", &[]),
    ("proxy", &[]),
    ("cert", &[]),
    ("client-cert", &[]),
    ("pre", &[]),
];

/// The keys of uv's files, each with pip's equivalent option.
const UV_KEYS: [(&str, &str); 5] = [
    ("index-url", "index-url"),
    ("extra-index-url", "extra-index-url"),
    ("find-links", "find-links"),
    ("allow-insecure-host", "trusted-host"),
    ("no-index", "no-index"),
];

impl PipConfig {
    /// Reads the texts of uv's files and uv's variables, and then those of pip, lowest precedence first.
    pub fn read<'a>(
        of_uv: impl IntoIterator<Item = &'a str>,
        of_pip: impl IntoIterator<Item = &'a str>,
        variable: impl Fn(&str) -> Option<&'a str>,
    ) -> Self {
        let mut config = Self::default();
        for text in of_uv {
            config.add_uv_file(text);
        }
        for (option, names) in OPTIONS {
            for name in names {
                let values = variable(name).unwrap_or_default().split_whitespace();
                let urls: Vec<&str> = values.map(without_name).collect();
                config.set(option, &urls.join(" "));
            }
        }
        for text in of_pip {
            config.add_file(text);
        }
        for (option, _) in OPTIONS {
            let name = format!("PIP_{}", option.replace('-', "_").to_uppercase());
            config.set(option, variable(&name).unwrap_or_default());
        }
        config
    }

    /// Sets an option, unless the value is empty: pip ignores empty values.
    pub fn set(&mut self, option: &str, value: &str) {
        let values: Vec<String> = value.split_whitespace().map(str::to_owned).collect();
        if !values.is_empty() {
            self.0.insert(option.to_owned(), values);
        }
    }

    /// Appends whitespace-separated values to an option.
    pub fn add(&mut self, option: &str, value: &str) {
        let values = self.0.entry(option.to_owned()).or_default();
        values.extend(value.split_whitespace().map(str::to_owned));
    }

    /// Appends one value, which may contain spaces, to an option.
    pub fn push(&mut self, option: &str, value: &str) {
        let values = self.0.entry(option.to_owned()).or_default();
        values.push(value.to_owned());
    }

    /// Returns a digest of everything that determines where packages come from. `None` means PyPI alone.
    pub fn sources(&self) -> Option<SourcesDigest> {
        SourcesDigest::of(&self.source_options())
    }

    /// Returns the options that determine where packages come from, in canonical form and without credentials.
    fn source_options(&self) -> Vec<String> {
        let mut options = Vec::new();
        let listed = if self.flag("no-index") {
            options.push("--no-index".to_owned());
            &["find-links"][..]
        } else {
            let index = self.value("index-url").map(canonical_url);
            let other = index.filter(|url| url != PYPI);
            options.extend(other.map(|url| format!("--index-url {url}")));
            &["extra-index-url", "find-links"]
        };
        for option in listed {
            let urls = self.values(option).iter().map(|url| canonical_url(url));
            options.extend(urls.map(|url| format!("--{option} {url}")));
        }
        // Without certificate verification, the host that answers may not be this index.
        let hosts = self.values("trusted-host").iter();
        options.extend(hosts.map(|host| format!("--trusted-host {host}")));
        if self.flag("pre") {
            options.push("--pre".to_owned());
        }
        options
    }

    /// Returns the last value of an option.
    pub fn value(&self, option: &str) -> Option<&str> {
        self.values(option).last().map(String::as_str)
    }

    /// Returns all values of an option.
    pub fn values(&self, option: &str) -> &[String] {
        self.0.get(option).map_or(&[], Vec::as_slice)
    }

    /// Returns whether an option is enabled.
    pub fn flag(&self, option: &str) -> bool {
        let value = self.value(option).unwrap_or_default().to_lowercase();
        matches!(&*value, "1" | "true" | "yes" | "on" | "y" | "t")
    }

    /// Reads a `uv.toml`, whose `[pip]` table takes precedence over the top level. Ignores an invalid file, which uv
    /// itself reports.
    fn add_uv_file(&mut self, text: &str) {
        let file: toml::Table = text.parse().unwrap_or_default();
        self.add_uv_table(&file);
        if let Some(pip) = file.get("pip").and_then(toml::Value::as_table) {
            self.add_uv_table(pip);
        }
    }

    fn add_uv_table(&mut self, table: &toml::Table) {
        for (key, option) in UV_KEYS {
            match table.get(key) {
                Some(toml::Value::String(text)) => self.set(option, text),
                Some(toml::Value::Boolean(is_on)) => self.set(option, &is_on.to_string()),
                Some(toml::Value::Array(list)) => {
                    let texts: Vec<&str> = list.iter().filter_map(toml::Value::as_str).collect();
                    self.set(option, &texts.join(" "));
                }
                _ => {}
            }
        }
        let indexes = table.get("index").and_then(toml::Value::as_array);
        for index in indexes.into_iter().flatten() {
            let is = |key: &str| index.get(key).and_then(toml::Value::as_bool) == Some(true);
            match index.get("url").and_then(toml::Value::as_str) {
                Some(url) if is("default") => self.set("index-url", url),
                // An explicit index serves only packages that a project pins to it.
                Some(url) if !is("explicit") => self.add("extra-index-url", url),
                _ => {}
            }
        }
    }

    /// Reads a file by the rules of Python's configparser.
    fn add_file(&mut self, text: &str) {
        let mut found: BTreeMap<(usize, String), String> = BTreeMap::new();
        let mut section = None;
        let mut last: Option<(usize, String)> = None;
        for line in text.lines() {
            let trimmed = line.trim();
            if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
                continue;
            }
            let continues = line.starts_with([' ', '\t']);
            if let Some(value) = last
                .as_ref()
                .filter(|_| continues)
                .and_then(|key| found.get_mut(key))
            {
                value.push('\n');
                value.push_str(trimmed);
                continue;
            }
            last = None;
            if let Some(name) = trimmed
                .strip_prefix('[')
                .and_then(|rest| rest.strip_suffix(']'))
            {
                section = SECTIONS.iter().position(|known| *known == name);
                continue;
            }
            let (Some(section), Some((key, value))) = (section, trimmed.split_once(['=', ':']))
            else {
                continue;
            };
            let key = (section, key.trim().to_lowercase().replace('_', "-"));
            found.insert(key.clone(), value.trim().to_owned());
            last = Some(key);
        }
        for ((_, option), value) in found {
            if OPTIONS.iter().any(|(known, _)| *known == option) {
                self.set(&option, &value);
            }
        }
    }
}

/// Returns a URL or path in canonical form, without user and password.
fn canonical_url(url: &str) -> String {
    let url = url.strip_prefix("file://").unwrap_or(url);
    let plain = match url.split_once("://") {
        None => url.to_owned(),
        Some((scheme, rest)) => {
            // No supported URL has an `@` after its host, but a password may contain an unescaped `/`.
            let rest = rest.rsplit('@').next().unwrap_or_default();
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let (scheme, authority) = (scheme.to_lowercase(), authority.to_lowercase());
            format!("{scheme}://{authority}{path}")
        }
    };
    plain.trim_end_matches('/').to_owned()
}

/// Returns the URL of an index to which `UV_INDEX` gives a name.
fn without_name(index: &str) -> &str {
    match index.split_once('=') {
        Some((name, url)) if !name.contains(':') => url,
        _ => index,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UV_FILE: &str = "index-url = \"https://weaker.example\"\nallow-insecure-host = [\"one\", \"two\"]\n\
        index = [{ url = \"https://pinned.example\", explicit = true }, { url = \"https://two.example\" }]\n\
        extra-index-url = [\"https://more.example\"]\nno-index = true\n\
        [pip]\nindex-url = \"https://toml.example/simple\"\nno-index = false\n";

    fn read(files: &[&str], variables: &[(&'static str, &'static str)]) -> PipConfig {
        read_both("", files, variables)
    }

    fn read_both(
        of_uv: &str,
        of_pip: &[&str],
        variables: &[(&'static str, &'static str)],
    ) -> PipConfig {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| *value)
        };
        PipConfig::read([of_uv], of_pip.iter().copied(), variable)
    }

    #[test]
    fn later_files_and_variables_win() {
        let system = "[global]\nindex-url = https://system.example/simple\ntimeout = 60\n";
        let user =
            "# own\n[install]\nindex_url: https://user.example/simple\n[list]\nindex-url = no\n";
        let config = read(&[system], &[]);
        assert_eq!(
            config.value("index-url"),
            Some("https://system.example/simple")
        );
        assert_eq!(config.value("timeout"), None);
        let config = read(&[system, user], &[]);
        assert_eq!(
            config.value("index-url"),
            Some("https://user.example/simple")
        );
        let config = read(
            &[system, user],
            &[
                ("PIP_INDEX_URL", "https://env.example/simple"),
                ("PIP_NO_INDEX", ""),
            ],
        );
        assert_eq!(
            config.value("index-url"),
            Some("https://env.example/simple")
        );
        assert!(!config.flag("no-index"));
        let config = read(&[], &[("UV_DEFAULT_INDEX", "https://uv.example/simple")]);
        assert_eq!(config.value("index-url"), Some("https://uv.example/simple"));
    }

    #[test]
    fn uv_settings_apply_unless_pip_overrides_them() {
        let config = read_both(UV_FILE, &[], &[]);
        assert_eq!(
            config.value("index-url"),
            Some("https://toml.example/simple")
        );
        assert_eq!(
            config.values("extra-index-url"),
            ["https://more.example", "https://two.example"]
        );
        assert_eq!(config.values("trusted-host"), ["one", "two"]);
        assert!(!config.flag("no-index"));
        let index = (
            "UV_INDEX",
            "own=https://a.example/?a=b https://c.example/?d=e",
        );
        let config = read_both(UV_FILE, &[], &[index]);
        assert_eq!(
            config.values("extra-index-url"),
            ["https://a.example/?a=b", "https://c.example/?d=e"]
        );
        let config = read_both(
            "[torn",
            &["[global]\nextra-index-url = https://pip.example\n"],
            &[index],
        );
        assert_eq!(config.values("extra-index-url"), ["https://pip.example"]);
    }

    #[test]
    fn list_continues_on_indented_lines() {
        let text = "[global]\nextra-index-url =\n    https://a.example\n    # not this\n    https://b.example\nno-index = true\n";
        let config = read(&[text], &[]);
        assert_eq!(
            config.values("extra-index-url"),
            ["https://a.example", "https://b.example"]
        );
        assert!(config.flag("no-index"));
        let torn = read(&["index-url = x\n  y\n[global\nproxy\n[]\n"], &[]);
        assert_eq!(torn, PipConfig::default());
    }

    #[test]
    fn sources_cover_everything_that_selects_packages() {
        let of = |variables: &[(&'static str, &'static str)]| read(&[], variables).source_options();
        let nothing: [&str; 0] = [];
        assert_eq!(of(&[]), nothing);
        assert_eq!(
            of(&[("PIP_INDEX_URL", "https://PyPI.org/simple/")]),
            nothing
        );
        assert_eq!(of(&[("PIP_PROXY", "http://proxy.example")]), nothing);
        let index = ["--index-url https://i.example:8443/Simple"];
        for url in [
            "https://i.example:8443/Simple",
            "https://me:p%40ss@I.example:8443/Simple/",
            "https://me:p/@ss@i.example:8443/Simple",
        ] {
            assert_eq!(of(&[("PIP_INDEX_URL", url)]), index);
        }
        let all = [
            ("PIP_NO_INDEX", "1"),
            ("PIP_INDEX_URL", "https://i.example/simple"),
            (
                "PIP_FIND_LINKS",
                "file:///srv/one /srv/two/ http://u:p@w.example/x",
            ),
            ("PIP_TRUSTED_HOST", "w.example"),
            ("PIP_PRE", "1"),
        ];
        assert_eq!(
            of(&all),
            [
                "--no-index",
                "--find-links /srv/one",
                "--find-links /srv/two",
                "--find-links http://w.example/x",
                "--trusted-host w.example",
                "--pre",
            ]
        );
    }
}
