//! Tests plans for simulated hosts.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod aliases;
mod errors;
mod grants;
mod hosts;
mod imports;
mod levels;
mod network;
mod session;
mod snapshots;
mod views;

use std::io;
use std::path::{Path, PathBuf};

use super::{Plan, plan};
use crate::error::Error;
use crate::host::Host;
use crate::policy::{Policy, PolicySource};

/// A source with a single policy file.
struct OneFile<'a>(&'a str);

const FILE: &str = "tenant.toml";

impl PolicySource for OneFile<'_> {
    fn read(&self, path: &Path) -> io::Result<String> {
        if path.ends_with(FILE) {
            Ok(self.0.to_owned())
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    fn current_dir(&self) -> io::Result<PathBuf> {
        Ok("/srv".into())
    }
}

/// Returns the policy of a file with this text.
fn policy(toml: &str) -> Policy {
    Policy::load(&format!("/srv/{FILE}"), &[], &OneFile(toml)).unwrap()
}

fn builtin(name: &str) -> Policy {
    Policy::builtin(name).unwrap()
}

fn planned(toml: &str, host: &Host) -> Plan {
    plan(&policy(toml), host).unwrap()
}

fn refusal(toml: &str, host: &Host) -> Error {
    plan(&policy(toml), host).unwrap_err()
}

/// Returns the grants of [`sample`], for tests of other modules.
pub(crate) fn sample_grants(toml: &str) -> super::Grants {
    super::Grants::new(&policy(toml), &sample(toml))
}

/// Returns a plan for a host with all features and a directory `/srv/shown`, for tests of other modules.
pub(crate) fn sample(toml: &str) -> Plan {
    let host = hosts::host(hosts::machine());
    planned(toml, &host.with_directory("/srv/shown"))
}
