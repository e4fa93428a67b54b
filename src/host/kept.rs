//! Finds the files that later starts run or trust, outside any sandbox or before any guest, and the paths by which they
//! are found. No guest may be able to replace them.

use std::env;
use std::path::{self, Path, PathBuf};

use super::cache_directory::cache_directory;
use super::route::{Links, Route};
use super::{CallerEnvironment, EnvironmentStore, Interpreter, SystemPath, interpreter};
use crate::outcome::word_enum;

/// A file or directory that later starts run or trust.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Kept {
    /// Its kind.
    pub what: KeptKind,
    /// The directory entries through which it is found.
    pub route: Route,
}

word_enum! {
    /// The kinds, as messages name them.
    pub enum KeptKind {
        /// A file of the policy.
        Policy = "the policy",
        /// A virtual environment.
        VirtualEnvironment = "the virtual environment",
        /// The interpreter.
        Interpreter = "the interpreter",
        /// Modules and libraries that the interpreter loads.
        Libraries = "the interpreter's libraries",
        /// Libraries that all programs load.
        SystemLibraries = "the system's libraries",
        /// A program's name in a directory of `PATH`.
        OnPath = "programs on `PATH`",
        /// The directory of cached files for the next start, and of the key for snapshots.
        Cache = "Sandfork's cache",
        /// The directory of package environments.
        Environments = "the environments of packages",
        /// The program that runs Sandfork.
        Program = "the program that runs Sandfork",
        /// The host's trusted certificates.
        Certificates = "the trusted certificates",
        /// A file that holds a secret of the policy.
        Secret = "a secret",
    }
}

/// The policy's own files that later starts run or trust.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeptNeeds {
    /// The files from which the policy was read.
    pub policies: Vec<PathBuf>,
    /// The files of the policy's secrets.
    pub secrets: Vec<PathBuf>,
    /// The policy's interpreter, if it is one of the host: a name or a path.
    pub interpreter: Option<String>,
}

/// Collects what later starts run or trust.
#[derive(Clone, Debug, Default)]
pub(super) struct Keeper {
    links: Links,
    kept: Vec<Kept>,
}

impl Keeper {
    /// Collects everything that does not depend on the interpreter's facts.
    pub(super) fn new(
        needs: &KeptNeeds,
        environment: &CallerEnvironment,
        system: &[SystemPath],
        certificates: Option<&Path>,
    ) -> Self {
        let mut keeper = Self::default();
        keeper.add(KeptKind::Policy, &needs.policies);
        keeper.add(KeptKind::Secret, &needs.secrets);
        keeper.add(KeptKind::Certificates, certificates);
        keeper.add(KeptKind::Cache, cache_directory());
        let environments = EnvironmentStore::of(environment).ok();
        let environments = environments.as_ref().map(EnvironmentStore::directory);
        keeper.add(KeptKind::Environments, environments);
        keeper.add(KeptKind::Program, env::current_exe().ok());
        let on_path = |name: &str| -> Vec<PathBuf> {
            interpreter::places(name, environment.path()).collect()
        };
        if let Some(named) = &needs.interpreter {
            if named.contains('/') {
                keeper.add(KeptKind::Interpreter, [named]);
            } else {
                keeper.add(KeptKind::OnPath, on_path(named));
            }
        }
        // Creating package environments executes uv.
        let resolver = environment.text("SANDFORK_UV");
        match resolver {
            Some(named) => keeper.add(KeptKind::OnPath, [named]),
            None => keeper.add(KeptKind::OnPath, on_path("uv")),
        }
        let libraries = system.iter().map(|found| &found.path);
        let libraries = libraries.filter(|path| is_of_programs(path));
        keeper.add(KeptKind::SystemLibraries, libraries);
        keeper
    }

    fn add(&mut self, what: KeptKind, paths: impl IntoIterator<Item = impl AsRef<Path>>) {
        // Only an empty path cannot be made absolute.
        for path in paths.into_iter().flat_map(path::absolute) {
            let route = self.links.route(&path);
            self.kept.push(Kept { what, route });
        }
    }

    /// Adds what belongs to the interpreter, and returns everything.
    pub(super) fn with(mut self, interpreter: &Interpreter) -> Vec<Kept> {
        self.add(KeptKind::VirtualEnvironment, &interpreter.venv);
        let programs = [&interpreter.executable, &interpreter.binary];
        self.add(KeptKind::Interpreter, programs);
        self.add(KeptKind::Libraries, [&interpreter.stdlib]);
        self.add(KeptKind::Libraries, &interpreter.libraries);
        // Guests see the headers at their path too. The other directories of programs contain the binary, which is
        // added above.
        let shown = interpreter.programs.iter();
        let shown = shown.filter(|directory| !interpreter.binary.starts_with(directory));
        self.add(KeptKind::Libraries, shown);
        self.kept
    }
}

/// Returns whether programs load code from a system path: the loader its libraries, interpreters their packages
/// (`dist-packages` of Debian), and launchers their shell. `/usr` as a whole has data too.
fn is_of_programs(path: &Path) -> bool {
    path != Path::new("/usr") && !path.starts_with("/usr/share") && !SystemPath::is_of_java(path)
}
