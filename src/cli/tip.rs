//! Suggests the right argument to users who write one as another program spells it.

use std::ffi::OsStr;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

use crate::policy::meant;

/// Returns the suggestion for an unknown argument of this command, if clap has none.
pub fn tip(error: &Error, command: &Command) -> Option<String> {
    let first = std::env::args_os().nth(1)?;
    let is_argument = error.kind() == ErrorKind::UnknownArgument;
    if !command.get_subcommands().any(|it| it.get_name() == first) {
        let is_option = first == "-c" || first == "-m";
        let is_unknown = is_argument || error.kind() == ErrorKind::InvalidSubcommand;
        let is_python = is_option || looks_like_python(Path::new(&first));
        let tip = "`sandfork run FILE`, `run -c CODE` and `run -m MODULE` run Python";
        return (is_unknown && is_python).then(|| tip.to_owned());
    }
    let has_policy = ["run", "exec", "learn", "shell", "map", "plan"]
        .iter()
        .any(|it| first == *it);
    let is_near = error.get(ContextKind::SuggestedArg).is_some();
    if !has_policy || !is_argument || is_near {
        return None;
    }
    let named = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(named)) => named.as_str(),
        _ => "",
    };
    if let Some(key) = named.strip_prefix("--").and_then(key_of_option) {
        return Some(format!("a policy key does that: `--set {key}=VALUE`"));
    }
    // An option after `-c CODE` or a program may be meant for either.
    let for_guest = ["run", "exec", "learn"].iter().any(|it| first == *it);
    let has_no_tip = error.get(ContextKind::Suggested).is_none();
    (for_guest && has_no_tip).then(|| "arguments for the guest come after `--`".to_owned())
}

/// Returns the policy key that another program's option corresponds to, such as `--timeout` or `--allow-read`.
fn key_of_option(name: &str) -> Option<&'static str> {
    let name = name.strip_prefix("allow-").unwrap_or(name);
    meant(&name.replace('-', "_"))
}

fn looks_like_python(path: &Path) -> bool {
    let is_name = |name| path == Path::new(name);
    is_name("python")
        || is_name("python3")
        || path.extension() == Some(OsStr::new("py"))
        || path.exists()
}
