//! Caches the policies that callers name, because loading a policy takes longer than opening a session under it.

use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::error::Error;
use crate::policy::{Override, Policy, PolicySource};
use crate::policy_source::FileSystem;
use crate::protocol::caller::{PolicyChoice, SandboxChoice};
use crate::waiters::lock;

/// The maximum number of cached policies. A caller that sends a different policy for each session gains nothing from
/// more.
const MAX: usize = 32;

/// The policies that depend on nothing but the caller's input, by that input.
#[derive(Default)]
pub struct Policies(Mutex<HashMap<PolicyInput, Arc<Policy>>>);

type PolicyInput = (PolicyChoice, Vec<String>);

impl Policies {
    /// Returns the policy that a caller names.
    pub fn get(&self, wanted: &SandboxChoice) -> Result<Arc<Policy>, Error> {
        let input = (wanted.policy.clone(), wanted.set.clone());
        if let Some(known) = lock(&self.0).get(&input) {
            return Ok(Arc::clone(known));
        }
        let (policy, sources) = load(wanted)?;
        let policy = Arc::new(policy);
        if sources == Sources::Input {
            let mut known = lock(&self.0);
            if known.len() >= MAX {
                known.clear();
            }
            known.insert(input, Arc::clone(&policy));
        }
        Ok(policy)
    }
}

/// The sources of a policy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Sources {
    /// The caller's input and the built-in policies: the same input always yields the same policy.
    Input,
    /// Files too, which may change.
    FileSystem,
}

fn load(wanted: &SandboxChoice) -> Result<(Policy, Sources), Error> {
    let overrides: Result<Vec<Override>, _> = wanted.set.iter().map(|set| set.parse()).collect();
    let overrides = overrides?;
    let (name, directory, text, interpreter) = match &wanted.policy {
        PolicyChoice::Name {
            name,
            directory,
            interpreter,
        } => (name.clone(), directory.clone(), None, interpreter),
        PolicyChoice::Text {
            toml,
            directory,
            label,
            interpreter,
        } => {
            let label = label.as_deref().unwrap_or("policy");
            // No file or built-in policy has this name. Relative paths are relative to the directory.
            let name = format!("<{label}>");
            let text = (PathBuf::from(&name), toml.clone());
            (name, Some(directory.clone()), Some(text), interpreter)
        }
    };
    let source = CallerView {
        directory,
        text,
        sources: Cell::new(Sources::Input),
    };
    let named = interpreter
        .as_ref()
        .map(|path| format!("python.interpreter={path}"));
    let default = named.map(|named| named.parse()).transpose()?;
    let policy = Policy::load_over(default.as_ref(), &name, &overrides, &source)?;
    Ok((policy, source.sources.get()))
}

/// The policy files as the caller sees them: relative to its directory, and with one policy that exists only as text.
struct CallerView {
    directory: Option<PathBuf>,
    text: Option<(PathBuf, String)>,
    sources: Cell<Sources>,
}

impl PolicySource for CallerView {
    fn read(&self, path: &Path) -> io::Result<String> {
        if let Some((_, text)) = self.text.as_ref().filter(|(it, _)| it == path) {
            return Ok(text.clone());
        }
        self.sources.set(Sources::FileSystem);
        FileSystem.read(&self.current_dir()?.join(path))
    }

    fn is_file(&self, path: &Path) -> bool {
        self.text.as_ref().is_none_or(|(it, _)| it != path)
    }

    fn current_dir(&self) -> io::Result<PathBuf> {
        if let Some(directory) = &self.directory {
            return Ok(directory.clone());
        }
        self.sources.set(Sources::FileSystem);
        FileSystem.current_dir()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::collections::BTreeMap;
    use std::fs;

    use super::*;

    fn get(policies: &Policies, policy: PolicyChoice, set: &[&str]) -> Result<Arc<Policy>, Error> {
        policies.get(&SandboxChoice {
            policy,
            set: set.iter().map(|set| (*set).to_owned()).collect(),
            environ: BTreeMap::default(),
            import_paths: Vec::new(),
        })
    }

    fn named(name: &str, directory: &Path) -> PolicyChoice {
        PolicyChoice::Name {
            name: name.to_owned(),
            directory: Some(directory.to_owned()),
            interpreter: None,
        }
    }

    fn text(toml: &str, directory: &Path) -> PolicyChoice {
        PolicyChoice::Text {
            toml: toml.to_owned(),
            directory: directory.to_owned(),
            label: Some("Policy".into()),
            interpreter: None,
        }
    }

    #[test]
    fn policy_interpreter_overrides_the_callers() {
        let dir = tempfile::tempdir().unwrap();
        let policies = Policies::default();
        let interpreter = |mut policy: PolicyChoice, set: &[&str]| {
            let (PolicyChoice::Name { interpreter, .. } | PolicyChoice::Text { interpreter, .. }) =
                &mut policy;
            *interpreter = Some("/opt/venv/bin/python".into());
            let policy = get(&policies, policy, set).unwrap();
            policy.python.interpreter.value.clone()
        };
        for name in ["standard", "strict", "data-science"] {
            let policy = named(name, dir.path());
            assert_eq!(interpreter(policy, &[]), "/opt/venv/bin/python", "{name}");
        }
        let silent = text("extends = \"strict\"\n", dir.path());
        assert_eq!(interpreter(silent.clone(), &[]), "/opt/venv/bin/python");
        let set = ["python.interpreter=python3.9"];
        assert_eq!(interpreter(silent, &set), "python3.9");

        // A policy that names the default interpreter explicitly overrides the caller's.
        let naming = "[python]\ninterpreter = \"python3\"\n";
        assert_eq!(interpreter(text(naming, dir.path()), &[]), "python3");
        fs::write(dir.path().join("base.toml"), naming).unwrap();
        let inheriting = text("extends = \"./base.toml\"\n", dir.path());
        assert_eq!(interpreter(inheriting, &[]), "python3");
        // Without a caller's interpreter, the base policy decides.
        let standard = get(&policies, named("standard", dir.path()), &[]).unwrap();
        assert_eq!(standard.python.interpreter.value, "python3");
    }

    #[test]
    fn input_is_cached_and_files_are_reread() {
        let dir = tempfile::tempdir().unwrap();
        let policies = Policies::default();
        let own = dir.path().join("own.toml");
        let wall = |seconds| format!("[limits]\nwall = \"{seconds}s\"\n");
        fs::write(&own, wall(3)).unwrap();

        let built_in = get(&policies, named("standard", dir.path()), &[]);
        let other = get(
            &policies,
            named("standard", dir.path()),
            &["limits.wall=2s"],
        );
        assert_ne!(built_in.unwrap().sha256(), other.unwrap().sha256());
        let before = get(&policies, text(&wall(3), dir.path()), &[]).unwrap();
        assert_eq!(lock(&policies.0).len(), 3);
        let again = get(&policies, text(&wall(3), dir.path()), &[]).unwrap();
        assert_eq!(before, again);

        let first = get(&policies, named("own.toml", dir.path()), &[]).unwrap();
        fs::write(&own, wall(4)).unwrap();
        let second = get(&policies, named("own.toml", dir.path()), &[]).unwrap();
        assert_ne!(first.sha256(), second.sha256());
        // A policy text that extends a file depends on that file.
        let extends = "extends = \"./own.toml\"\n";
        let before = get(&policies, text(extends, dir.path()), &[]);
        fs::write(&own, wall(5)).unwrap();
        let after = get(&policies, text(extends, dir.path()), &[]);
        assert_ne!(before.unwrap().sha256(), after.unwrap().sha256());
        assert_eq!(lock(&policies.0).len(), 3);
    }

    #[test]
    fn error_in_input_names_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let policies = Policies::default();
        let error = |toml: &str, set: &[&str]| {
            let refused = get(&policies, text(toml, dir.path()), set);
            refused.expect_err("refused").to_string()
        };
        let wall = "[limits]\nwall = \"2x\"\n";
        assert!(error(wall, &[]).starts_with("limits.wall: \"2x\" has an unknown unit"));
        let extends = "extends = \"standrad\"\n";
        assert!(error(extends, &[]).starts_with("extends: no built-in policy and no file"));
        // An error in a file has a line number.
        fs::write(dir.path().join("own.toml"), wall).unwrap();
        let extends = "extends = \"./own.toml\"\n";
        assert!(error(extends, &[]).starts_with("./own.toml:2: limits.wall: "));
        assert!(error("", &["limits.wall=2x"]).starts_with("--set: limits.wall: "));
    }

    #[test]
    fn cache_is_bounded() {
        let policies = Policies::default();
        for seconds in 1..=2 * MAX {
            let set = format!("limits.wall={seconds}s");
            get(&policies, named("standard", Path::new("/")), &[&set]).unwrap();
            assert!(lock(&policies.0).len() <= MAX);
        }
    }
}
