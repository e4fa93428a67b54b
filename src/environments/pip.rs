//! Resolves and builds with pip.

use serde::Deserialize;

use super::create::Layer;
use super::error::EnvironmentError;
use super::explain::{cause, plain, refused_hosts, with_last_lines};
use super::jail::{Builds, InstallJail, literal};
use super::lock::LockedWheel;
use super::requirements::Wanted;
use crate::supervisor::Request;
use crate::supervisor::files::WorkDir;

/// The program that finds wheels, and builds them.
const PIP: &str = include_str!("guest/pip.py");

/// The answer of the guest program.
#[derive(Deserialize)]
struct Answer {
    pip: String,
    message: Option<String>,
    skipped: Option<String>,
    build_output: Option<Vec<String>>,
    packages: Option<Vec<Found>>,
    built: Option<String>,
}

#[derive(Deserialize)]
struct Found {
    name: String,
    version: String,
    url: String,
    sha256: String,
}

impl InstallJail {
    /// Finds the requested wheels with pip.
    ///
    /// # Errors
    /// If pip finds no set of wheels.
    pub(super) fn resolve_by_pip(
        &self,
        wanted: &Wanted,
        layer: Layer,
    ) -> Result<Vec<LockedWheel>, EnvironmentError> {
        let mut options = self.access.options.clone();
        if self.builds == Builds::Refused {
            options.extend(["--only-binary".to_owned(), ":all:".to_owned()]);
        }
        options.extend(wanted.options.iter().cloned());
        options.extend(["-r".to_owned(), "requirements.txt".to_owned()]);
        if !wanted.constraints.is_empty() {
            options.extend(["-c".to_owned(), "constraints.txt".to_owned()]);
        }
        let call = format!(
            "_resolve({}, {})",
            literal(&options),
            match layer {
                Layer::Whole => "False",
                Layer::Added => "True",
            }
        );
        let answer = self.ask_pip(self.request(PIP, &call, wanted)?, "resolved")?;
        let found = answer.packages.unwrap_or_default().into_iter();
        let found = found.map(|found| LockedWheel {
            name: found.name,
            version: found.version,
            file: String::new(),
            url: found.url,
            sha256: found.sha256,
            source: None,
        });
        Ok(found.collect())
    }

    /// Builds a wheel from a source distribution, and copies it out. Returns the file name that the guest claims for
    /// it.
    ///
    /// # Errors
    /// If the wheel cannot be built.
    pub fn build(
        &self,
        requirement: &str,
        take_out: impl Fn(&WorkDir) + Send + Sync + 'static,
    ) -> Result<String, EnvironmentError> {
        let options = literal(&self.access.options);
        let call = format!("_build({options}, {})", literal(&requirement));
        let request = self.request(PIP, &call, &Wanted::default())?;
        let request = request.collect(move |work, outcome| {
            if outcome.is_ok() {
                take_out(work);
            }
        });
        Ok(self.ask_pip(request, "built")?.built.unwrap_or_default())
    }

    fn ask_pip(&self, request: Request, doing: &'static str) -> Result<Answer, EnvironmentError> {
        let (answer, outcome): (Answer, _) = self.ask(request, doing)?;
        let interpreter = self.interpreter.display();
        if answer.pip.is_empty() {
            return Err(EnvironmentError::Pip(format!(
                "{interpreter} has no pip, which finds the wheels of packages: install it (`{interpreter} -m ensurepip`, on \
                 Debian `apt install python3-venv`), or name another interpreter with `--python`"
            )));
        }
        if let Some(message) = &answer.message {
            let message = cause(message, answer.skipped.as_deref().unwrap_or_default());
            return Err(EnvironmentError::Unresolved {
                message: with_last_lines(&message, &answer.build_output.unwrap_or_default()),
                hosts: refused_hosts(outcome.network()),
            });
        }
        if answer.packages.is_none() && answer.built.is_none() {
            return Err(EnvironmentError::Pip(format!(
                "the pip of {interpreter} is {}, and finding wheels with their hashes needs pip 22.2 or later: \
                 `{interpreter} -m pip install --upgrade pip`",
                plain(&answer.pip)
            )));
        }
        Ok(answer)
    }
}
