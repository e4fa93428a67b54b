//! What `sandfork doctor` says: each layer, whether it can be had here, why, and what mends it.

use std::fmt;

use serde::Serialize;

use super::assess::{Assessment, assess};
use super::layer::LayerState;
use super::obstacle::best_level;
use crate::host::{Interpreter, InterpreterError, Machine};
use crate::policy::Level;

/// A machine and an interpreter, judged.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Diagnosis {
    /// The kernel's release.
    pub kernel: String,
    /// The effective uid that was asked about.
    pub uid: u32,
    /// The best level that can be had; `None` where nothing may run at all.
    pub level: Option<Level>,
    /// Every layer.
    pub layers: Vec<Assessment>,
    /// The interpreter.
    pub interpreter: InterpreterDiagnosis,
}

/// Whether the interpreter will do.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum InterpreterDiagnosis {
    /// It will.
    Usable {
        /// What is executed.
        executable: String,
        /// Its version.
        version: String,
    },
    /// It will not.
    Unusable {
        /// Why, and what to do.
        error: String,
    },
}

/// Judges a machine, and what came of asking an interpreter.
pub fn diagnose(
    machine: &Machine,
    interpreter: Result<&Interpreter, &InterpreterError>,
) -> Diagnosis {
    Diagnosis {
        kernel: machine.kernel.release.clone(),
        uid: machine.user.uid,
        level: best_level(machine),
        layers: assess(machine),
        interpreter: match interpreter {
            Ok(found) => {
                let (major, minor, patch) = found.version;
                InterpreterDiagnosis::Usable {
                    executable: found.executable.display().to_string(),
                    version: format!("{major}.{minor}.{patch}"),
                }
            }
            Err(error) => InterpreterDiagnosis::Unusable {
                error: error.to_string(),
            },
        },
    }
}

impl Diagnosis {
    /// Whether sandboxes of some level can be made with this interpreter.
    pub fn is_usable(&self) -> bool {
        self.level.is_some() && matches!(self.interpreter, InterpreterDiagnosis::Usable { .. })
    }
}

impl LayerState {
    /// The answer to "can it be had?".
    fn answer(self) -> &'static str {
        match self {
            Self::Enforced => "yes",
            Self::Degraded => "degraded",
            Self::Absent => "no",
        }
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Linux {}, uid {}", self.kernel, self.uid)?;
        for layer in &self.layers {
            writeln!(
                f,
                "  {:<14}{:<10}{}",
                layer.layer,
                layer.state.answer(),
                layer.why
            )?;
            if let Some(remedy) = &layer.remedy {
                writeln!(f, "  {:<24}remedy: {remedy}", "")?;
            }
        }
        match &self.interpreter {
            InterpreterDiagnosis::Usable {
                executable,
                version,
            } => {
                writeln!(
                    f,
                    "  {:<14}{:<10}{executable}, CPython {version}",
                    "interpreter", "yes"
                )?;
            }
            InterpreterDiagnosis::Unusable { error } => {
                writeln!(f, "  {:<14}{:<10}{error}", "interpreter", "no")?;
            }
        }
        match self.level {
            Some(level) => writeln!(f, "best level: {level}"),
            None => writeln!(f, "best level: none, nothing will be run here"),
        }
    }
}
