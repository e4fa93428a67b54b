//! What pip is configured with: its files and variables, as text. Pure.

use std::collections::BTreeMap;

/// pip's settings that say where packages come from.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PipConfig(BTreeMap<String, Vec<String>>);

/// The sections of a file that hold for `pip install`, the weaker first.
const SECTIONS: [&str; 2] = ["global", "install"];

/// The options that are read, with the variables of uv that say the same.
const OPTIONS: [(&str, &[&str]); 9] = [
    ("index-url", &["UV_INDEX_URL", "UV_DEFAULT_INDEX"]),
    ("extra-index-url", &["UV_EXTRA_INDEX_URL"]),
    ("find-links", &["UV_FIND_LINKS"]),
    ("trusted-host", &[]),
    ("no-index", &[]),
    ("proxy", &[]),
    ("cert", &[]),
    ("client-cert", &[]),
    ("pre", &[]),
];

impl PipConfig {
    /// Reads the texts of pip's files, the weakest first, and then the variables.
    pub fn read<'a>(
        files: impl IntoIterator<Item = &'a str>,
        variable: impl Fn(&str) -> Option<&'a str>,
    ) -> Self {
        let mut config = Self::default();
        for (option, of_uv) in OPTIONS {
            for name in of_uv {
                config.set(option, variable(name).unwrap_or_default());
            }
        }
        for text in files {
            config.add_file(text);
        }
        for (option, _) in OPTIONS {
            let name = format!("PIP_{}", option.replace('-', "_").to_uppercase());
            config.set(option, variable(&name).unwrap_or_default());
        }
        config
    }

    /// Sets an option, unless the value is empty: pip ignores those.
    pub fn set(&mut self, option: &str, value: &str) {
        let values: Vec<String> = value.split_whitespace().map(str::to_owned).collect();
        if !values.is_empty() {
            self.0.insert(option.to_owned(), values);
        }
    }

    /// Adds values to those of an option.
    pub fn add(&mut self, option: &str, value: &str) {
        let values = self.0.entry(option.to_owned()).or_default();
        values.extend(value.split_whitespace().map(str::to_owned));
    }

    /// The last value of an option.
    pub fn value(&self, option: &str) -> Option<&str> {
        self.values(option).last().map(String::as_str)
    }

    /// All values of an option.
    pub fn values(&self, option: &str) -> &[String] {
        self.0.get(option).map_or(&[], Vec::as_slice)
    }

    /// Whether an option is on.
    pub fn flag(&self, option: &str) -> bool {
        let value = self.value(option).unwrap_or_default().to_lowercase();
        matches!(&*value, "1" | "true" | "yes" | "on" | "y" | "t")
    }

    /// Reads a file as Python's configparser does.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[&str], variables: &[(&'static str, &'static str)]) -> PipConfig {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| *value)
        };
        PipConfig::read(files.iter().copied(), variable)
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
    fn a_list_goes_on_in_the_next_lines() {
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
}
