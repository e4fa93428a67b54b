//! Where the packages of an environment come from: the caller's own configuration, and what requirements files add.

use std::path::PathBuf;

use super::create::Creation;
use super::error::EnvironmentError;
use super::index::Access;
use crate::host::{CallerEnvironment, Interpreter, PipConfig, pip_config};
use crate::policy::SourcesDigest;

/// Where packages come from.
pub struct Sources {
    /// What pip and uv are configured with.
    configured: PipConfig,
    /// What the caller says: the configuration, and the options of the command.
    own: PipConfig,
    /// All of it: what requirements files say too.
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

    /// What names an environment of packages: a policy has no options of a command.
    pub fn name(&self) -> Option<SourcesDigest> {
        self.configured.sources()
    }

    /// What an environment has to be made from to be the one that is asked for. Where there are hashes, they decide.
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
        let access = Access::new(&self.all, &self.own, variable, &creation.allowed);
        let mut access = access.map_err(EnvironmentError::Request)?;
        for links in &creation.wanted.links {
            // Where the caller's own configuration has it, all of it is shown.
            if !links.is_among(&access.directories) {
                let files = links.distributions(creation.builds)?;
                access.add_links(&links.directory, files);
            }
        }
        Ok(access)
    }
}
