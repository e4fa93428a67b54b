//! Parses the names and patterns of Python modules in a policy.

use std::fmt;
use std::str::FromStr;

/// Returns whether each part between dots is a Python identifier. Python's rule (XID, PEP 3131) is slightly
/// narrower for rare scripts; the interpreter applies it at the import.
fn is_dotted_name(text: &str) -> bool {
    text.split('.').all(|part| {
        let mut chars = part.chars();
        chars.next().is_some_and(|c| c == '_' || c.is_alphabetic())
            && chars.all(|c| c == '_' || c.is_alphanumeric())
    })
}

/// Returns whether this is the name of a distribution, under which packages are installed: `scikit-learn`.
fn is_distribution_name(text: &str) -> bool {
    let is_outer = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(is_outer)
        && text.ends_with(is_outer)
        && text.chars().all(|c| is_outer(c) || "-_.".contains(c))
        && !text.contains("..")
}

/// Whether a preloaded module must exist.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Presence {
    /// A module that cannot be imported is an error before any code runs.
    Required,
    /// Preloaded if the interpreter has it, skipped if not.
    WhereInstalled,
}

/// A module that the zygote imports once: `"numpy"`, or `"numpy?"` if it may be missing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Preload {
    module: String,
    presence: Presence,
}

impl Preload {
    /// Returns the dotted name of the module.
    pub fn module(&self) -> &str {
        &self.module
    }

    /// Returns whether the module must exist.
    pub fn presence(&self) -> Presence {
        self.presence
    }
}

impl FromStr for Preload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (module, presence) = match text.strip_suffix('?') {
            Some(module) => (module, Presence::WhereInstalled),
            None => (text, Presence::Required),
        };
        if !is_dotted_name(module) {
            return Err(format!(
                "\"{text}\" is not a module name: write it as in an import statement, such as \"numpy\" or \"numpy.linalg\""
            ));
        }
        Ok(Self {
            module: module.to_owned(),
            presence,
        })
    }
}

impl fmt::Display for Preload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.module)?;
        match self.presence {
            Presence::Required => Ok(()),
            Presence::WhereInstalled => f.write_str("?"),
        }
    }
}

/// A pattern of modules that the guest may import: `"math"`, `"numpy.*"` or `"*"`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ImportPattern {
    /// `*`: every module.
    Everything,
    /// `numpy`: this module only, or all modules of the distribution of that name if no module has the name.
    Module(String),
    /// `numpy.*`: this module and all modules beneath it.
    Package(String),
}

impl FromStr for ImportPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, pattern): (&str, fn(String) -> Self) = match text.strip_suffix(".*") {
            _ if text == "*" => return Ok(Self::Everything),
            Some(package) => (package, Self::Package),
            None => (text, Self::Module),
        };
        if !is_dotted_name(name) && !is_distribution_name(text) {
            return Err(format!(
                "\"{text}\" is not an import pattern: write \"numpy\" for one module, \"numpy.*\" for it and all beneath \
                 it, or \"*\" for every module"
            ));
        }
        Ok(pattern(name.to_owned()))
    }
}

impl ImportPattern {
    /// Returns whether this pattern allows every module that `other` allows.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let is_beneath = |name: &str, package: &str| {
            let rest = name.strip_prefix(package);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        match (self, other) {
            (Self::Everything, _) => true,
            (Self::Package(package), Self::Module(name) | Self::Package(name)) => {
                is_beneath(name, package)
            }
            (Self::Module(module), Self::Module(name)) => module == name,
            (Self::Module(_), Self::Package(_)) | (_, Self::Everything) => false,
        }
    }
}

impl fmt::Display for ImportPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("*"),
            Self::Module(name) => f.write_str(name),
            Self::Package(name) => write!(f, "{name}.*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_mark_makes_a_preload_optional() {
        let required: Preload = "numpy.linalg".parse().expect("a module name");
        assert_eq!(required.module(), "numpy.linalg");
        assert_eq!(required.presence(), Presence::Required);
        let optional: Preload = "numpy?".parse().expect("a module name");
        assert_eq!(optional.module(), "numpy");
        assert_eq!(optional.presence(), Presence::WhereInstalled);
        assert_eq!(optional.to_string(), "numpy?");
    }

    #[test]
    fn preloads_must_be_module_names() {
        for text in [
            "", "?", "num py", "numpy??", ".numpy", "numpy.", "a..b", "1a", "a-b", "*",
        ] {
            let refused = text.parse::<Preload>();
            assert_eq!(
                refused,
                Err(format!(
                    "\"{text}\" is not a module name: write it as in an import statement, such as \"numpy\" or \
                     \"numpy.linalg\""
                ))
            );
        }
        for text in ["_private", "größe", "a.b_2.c"] {
            assert!(text.parse::<Preload>().is_ok(), "{text}");
        }
    }

    #[test]
    fn import_patterns_have_three_forms() {
        assert_eq!("*".parse(), Ok(ImportPattern::Everything));
        assert_eq!("math".parse(), Ok(ImportPattern::Module("math".to_owned())));
        let package = ImportPattern::Package("numpy.linalg".to_owned());
        assert_eq!("numpy.linalg.*".parse(), Ok(package));
    }

    #[test]
    fn distribution_names_are_patterns() {
        for text in ["scikit-learn", "ruamel.yaml", "3d-x", "PyYAML", "Flask_x-2"] {
            let module = ImportPattern::Module(text.to_owned());
            assert_eq!(text.parse(), Ok(module), "{text}");
        }
    }

    #[test]
    fn other_patterns_are_rejected() {
        for text in [
            "",
            "**",
            ".*",
            "num*",
            "*.math",
            "a.*.b",
            "a.**",
            "math?",
            "a b",
            "scikit-learn.*",
            "-a",
            "a-",
            "a..b",
            "a-b==1",
            "a-ä",
        ] {
            let refused = text.parse::<ImportPattern>();
            assert_eq!(
                refused,
                Err(format!(
                    "\"{text}\" is not an import pattern: write \"numpy\" for one module, \"numpy.*\" for it and all \
                     beneath it, or \"*\" for every module"
                ))
            );
        }
    }
}
