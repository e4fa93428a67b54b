//! Where the packages of an environment come from: the caller's own configuration, and what requirements files add.

use super::create::Creation;
use super::error::EnvironmentError;
use super::index::Access;
use crate::host::{CallerEnvironment, Interpreter, PipConfig, pip_config};
use crate::policy::SourcesDigest;

/// Where packages come from.
pub struct Sources {
    /// What pip and uv are configured with.
    configured: PipConfig,
    /// All of it: what requirements files and the command say too.
    all: PipConfig,
}

impl Sources {
    /// The configuration of uv and of pip, the files' own settings, then the command's.
    pub fn of(
        creation: &Creation,
        environment: &CallerEnvironment,
        interpreter: &Interpreter,
    ) -> Self {
        let configured = pip_config(environment, &interpreter.executable);
        let mut all = configured.clone();
        creation.wanted.configure(&mut all);
        if let Some(index) = &creation.index {
            all.set("index-url", index);
        }
        Self { configured, all }
    }

    /// What names an environment of packages: a policy has no options of a command.
    pub fn name(&self) -> Option<SourcesDigest> {
        self.configured.sources()
    }

    /// What an environment has to be made from to be the one that is asked for. Where there are hashes, they decide.
    pub fn digest(&self, creation: &Creation) -> Option<SourcesDigest> {
        if creation.wanted.has_hashes() {
            return None;
        }
        self.all.sources()
    }

    /// How they are reached.
    ///
    /// # Errors
    /// If a setting cannot be followed.
    pub fn access(
        &self,
        creation: &Creation,
        environment: &CallerEnvironment,
    ) -> Result<Access, EnvironmentError> {
        let variable = |name: &str| environment.text(name);
        Ok(Access::new(&self.all, variable, &creation.allowed)?)
    }
}
