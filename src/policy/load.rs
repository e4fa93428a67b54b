//! Loads a policy: reads its chain of files, applies the overrides and checks the result.

use super::assemble::assemble;
use super::builtin::{self, STANDARD};
use super::chain;
use super::effective::Policy;
use super::error::{PolicyError, Refused};
use super::overrides::Override;
use super::render;
use super::source::{BuiltInsOnly, PolicySource};

impl Policy {
    /// Loads a built-in policy or a policy file, and applies the overrides in order.
    ///
    /// A built-in name takes precedence over a file of that name, which is written `./name`.
    ///
    /// ```
    /// use sandfork::{FileSystem, Policy};
    ///
    /// let overrides = ["limits.wall=2s".parse()?];
    /// let policy = Policy::load("standard", &overrides, &FileSystem)?;
    /// assert!(policy.to_toml().contains("wall = \"2s\""));
    /// # Ok::<(), sandfork::PolicyError>(())
    /// ```
    ///
    /// # Errors
    /// If a file or an override is invalid. Returns the first error, with its file, line and remedy; `sandfork policy
    /// check` prints all errors. Whether the host can enforce the policy is checked by the plan.
    pub fn load(
        name_or_path: &str,
        overrides: &[Override],
        source: &dyn PolicySource,
    ) -> Result<Self, PolicyError> {
        Self::load_over(None, name_or_path, overrides, source)
    }

    /// Like [`Policy::load`], but `default` replaces the value that `standard` has for one key. Every policy
    /// that sets the key overrides `default`.
    pub(crate) fn load_over(
        default: Option<&Override>,
        name_or_path: &str,
        overrides: &[Override],
        source: &dyn PolicySource,
    ) -> Result<Self, PolicyError> {
        Self::check(default, name_or_path, overrides, source).map_err(Refused::first)
    }

    /// Like [`Policy::load_over`], but returns all errors of a rejected policy.
    pub(crate) fn check(
        default: Option<&Override>,
        name_or_path: &str,
        overrides: &[Override],
        source: &dyn PolicySource,
    ) -> Result<Self, Refused> {
        // Without a current directory, absolute paths still work.
        let current_dir = source.current_dir().ok();
        let current_dir = current_dir.as_deref();
        let (mut layers, mut unread) = chain::layers(name_or_path, current_dir, source);
        if let Some(default) = default {
            // The base is the first layer of every chain.
            layers.insert(1, default.layer(current_dir)?);
        }
        for set in overrides {
            match set.layer(current_dir) {
                Ok(layer) => layers.push(layer),
                Err(errors) => unread.extend(errors),
            }
        }
        assemble(name_or_path, layers, unread)
    }

    /// Returns the built-in policy of that name.
    #[expect(
        clippy::missing_panics_doc,
        reason = "a built-in policy that does not load fails the tests"
    )]
    pub fn builtin(name: &str) -> Option<Self> {
        let builtin = builtin::find(name)?;
        let policy = Self::load(builtin.name, &[], &BuiltInsOnly);
        Some(policy.expect("the built-in policies are valid"))
    }

    /// Renders the policy as a self-contained file with every key.
    pub fn to_toml(&self) -> String {
        render::to_toml(&self.values)
    }
}

impl Default for Policy {
    /// Returns the built-in policy `standard`.
    fn default() -> Self {
        Self::builtin(STANDARD.name).expect("it is built in")
    }
}
