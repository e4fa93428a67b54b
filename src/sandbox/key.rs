//! Computes a digest of everything from which a sandbox is made.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::interpreter::{ChosenInterpreter, is_script};
use crate::error::Error;
use crate::host::{CallerEnvironment, resolve_interpreter};
use crate::plan::needs;
use crate::policy::Policy;
use sandfork_jail::control::Lifetime;

/// Identifies the inputs from which a sandbox is made. Equal keys mean that one sandbox can serve both callers.
///
/// The key covers the policy with its name, the values of the variables that the policy passes on, the interpreter that
/// the caller's environment selects, and the current file at each path that the policy names. It is a hash, so it
/// reveals none of them.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SandboxKey([u8; 32]);

impl fmt::Debug for SandboxKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, ..] = self.0;
        write!(f, "SandboxKey({first:02x}{second:02x}...)")
    }
}

impl SandboxKey {
    /// Computes the key of a sandbox under this policy. Takes some tens of microseconds and starts no process, unless
    /// the policy has packages and its interpreter is a launcher script.
    ///
    /// # Errors
    ///
    /// If the interpreter cannot be found.
    pub(crate) fn of(
        policy: &Policy,
        lifetime: Lifetime,
        environment: &CallerEnvironment,
    ) -> Result<Self, Error> {
        let python = &policy.python;
        // An environment of packages is looked up by its name or its requirements, which is as fast unless the
        // interpreter is a launcher script.
        let interpreter = if python.environment.is_some() || !python.packages.is_empty() {
            ChosenInterpreter::of(policy, environment)?.executable
        } else {
            resolve_interpreter(&python.interpreter.value, environment)?
        };
        let needs = needs(policy);

        let mut parts = Parts(Sha256::new());
        parts.add(policy.name());
        parts.add(policy.sha256());
        parts.add(match lifetime {
            Lifetime::ManyRuns => "many",
            Lifetime::OneRun => "one",
        });
        for name in &needs.variables {
            parts.add_optional(environment.text(name));
        }
        parts.add(&interpreter);
        parts.add_identity(&interpreter);
        if is_script(&interpreter) {
            // A launcher chooses by these variables, and by its own files.
            for (name, value) in environment.selecting_variables() {
                parts.add(name);
                parts.add(value);
            }
        }
        // A recreated environment at the same path is a different environment.
        parts.add_identity(interpreter.parent().unwrap_or(Path::new("/")));
        for path in &needs.paths {
            parts.add_identity(path);
        }
        // The plan has resolved where these files are.
        for file in needs.kept.iter().flat_map(|kept| &kept.policies) {
            parts.add(file);
        }
        Ok(Self(parts.0.finalize().into()))
    }
}

/// Hashes the parts of a key, each prefixed with its length, so that adjacent parts cannot be confused.
struct Parts(Sha256);

impl Parts {
    fn add(&mut self, part: impl AsRef<OsStr>) {
        let bytes = part.as_ref().as_bytes();
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn add_optional(&mut self, part: Option<&str>) {
        self.0.update([u8::from(part.is_some())]);
        self.add(part.unwrap_or_default());
    }

    /// Adds the identity of the file at a path, which changes when the file is rewritten.
    fn add_identity(&mut self, path: &Path) {
        let found = fs::metadata(path).ok();
        self.0.update([u8::from(found.is_some())]);
        if let Some(found) = found {
            self.0.update(found.dev().to_le_bytes());
            self.0.update(found.ino().to_le_bytes());
            if found.is_file() {
                self.0.update(found.mtime().to_le_bytes());
                self.0.update(found.mtime_nsec().to_le_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::path::PathBuf;

    use super::*;
    use crate::host::CallerEnvironment;
    use crate::policy::{BuiltInsOnly, Policy};

    /// A directory with a `python3` in it, for use as `PATH`.
    struct Programs(tempfile::TempDir);

    impl Programs {
        fn new(program: &str) -> Self {
            use std::os::unix::fs::PermissionsExt;
            let dir = tempfile::tempdir().unwrap();
            let python = dir.path().join("python3");
            fs::write(&python, program).unwrap();
            fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
            Self(dir)
        }

        fn python(&self) -> PathBuf {
            self.0.path().join("python3")
        }

        fn environment(&self) -> CallerEnvironment {
            let path = ("PATH", Some(self.0.path()));
            CallerEnvironment::default().changed_by([path])
        }
    }

    fn key(sets: &[&str], environment: &CallerEnvironment) -> SandboxKey {
        let sets: Vec<_> = sets.iter().map(|set| set.parse().unwrap()).collect();
        let policy = Policy::load("standard", &sets, &BuiltInsOnly).unwrap();
        SandboxKey::of(&policy, Lifetime::ManyRuns, environment).unwrap()
    }

    #[test]
    fn irrelevant_variables_do_not_change_the_key() {
        let programs = Programs::new("binary");
        let environment = programs.environment();
        let other = environment.clone().changed_by([("OTHER", Some("value"))]);
        assert_eq!(key(&[], &environment), key(&[], &other));
        let home = environment.clone().changed_by([("HOME", Some("/root"))]);
        assert_eq!(key(&[], &environment), key(&[], &home));
    }

    #[test]
    fn every_input_changes_the_key() {
        let programs = Programs::new("binary");
        let environment = programs.environment();
        let plain = key(&[], &environment);
        assert_ne!(plain, key(&["limits.wall=2s"], &environment));
        assert_ne!(plain, key(&[], &Programs::new("binary").environment()));

        let pass: &[&str] = &["env.pass=TOKEN"];
        let with = |value| environment.clone().changed_by([("TOKEN", value)]);
        let keys = [None, Some(""), Some("a"), Some("b")].map(|value| key(pass, &with(value)));
        for (number, one) in keys.iter().enumerate() {
            assert!(!keys[number + 1..].contains(one), "{number}");
        }

        let shown = tempfile::tempdir().unwrap();
        let read = format!("filesystem.read={}", shown.path().join("data").display());
        let absent = key(&[&read], &environment);
        fs::create_dir(shown.path().join("data")).unwrap();
        assert_ne!(absent, key(&[&read], &environment));

        fs::write(programs.python(), "another").unwrap();
        assert_ne!(plain, key(&[], &environment));
        let of = |lifetime| SandboxKey::of(&Policy::default(), lifetime, &environment).unwrap();
        assert_ne!(of(Lifetime::OneRun), of(Lifetime::ManyRuns));
    }

    #[test]
    fn launcher_variables_change_the_key() {
        let programs = Programs::new("#!/bin/sh\n");
        let environment = programs.environment();
        let version = |version| {
            let difference = ("PYENV_VERSION", Some(version));
            environment.clone().changed_by([difference])
        };
        assert_ne!(key(&[], &version("3.11")), key(&[], &version("3.12")));
    }

    #[test]
    fn missing_interpreter_is_an_error() {
        let nowhere = CallerEnvironment::default();
        assert!(SandboxKey::of(&Policy::default(), Lifetime::ManyRuns, &nowhere).is_err());
    }
}
