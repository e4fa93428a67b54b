//! What later starts run, or believe, outside any sandbox or before any guest, and how they find it. No guest may be able
//! to exchange it.

use std::env;
use std::path::{self, Path, PathBuf};

use super::cache_directory::cache_directory;
use super::route::{Links, Route};
use super::{CallerEnvironment, EnvironmentStore, Interpreter, SystemPath, interpreter};
use crate::outcome::word_enum;

/// Something that later starts run or believe.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Kept {
    /// What it is.
    pub what: KeptKind,
    /// How it is found.
    pub route: Route,
}

word_enum! {
    /// What later starts run or believe, as a sentence names it.
    pub enum KeptKind {
        /// A file of the policy.
        Policy = "the policy",
        /// A virtual environment.
        VirtualEnvironment = "the virtual environment",
        /// The interpreter.
        Interpreter = "the interpreter",
        /// What the interpreter imports and loads.
        Libraries = "the interpreter's libraries",
        /// What all programs load.
        SystemLibraries = "the system's libraries",
        /// A program's name in a directory of `PATH`.
        OnPath = "programs on `PATH`",
        /// The directory of the files for the next start, and of the key of snapshots.
        Cache = "Sandfork's cache",
        /// The directory of environments of packages.
        Environments = "the environments of packages",
        /// This program.
        Program = "the program that runs Sandfork",
        /// The certificates that the host trusts.
        Certificates = "the trusted certificates",
        /// A file with a secret of the policy.
        Secret = "a secret",
    }
}

/// What a policy adds to what later starts run or believe.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeptNeeds {
    /// The files that it was read from.
    pub policies: Vec<PathBuf>,
    /// The files of its secrets.
    pub secrets: Vec<PathBuf>,
    /// Its interpreter, if it is the host's: a name or a path.
    pub interpreter: Option<String>,
}

/// Finds what later starts run or believe.
#[derive(Clone, Debug, Default)]
pub(super) struct Keeper {
    links: Links,
    kept: Vec<Kept>,
}

impl Keeper {
    /// With all that does not depend on what the interpreter reports of itself.
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
        // What makes environments of packages executes it.
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
        // Only an empty path has no absolute one.
        for path in paths.into_iter().flat_map(path::absolute) {
            let route = self.links.route(&path);
            self.kept.push(Kept { what, route });
        }
    }

    /// All of them, with what belongs to the interpreter.
    pub(super) fn with(mut self, interpreter: &Interpreter) -> Vec<Kept> {
        self.add(KeptKind::VirtualEnvironment, &interpreter.venv);
        let programs = [&interpreter.executable, &interpreter.binary];
        self.add(KeptKind::Interpreter, programs);
        self.add(KeptKind::Libraries, [&interpreter.stdlib]);
        self.add(KeptKind::Libraries, &interpreter.libraries);
        // Headers are shown by their path too. The other directories are on the binary's way.
        let shown = interpreter.programs.iter();
        let shown = shown.filter(|directory| !interpreter.binary.starts_with(directory));
        self.add(KeptKind::Libraries, shown);
        self.kept
    }
}

/// What the loader takes libraries from, interpreters take packages from (`dist-packages` of Debian), and launchers take a
/// shell from. `/usr` has data besides.
fn is_of_programs(path: &Path) -> bool {
    path != Path::new("/usr") && !path.starts_with("/usr/share") && !SystemPath::is_of_java(path)
}
