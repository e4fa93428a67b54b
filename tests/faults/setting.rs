//! The supervisor's user and the host's capabilities, which determine the level of a sandbox.

use std::env;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use nix::unistd::geteuid;
use sandfork::Level;
use sandfork::internals::host::{CgroupSupport, Host};

use crate::family::Role;
use crate::family::Shape;
use crate::situation;

/// The environment of a supervisor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Setting {
    /// The user who runs the tests, with everything that this host provides.
    Best,
    /// An ordinary user without a delegated cgroup.
    User,
    /// The user who runs the tests, on a host that forbids namespaces.
    NoNamespaces,
}

/// A uid without processes or an entry in /etc/passwd.
const ORDINARY_UID: u32 = 2_147_100_002;

/// The system's interpreter.
const EVERYBODYS: &str = "/usr/bin/python3";

impl Setting {
    pub fn name(self) -> &'static str {
        match self {
            Self::Best => "best",
            Self::User => "user",
            Self::NoNamespaces => "no_namespaces",
        }
    }

    /// Returns why this setting is impossible here, if so.
    pub fn obstacle(self) -> Option<String> {
        match self {
            Self::User if !geteuid().is_root() => Some("only root can be another user".to_owned()),
            Self::User | Self::NoNamespaces if !Path::new(EVERYBODYS).exists() => {
                Some(format!("no {EVERYBODYS}, which every user can execute"))
            }
            _ => None,
        }
    }

    /// Returns the interpreter to look up.
    pub fn interpreter(self) -> &'static str {
        match self {
            Self::Best => "python3",
            // Guests must be able to execute it too: without mounts, they use the host's path.
            Self::User | Self::NoNamespaces => EVERYBODYS,
        }
    }

    /// Returns the required level: the highest that the setting supports on this host, so that a fault in the probe
    /// cannot lower it.
    pub fn level(self, host: &Host) -> Level {
        match (self, &host.machine.cgroup) {
            (Self::NoNamespaces, _) => Level::Landlock,
            (Self::User, _) | (_, CgroupSupport::Nowhere(_)) => Level::Standard,
            (Self::Best, _) => Level::Full,
        }
    }

    /// Returns the shape of the process tree.
    pub fn shape(self) -> Shape {
        match self {
            Self::Best => Shape::MappedPidNamespaces,
            Self::User => Shape::PidNamespaces,
            Self::NoNamespaces => Shape::Reapers,
        }
    }

    /// Returns the processes of an idle sandbox.
    pub fn family(self) -> Vec<Role> {
        let mut family = vec![Role::Supervisor, Role::Launcher, Role::Init, Role::Zygote];
        family.retain(|role| self.shape() != Shape::Reapers || *role != Role::Init);
        family
    }

    /// Returns the command that starts this program as the user.
    pub fn command(self) -> Command {
        let own = env::current_exe().expect("a program knows its path");
        match self {
            Self::Best => Command::new(own),
            Self::User => {
                // Through /proc/self/exe, because the checkout may be in a directory that the user cannot enter.
                let mut command = Command::new("/proc/self/exe");
                command.uid(ORDINARY_UID).gid(ORDINARY_UID).current_dir("/");
                command
            }
            Self::NoNamespaces => {
                let mut command = Command::new(&own);
                command
                    .args([situation::FLAG, situation::Who::Root.name()])
                    .arg(own);
                command
            }
        }
    }

    /// Gives the user access to a directory.
    pub fn grant(self, directory: &Path) {
        if self == Self::User {
            chown(directory, Some(ORDINARY_UID), Some(ORDINARY_UID))
                .expect("root has the privilege");
        }
    }
}
