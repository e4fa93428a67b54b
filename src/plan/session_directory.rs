//! Where a session's own files are when there are no mounts.

use std::path::Path;

use serde::Serialize;

use super::Plan;
use super::places::WORK;
use crate::jail::program::ZygoteJail;
use crate::policy::Level;

/// Where a session's own files are.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionFiles {
    /// In private tmpfs mounts with quotas.
    Private,
    /// In one directory of the host for each session, which the supervisor makes and removes, and
    /// without quotas but the size of each file. In the plan `/work` stands for it.
    HostDirectory,
}

impl SessionFiles {
    pub(super) fn at(level: Level) -> Self {
        match level {
            Level::Landlock => Self::HostDirectory,
            Level::Standard | Level::Full => Self::Private,
        }
    }
}

impl Plan {
    /// The jail of a session whose files are in `directory`, at a level that has no mounts.
    ///
    /// With [`SessionFiles::Private`] there is nothing to replace, and the directory is not used.
    pub fn jail_with_session_in(&self, directory: &Path) -> ZygoteJail {
        let mut jail = self.jail.clone();
        if self.session_files == SessionFiles::Private {
            return jail;
        }
        let stands_for_it = |path: &Path| path == Path::new(WORK);
        for rule in jail.landlock.iter_mut().flat_map(|rules| &mut rules.paths) {
            if stands_for_it(&rule.path) {
                directory.clone_into(&mut rule.path);
            }
        }
        let shown = directory.display().to_string();
        for (name, value) in &mut jail.env {
            if matches!(name.as_str(), "HOME" | "TMPDIR") && stands_for_it(Path::new(value)) {
                value.clone_from(&shown);
            }
        }
        directory.clone_into(&mut jail.worker.cwd);
        jail
    }
}
