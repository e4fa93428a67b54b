//! Reads pip's configuration.

use std::fs;
use std::path::PathBuf;

use super::create::Creation;
use super::error::EnvironmentError;
use super::index::Access;
use super::pip_config::PipConfig;
use crate::host::{CallerEnvironment, Interpreter};

/// How packages are reached: pip's configuration, the files' own settings, then the command's.
///
/// # Errors
/// If a setting cannot be followed.
pub fn access(
    creation: &Creation,
    environment: &CallerEnvironment,
    interpreter: &Interpreter,
) -> Result<Access, EnvironmentError> {
    let files = configuration_files(environment, interpreter);
    let texts: Vec<String> = files
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .collect();
    let mut config = PipConfig::read(texts.iter().map(String::as_str), |name| {
        environment.text(name)
    });
    creation.wanted.configure(&mut config);
    if let Some(index) = &creation.index {
        config.set("index-url", index);
    }
    Ok(Access::new(
        &config,
        |name| environment.text(name),
        &creation.allowed,
    )?)
}

/// pip's files, the weakest first.
fn configuration_files(environment: &CallerEnvironment, interpreter: &Interpreter) -> Vec<PathBuf> {
    let named = environment
        .text("PIP_CONFIG_FILE")
        .filter(|file| !file.is_empty());
    if named == Some("/dev/null") {
        return Vec::new();
    }
    let home = environment.text("HOME").map(PathBuf::from);
    let config = environment
        .text("XDG_CONFIG_HOME")
        .filter(|path| path.starts_with('/'));
    let config = config
        .map(PathBuf::from)
        .or_else(|| Some(home.as_ref()?.join(".config")));
    let system = ["/etc/xdg/pip/pip.conf", "/etc/pip.conf"]
        .map(PathBuf::from)
        .into_iter();
    let user = home.map(|home| home.join(".pip/pip.conf"));
    let user = user
        .into_iter()
        .chain(config.map(|config| config.join("pip/pip.conf")));
    let site = [interpreter.prefix.join("pip.conf")];
    system
        .chain(user)
        .chain(site)
        .chain(named.map(PathBuf::from))
        .collect()
}
