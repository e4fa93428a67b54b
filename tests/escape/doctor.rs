//! What this machine cannot test, and why: the only source of skips.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::account::{Account, User};
use crate::capture::capture;
use crate::control::control_user;
use crate::need;
use crate::probe::{Launch, Probe};
use crate::sandboxed::Place;
use crate::world::Party;

/// The report of `sandfork doctor --json` for one user.
pub struct Doctor {
    namespaces: Result<(), String>,
    pub cgroup: Result<(), String>,
}

/// Why a test cannot run on this machine.
pub enum Skip {
    /// The machine lacks something that its user cannot provide.
    Forced(String),
    /// The configuration of the machine lacks something that its user can change.
    Mendable(String),
}

impl Doctor {
    pub fn query(account: &Account, sandfork: &Path) -> Self {
        let arguments: [PathBuf; 3] = [sandfork.into(), "doctor".into(), "--json".into()];
        let answer = capture(account.command(Launch::Plain, &arguments), "");
        // Without a report, no test is skipped.
        let answer: Value = answer
            .ok()
            .and_then(|captured| serde_json::from_str(&captured.stdout).ok())
            .unwrap_or_default();
        Self {
            namespaces: layer(&answer, "namespaces"),
            cgroup: layer(&answer, "cgroup"),
        }
    }
}

fn layer(answer: &Value, name: &str) -> Result<(), String> {
    let layers = answer["layers"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    match layers.iter().find(|layer| layer["layer"] == name) {
        Some(layer) if layer["state"] == "absent" => Err(format!(
            "doctor: {name}: {}",
            layer["why"].as_str().unwrap_or("absent")
        )),
        _ => Ok(()),
    }
}

/// Returns why the open control of `probe` cannot run on this machine, if so.
pub fn skip_control(probe: &Probe, user: User, party: Option<&Party>) -> Option<Skip> {
    if !User::all().contains(&control_user(probe, user)) {
        return Some(Skip::Forced("its open control needs root".to_owned()));
    }
    if let Some(since) = &probe.header.since
        && need::kernel() < need::version(since)
    {
        return Some(Skip::Forced(format!("needs Linux {since}")));
    }
    probe
        .header
        .needs
        .iter()
        .find_map(|need| need.is_missing(party?))
}

/// Returns why the product cannot run for this user on this machine, if so.
pub fn skip_sandboxed(party: &Party) -> Option<Skip> {
    party.doctor.namespaces.clone().err().map(Skip::Mendable)
}

/// Returns why sessions cannot be copied on this machine, if so.
pub fn skip_copies(place: Place) -> Option<Skip> {
    let reason = match place {
        Place::Copy if cfg!(not(target_arch = "x86_64")) => "not an x86-64 machine",
        Place::Copy if need::kernel() < (6, 7) => "no PAGEMAP_SCAN before Linux 6.7",
        Place::Worker | Place::Copy | Place::Program => return None,
    };
    Some(Skip::Forced(reason.to_owned()))
}
