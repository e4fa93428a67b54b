//! The report of `sandfork doctor`: whether each layer is available on this host, the reason and the remedy.

use std::fmt;

use serde::Serialize;

use super::assess::{Assessment, assess};
use super::layer_state::LayerState;
use super::obstacle::best_level;
use super::preload::{PreloadPlan, loaded};
use crate::error::Error;
use crate::host::{Interpreter, Machine};
use crate::policy::Level;

/// The assessment of a machine and an interpreter.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Diagnosis {
    /// The kernel release.
    pub kernel: String,
    /// The effective uid of the process that made the assessment.
    pub uid: u32,
    /// The best available level. `None` if no sandbox can run.
    pub level: Option<Level>,
    /// Every layer.
    pub layers: Vec<Assessment>,
    /// The interpreter.
    pub interpreter: Usability<InterpreterFound>,
    /// The cache directory, through which earlier starts speed up later ones. `None` if it was not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<Usability<DirectoryFound>>,
    /// The directory of package environments. `None` if it was not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environments: Option<Usability<DirectoryFound>>,
    /// Whether live sessions can be copied at the best level. `None` if it was not tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<Usability<()>>,
    /// Whether a zygote's forks eagerly copy the pages that workers write to. `None` if it was not tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forks: Option<Usability<CopiedPages>>,
    /// The preloads of the built-in policies. Empty if they were not tried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preloads: Vec<PreloadDiagnosis>,
}

/// Whether a feature can be used.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Usability<T> {
    /// The feature can be used.
    Usable(T),
    /// The feature cannot be used.
    Unusable {
        /// The reason and the remedy.
        error: String,
    },
}

impl<T> Usability<T> {
    /// Converts the result of a check.
    pub fn of<E: fmt::Display>(found: Result<T, E>) -> Self {
        match found {
            Ok(found) => Self::Usable(found),
            Err(error) => Self::Unusable {
                error: error.to_string(),
            },
        }
    }
}

/// A directory with data for later runs.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct DirectoryFound {
    /// The directory.
    pub directory: String,
}

/// The pages that each fork copies eagerly.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct CopiedPages {
    /// The number of pages.
    pub pages: usize,
}

/// A suitable interpreter.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct InterpreterFound {
    /// The path to execute.
    pub executable: String,
    /// The version, such as `3.11.2`.
    pub version: String,
}

/// The result of preloading the modules of a policy.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct PreloadDiagnosis {
    /// The name of the policy.
    pub policy: String,
    /// The modules, if a zygote could be started.
    pub modules: Vec<PreloadPlan>,
    /// The reason why no zygote could be started, with the remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Diagnoses a machine and the result of probing an interpreter.
pub fn diagnose(machine: &Machine, interpreter: Result<&Interpreter, &Error>) -> Diagnosis {
    Diagnosis {
        kernel: machine.kernel.release.clone(),
        uid: machine.user.uid,
        level: best_level(machine),
        layers: assess(machine),
        interpreter: Usability::of(interpreter.map(|found| {
            let (major, minor, patch) = found.version;
            InterpreterFound {
                executable: found.executable.display().to_string(),
                version: format!("{major}.{minor}.{patch}"),
            }
        })),
        cache: None,
        environments: None,
        snapshots: None,
        forks: None,
        preloads: Vec::new(),
    }
}

impl Diagnosis {
    /// Returns whether this machine and interpreter can run sandboxes at any level.
    pub fn is_usable(&self) -> bool {
        self.level.is_some() && matches!(self.interpreter, Usability::Usable(_))
    }
}

impl LayerState {
    /// Returns the word for the layer's availability in the report.
    fn answer(self) -> &'static str {
        match self {
            Self::Enforced => "yes",
            Self::Degraded => "degraded",
            Self::Absent => "no",
        }
    }
}

/// Writes a line of the report: a name, its availability, and details.
fn row(
    f: &mut fmt::Formatter<'_>,
    name: impl fmt::Display,
    answer: &str,
    what: impl fmt::Display,
) -> fmt::Result {
    writeln!(f, "  {name:<14}{answer:<10}{what}")
}

impl<T> Usability<T> {
    fn row(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        describe: fn(&T) -> String,
    ) -> fmt::Result {
        match self {
            Self::Usable(found) => row(f, name, "yes", describe(found)),
            Self::Unusable { error } => row(f, name, "no", error),
        }
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Linux {}, uid {}", self.kernel, self.uid)?;
        for layer in &self.layers {
            row(f, layer.layer, layer.state.answer(), &layer.why)?;
            if let Some(remedy) = &layer.remedy {
                writeln!(f, "  {:<24}remedy: {remedy}", "")?;
            }
        }
        self.interpreter.row(f, "interpreter", |found| {
            format!("{}, CPython {}", found.executable, found.version)
        })?;
        if let Some(cache) = &self.cache {
            cache.row(f, "cache", |found| found.directory.clone())?;
        }
        if let Some(environments) = &self.environments {
            environments.row(f, "environments", |found| found.directory.clone())?;
        }
        if let Some(snapshots) = &self.snapshots {
            let what = |(): &()| "live sessions can be copied, rolled back and paused".to_owned();
            snapshots.row(f, "snapshots", what)?;
        }
        if let Some(forks) = &self.forks {
            forks.row(f, "forks", |found| {
                format!(
                    "each copies at once the {} pages that workers write to",
                    found.pages
                )
            })?;
        }
        for tried in &self.preloads {
            let answer = if tried.error.is_none() { "yes" } else { "no" };
            let loaded = || format!("preloads {}", loaded(&tried.modules));
            let what = tried.error.clone().unwrap_or_else(loaded);
            row(f, &tried.policy, answer, what)?;
            for note in tried.modules.iter().filter_map(PreloadPlan::note) {
                writeln!(f, "  {:<24}{note}", "")?;
            }
        }
        match self.level {
            Some(level) => writeln!(f, "best level: {level}"),
            None => writeln!(f, "best level: none, nothing will be run here"),
        }
    }
}
