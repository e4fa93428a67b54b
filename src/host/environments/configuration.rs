//! Reads the configuration of pip and uv.

use std::fs;
use std::path::{Path, PathBuf};

use super::pip_config::PipConfig;
use crate::host::CallerEnvironment;

/// Returns the configuration of pip and uv for an interpreter.
pub fn pip_config(environment: &CallerEnvironment, executable: &Path) -> PipConfig {
    let of_uv = texts(&uv_files(environment));
    let of_pip = texts(&pip_files(environment, &prefix_of(executable)));
    PipConfig::read(
        of_uv.iter().map(String::as_str),
        of_pip.iter().map(String::as_str),
        |name| environment.text(name),
    )
}

/// Returns the prefix in which an interpreter looks for `pip.conf`. The interpreter is not started to find out, because
/// every run looks up its sandbox by its packages.
fn prefix_of(executable: &Path) -> PathBuf {
    let above = |path: &Path| path.ancestors().nth(2).map(Path::to_owned);
    let virtual_environment = above(executable).filter(|home| home.join("pyvenv.cfg").is_file());
    virtual_environment
        .or_else(|| above(&fs::canonicalize(executable).ok()?))
        .unwrap_or_default()
}

/// Reads those of the files that exist.
fn texts(files: &[PathBuf]) -> Vec<String> {
    let texts = files.iter().map(fs::read_to_string);
    texts.filter_map(Result::ok).collect()
}

/// Returns the user's configuration directory.
fn config_home(environment: &CallerEnvironment) -> Option<PathBuf> {
    let config = environment
        .text("XDG_CONFIG_HOME")
        .filter(|path| path.starts_with('/'));
    config
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(environment.text("HOME")?).join(".config")))
}

/// Returns uv's configuration files, lowest precedence first. Project files are ignored, because the user may not have
/// written them.
fn uv_files(environment: &CallerEnvironment) -> Vec<PathBuf> {
    let set = |name: &str| environment.text(name).filter(|value| !value.is_empty());
    if set("UV_NO_CONFIG").is_some() {
        return Vec::new();
    }
    if let Some(named) = set("UV_CONFIG_FILE") {
        return vec![named.into()];
    }
    let system = PathBuf::from("/etc/uv/uv.toml");
    let user = config_home(environment).map(|config| config.join("uv/uv.toml"));
    [system].into_iter().chain(user).collect()
}

/// Returns pip's configuration files, lowest precedence first.
fn pip_files(environment: &CallerEnvironment, prefix: &Path) -> Vec<PathBuf> {
    let named = environment
        .text("PIP_CONFIG_FILE")
        .filter(|file| !file.is_empty());
    if named == Some("/dev/null") {
        return Vec::new();
    }
    let home = environment.text("HOME").map(PathBuf::from);
    let config = config_home(environment);
    let system = ["/etc/xdg/pip/pip.conf", "/etc/pip.conf"]
        .map(PathBuf::from)
        .into_iter();
    let user = home.map(|home| home.join(".pip/pip.conf"));
    let user = user
        .into_iter()
        .chain(config.map(|config| config.join("pip/pip.conf")));
    let site = [prefix.join("pip.conf")];
    system
        .chain(user)
        .chain(site)
        .chain(named.map(PathBuf::from))
        .collect()
}
