//! Represents the caller's environment as a value.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// The caller's environment variables: those that select an interpreter, and those that a policy may pass on. A
/// supervisor that serves other processes handles its own environment and theirs.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct CallerEnvironment {
    variables: BTreeMap<OsString, OsString>,
}

impl CallerEnvironment {
    /// Returns the environment of this process.
    pub fn current() -> Self {
        env::vars_os().collect()
    }

    /// Returns a copy with these variables changed. A variable is removed if its new value is `None` or cannot exist in
    /// an environment (environ(7)).
    #[must_use]
    pub fn changed_by<N: Into<OsString>, V: Into<OsString>>(
        mut self,
        differences: impl IntoIterator<Item = (N, Option<V>)>,
    ) -> Self {
        for (name, value) in differences {
            let name = name.into();
            match value.map(Into::into).filter(|value| can_hold(&name, value)) {
                Some(value) => self.variables.insert(name, value),
                None => self.variables.remove(&name),
            };
        }
        self
    }

    /// Returns a variable's value, if it is set and is UTF-8. Other values cannot be passed on.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.variables.get(OsStr::new(name))?.to_str()
    }

    /// Returns whether a variable is set, even if it is not UTF-8.
    pub(super) fn has(&self, name: &str) -> bool {
        self.variables.contains_key(OsStr::new(name))
    }

    /// Returns the search path for programs.
    pub(super) fn path(&self) -> &OsStr {
        let path = self.variables.get(OsStr::new("PATH"));
        path.map_or(OsStr::new(""), OsString::as_os_str)
    }

    /// Returns the variables that determine which interpreter a name selects, directly or through a launcher of that
    /// name: `PATH`, `HOME` and `PYENV_*`.
    pub(crate) fn selecting_variables(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        let selects = |name: &OsStr| {
            let name = name.to_string_lossy();
            name == "PATH" || name == "HOME" || name.starts_with("PYENV_")
        };
        self.variables
            .iter()
            .map(|(name, value)| (name.as_os_str(), value.as_os_str()))
            .filter(move |(name, _)| selects(name))
    }
}

fn can_hold(name: &OsStr, value: &OsStr) -> bool {
    let (name, value) = (name.as_bytes(), value.as_bytes());
    !name.is_empty() && !name.contains(&b'=') && !name.contains(&0) && !value.contains(&0)
}

impl FromIterator<(OsString, OsString)> for CallerEnvironment {
    fn from_iter<T: IntoIterator<Item = (OsString, OsString)>>(variables: T) -> Self {
        Self {
            variables: variables.into_iter().collect(),
        }
    }
}

/// Prints names only, because the values hold the caller's secrets.
impl fmt::Debug for CallerEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(names: &[&str]) -> CallerEnvironment {
        let of = |name: &&str| (OsString::from(name), OsString::from("value"));
        names.iter().map(of).collect()
    }

    #[test]
    fn only_selecting_variables_are_returned() {
        let all = environment(&[
            "PATH",
            "HOME",
            "PYENV_VERSION",
            "PYTHONPATH",
            "LD_PRELOAD",
            "AWS_SECRET_ACCESS_KEY",
        ]);
        let names: Vec<_> = all.selecting_variables().map(|(name, _)| name).collect();
        assert_eq!(names, ["HOME", "PATH", "PYENV_VERSION"]);
    }

    #[test]
    fn differences_set_and_remove() {
        let changed = environment(&["A", "B", "C"]).changed_by([
            ("A", Some("other")),
            ("B", None),
            ("D", Some("")),
            ("E", None),
            ("F", Some("a\0b")),
            ("G=H", Some("value")),
        ]);
        let values = ["A", "B", "C", "D", "E"].map(|name| changed.text(name));
        assert_eq!(values, [Some("other"), None, Some("value"), Some(""), None]);
        assert_eq!(["F", "G=H"].map(|name| changed.text(name)), [None, None]);
    }

    #[test]
    fn debug_output_hides_values() {
        let shown = format!("{:?}", environment(&["TOKEN"]));
        assert_eq!(shown, r#"{"TOKEN"}"#);
    }

    #[test]
    fn value_that_is_not_utf8_is_not_passed_on() {
        use std::os::unix::ffi::OsStringExt;
        let odd = [(OsString::from("A"), OsString::from_vec(vec![0xff]))];
        assert_eq!(CallerEnvironment::from_iter(odd).text("A"), None);
    }
}
