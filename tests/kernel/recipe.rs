//! Builds the policy of a test: a built-in policy with some keys set.

use std::path::Path;

use sandfork::{FileSystem, Override, Policy};

/// The description from which a sandbox is built.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Recipe {
    base: &'static str,
    python: Option<String>,
    sets: Vec<String>,
}

/// Returns the default policy.
pub fn standard() -> Recipe {
    Recipe {
        base: "standard",
        python: None,
        sets: Vec::new(),
    }
}

/// Returns the policy for pure computation.
pub fn strict() -> Recipe {
    Recipe {
        base: "strict",
        ..standard()
    }
}

/// Returns the policy that preloads numpy and pandas.
pub fn data_science() -> Recipe {
    Recipe {
        base: "data-science",
        ..standard()
    }
}

impl Recipe {
    /// Sets a key, like `--set`.
    pub fn set(mut self, assignment: impl Into<String>) -> Self {
        self.sets.push(assignment.into());
        self
    }

    /// Raises the time limits to what an emulated CPU may need.
    pub fn patient(self) -> Self {
        self.set("limits.wall=5m").set("limits.cpu=5m")
    }

    /// Uses this interpreter or virtual environment instead of the tests' default.
    pub fn python(mut self, path: impl AsRef<Path>) -> Self {
        self.python = Some(path.as_ref().display().to_string());
        self
    }

    /// Uses this interpreter unless one is set.
    pub fn python_unless_named(self, path: &Path) -> Self {
        if self.python.is_some() {
            self
        } else {
            self.python(path)
        }
    }

    /// Loads the policy.
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
