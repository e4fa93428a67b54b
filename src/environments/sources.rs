//! Combines the sources of an environment's packages: the caller's own configuration, and what requirements files add.

use std::path::PathBuf;

use super::create::Creation;
use super::error::EnvironmentError;
use super::index::Access;
use crate::host::{CallerEnvironment, Interpreter, PipConfig, pip_config};
use crate::policy::SourcesDigest;

/// The sources of packages.
pub struct Sources {
    /// The configuration of pip and uv.
    configured: PipConfig,
    /// The caller's settings: the configuration, and the options of the command.
    own: PipConfig,
    /// All settings, including those of requirements files.
    all: PipConfig,
}

impl Sources {
    /// Combines, in ascending precedence, the configuration of uv and pip, the files' settings, and the command's
    /// options.
    pub fn of(
        creation: &Creation,
        environment: &CallerEnvironment,
        interpreter: &Interpreter,
    ) -> Self {
        let configured = pip_config(environment, &interpreter.executable);
        let (mut own, mut all) = (configured.clone(), configured.clone());
        creation.wanted.configure(&mut all);
        if let Some(index) = &creation.index {
            own.set("index-url", index);
            all.set("index-url", index);
        }
        Self {
            configured,
            own,
            all,
        }
    }

    /// Returns the digest that is part of a derived name. It covers the configuration only, because a policy has no
    /// command options.
    pub fn name(&self) -> Option<SourcesDigest> {
        self.configured.sources()
    }

    /// Returns the digest that an existing environment must match. If there are hashes, they alone decide.
    pub fn digest(&self, creation: &Creation) -> Option<SourcesDigest> {
        if creation.wanted.has_hashes() {
            return None;
        }
        let mut all = self.all.clone();
        let configured = self.own.values("find-links").iter().map(PathBuf::from);
        let configured: Vec<PathBuf> = configured.collect();
        let links = creation.wanted.links.iter();
        for links in links.filter(|links| !links.is_among(&configured)) {
            all.push("find-links", &links.directory.to_string_lossy());
        }
        all.sources()
    }

    /// Returns how a sandbox reaches the sources.
    ///
    /// # Errors
    /// If a setting is invalid or unsupported.
    pub fn access(
        &self,
        creation: &Creation,
        environment: &CallerEnvironment,
    ) -> Result<Access, EnvironmentError> {
        let variable = |name: &str| environment.text(name);
        let access = Access::new(&self.all, &self.own, variable, &creation.allowed);
        let mut access = access.map_err(EnvironmentError::Request)?;
        for links in &creation.wanted.links {
            // A directory that the caller's own configuration names is shown as a whole.
            if !links.is_among(&access.directories) {
                let files = links.distributions(creation.builds)?;
                access.add_links(&links.directory, files);
            }
        }
        Ok(access)
    }
}
