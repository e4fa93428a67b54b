//! Resolves what `sandfork run` runs: code, a script, a directory or a module.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::args::TargetChoice;
use super::failure::Failure;
use super::script::{Origin, Script, no_main};
use crate::Request;
use crate::policy::{Override, builtin_names};

/// The code to run, and the files that belong to it.
pub struct Target {
    /// The request, without its files and limits.
    pub request: Request,
    /// The path of the script's file, if a sandbox can show it.
    pub script: Option<PathBuf>,
    /// The project directory, if the guest should see it.
    pub project: Option<PathBuf>,
    /// The directory in which `python3` would look up imports.
    pub beside: PathBuf,
}

/// The file that makes a directory runnable.
const MAIN: &str = "__main__.py";

impl TargetChoice {
    /// Returns the name of the target for messages.
    pub fn name(&self) -> String {
        match (&self.module, &self.code, self.rest.first()) {
            (Some(module), ..) => format!("-m {}", module.first().map_or("", String::as_str)),
            (_, Some(_), _) => "-c".to_owned(),
            (.., Some(path)) => path.to_string_lossy().into_owned(),
            _ => "stdin".to_owned(),
        }
    }

    /// Returns the guest's arguments, without those that are not UTF-8.
    pub fn arguments(&self) -> Vec<String> {
        let module = self.module.iter().flatten().skip(1).cloned();
        let before = usize::from(self.code.is_none() && self.module.is_none());
        let rest = self.rest.iter().skip(before);
        let rest = rest.filter_map(|text| text.to_str().map(str::to_owned));
        module.chain(rest).collect()
    }

    /// Returns a message if an option of this command comes after the script, where it is passed to the script,
    /// probably by mistake. That is a policy, an override, or an option and value that `is_of_command` recognizes.
    pub fn misplaced(&self, is_of_command: impl Fn(&str, &str) -> bool) -> Option<String> {
        if self.code.is_some() {
            return None;
        }
        let own = self.arguments();
        let own = own.iter().map(String::as_str);
        let mut own = own.take_while(|text| *text != "--").peekable();
        while let Some(text) = own.next() {
            let (option, value) = match text.split_once('=') {
                Some((option, value)) if option.starts_with("--") => (option, Some(value)),
                _ => (text, own.peek().copied()),
            };
            let is_meant = match (option, value) {
                ("--policy" | "-p", Some(name)) => {
                    builtin_names().any(|it| it == name) || is_policy_file(Path::new(name))
                }
                ("--set", Some(set)) => set.parse().is_ok_and(|set: Override| set.is_valid()),
                (option, Some(value)) => is_of_command(option, value),
                (_, None) => false,
            };
            if let (true, Some(value)) = (is_meant, value) {
                return Some(format!(
                    "`{option} {value}` comes after the script, so the script gets it as an argument: options of sandfork \
                     come before the script"
                ));
            }
        }
        None
    }
}

fn is_policy_file(path: &Path) -> bool {
    path.extension() == Some(OsStr::new("toml")) && path.is_file()
}

impl Target {
    /// Reads the target that the arguments name.
    pub fn load(arguments: &TargetChoice) -> Result<Self, Failure> {
        let mut rest = arguments.rest.iter().peekable();
        if let Some(module) = &arguments.module {
            let none = || Failure::Usage("`-m` needs the name of a module".to_owned());
            let (name, own) = module.split_first().ok_or_else(none)?;
            let request = Request::module(name.as_str()).args(own);
            return Self::without_file(request.args(texts(rest)?), arguments);
        }
        let origin = match &arguments.code {
            Some(code) => Origin::Code(code.clone()),
            None => match rest.next() {
                Some(path) if path != "-" => Origin::File(path.into()),
                _ => Origin::Stdin,
            },
        };
        // `run script.py -- ARG` has the same meaning as `run script.py ARG`.
        rest.next_if(|next| arguments.code.is_none() && *next == "--");
        let own = texts(rest)?;
        let Origin::File(path) = origin else {
            let script = Script::load(origin)?;
            return Self::without_file(script.request().args(own), arguments);
        };
        Self::of_file(&path, own, arguments)
    }

    fn without_file(request: Request, arguments: &TargetChoice) -> Result<Self, Failure> {
        let project = arguments.project.as_deref().map(project).transpose()?;
        Ok(Self {
            request,
            script: None,
            project,
            beside: current_if_there(),
        })
    }

    fn of_file(path: &Path, own: Vec<String>, arguments: &TargetChoice) -> Result<Self, Failure> {
        let (path, is_program) = match path.join(MAIN) {
            main if path.is_dir() => (main, true),
            _ => (path.to_owned(), false),
        };
        let script = match Script::load(Origin::File(path.clone())) {
            Err(Failure::NoScript(_)) if is_program => {
                return Err(no_main(path.parent().unwrap_or(&path)));
            }
            other => other?,
        };
        let file = own_file(&path);
        let beside = match &file {
            Some(file) => file.parent().unwrap_or(Path::new("/")).to_owned(),
            None => current_if_there(),
        };
        let project = match arguments.project.as_deref() {
            None if is_program => Some(beside.clone()),
            None => None,
            Some("") => Some(beside.clone()),
            Some(named) => Some(project(named)?),
        };
        let name = file.as_deref().and_then(Path::to_str);
        let name = name.map_or_else(|| script.name.clone(), str::to_owned);
        Ok(Self {
            request: script.request().filename(name).args(own),
            script: file,
            project,
            beside,
        })
    }
}

/// Returns the directory that `--project` names.
fn project(named: &str) -> Result<PathBuf, Failure> {
    let directory = match Path::new(named) {
        absolute if absolute.is_absolute() => absolute.to_owned(),
        relative => current_dir()?.join(relative),
    };
    if !directory.is_dir() {
        return Err(Failure::Usage(format!(
            "--project: `{named}` is not a directory; name the directory from which the program imports"
        )));
    }
    Ok(directory)
}

/// Returns the absolute path of a script that is a regular file; `None` for a pipe, such as the shell's `<(...)`.
fn own_file(path: &Path) -> Option<PathBuf> {
    let is_file = fs::metadata(path).is_ok_and(|found| found.is_file());
    let absolute = std::path::absolute(path).ok().filter(|_| is_file)?;
    let climbs = absolute
        .components()
        .any(|part| part == Component::ParentDir);
    let absolute = match (absolute.parent(), absolute.file_name()) {
        // Let the kernel resolve `..`, because `link/..` depends on the link.
        (Some(parent), Some(name)) if climbs => fs::canonicalize(parent).ok()?.join(name),
        _ => absolute,
    };
    absolute.to_str().is_some().then_some(absolute)
}

fn current_dir() -> Result<PathBuf, Failure> {
    std::env::current_dir().map_err(|cause| {
        Failure::Usage(format!(
            "the current directory cannot be found: {cause}; change to another one"
        ))
    })
}

/// Returns the directory in which to look for missed files; empty if the current directory was removed.
fn current_if_there() -> PathBuf {
    current_dir().unwrap_or_default()
}

fn texts<'a>(arguments: impl Iterator<Item = &'a OsString>) -> Result<Vec<String>, Failure> {
    let text = |argument: &OsString| match argument.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(Failure::Usage(format!(
            "the argument `{}` is not UTF-8; pass it in another form",
            argument.to_string_lossy()
        ))),
    };
    arguments.map(text).collect()
}
