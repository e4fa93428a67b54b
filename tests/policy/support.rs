//! Policy files in memory.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use sandfork::{Override, Policy, PolicyError, PolicySource};

/// Policy files by path; the current directory is `/home/user`.
pub struct Files(BTreeMap<PathBuf, String>);

impl Files {
    pub fn new<P: Into<PathBuf>, T: Into<String>>(files: impl IntoIterator<Item = (P, T)>) -> Self {
        let files = files.into_iter();
        Self(
            files
                .map(|(path, text)| (path.into(), text.into()))
                .collect(),
        )
    }
}

impl PolicySource for Files {
    fn read(&self, path: &Path) -> io::Result<String> {
        let found = self.0.get(path).cloned();
        // ENOENT, with the message of a real file system.
        found.ok_or_else(|| io::Error::from_raw_os_error(2))
    }

    fn current_dir(&self) -> io::Result<PathBuf> {
        Ok(PathBuf::from("/home/user"))
    }
}

/// Loads a policy from one file, `tenant.toml`.
pub fn load(text: &str) -> Result<Policy, PolicyError> {
    Policy::load("tenant.toml", &[], &Files::new([("tenant.toml", text)]))
}

/// Returns why the policy in `tenant.toml` is rejected.
pub fn refusal(text: &str) -> String {
    load(text).expect_err(text).to_string()
}

/// Loads the built-in `standard` with overrides.
pub fn set(overrides: &[&str]) -> Result<Policy, PolicyError> {
    let overrides = overrides.iter().map(|text| text.parse());
    let overrides = overrides.collect::<Result<Vec<Override>, _>>()?;
    Policy::load("standard", &overrides, &Files(BTreeMap::new()))
}
