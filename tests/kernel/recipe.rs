//! A policy for a test: a built-in one, with some keys set.

use std::path::Path;

use sandfork::{FileSystem, Override, Policy};

/// What a sandbox is made by.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Recipe {
    base: &'static str,
    python: Option<String>,
    sets: Vec<String>,
}

/// The default policy.
pub fn standard() -> Recipe {
    Recipe {
        base: "standard",
        python: None,
        sets: Vec::new(),
    }
}

/// The policy for computing only.
pub fn strict() -> Recipe {
    Recipe {
        base: "strict",
        ..standard()
    }
}

/// The policy with numpy and pandas preloaded.
pub fn data_science() -> Recipe {
    Recipe {
        base: "data-science",
        ..standard()
    }
}

impl Recipe {
    /// Sets a key, as `--set` does.
    pub fn set(mut self, assignment: impl Into<String>) -> Self {
        self.sets.push(assignment.into());
        self
    }

    /// With as much time as an emulated processor could need.
    pub fn patient(self) -> Self {
        self.set("limits.wall=5m").set("limits.cpu=5m")
    }

    /// With this interpreter or virtual environment instead of the tests' usual one.
    pub fn python(mut self, path: impl AsRef<Path>) -> Self {
        self.python = Some(path.as_ref().display().to_string());
        self
    }

    /// With this interpreter unless one was named.
    pub fn python_unless_named(self, path: &Path) -> Self {
        if self.python.is_some() {
            self
        } else {
            self.python(path)
        }
    }

    /// The policy.
    pub fn policy(&self) -> Policy {
        let python = self
            .python
            .iter()
            .map(|path| format!("python.interpreter={path}"));
        let overrides: Result<Vec<Override>, _> = python
            .chain(self.sets.iter().cloned())
            .map(|set| set.parse())
            .collect();
        let loaded = overrides.and_then(|sets| Policy::load(self.base, &sets, &FileSystem));
        loaded.unwrap_or_else(|error| panic!("{error}"))
    }
}
