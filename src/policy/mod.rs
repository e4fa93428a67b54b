//! Defines what a guest may do: policy files, the built-in policies, and the effective [`Policy`].
//!
//! A policy file is TOML. It extends another policy (`extends`), by default `standard`. Lists append, other
//! values replace. Loading reads the files through a [`PolicySource`], applies overrides, and checks
//! everything that does not depend on a host. It records the file and line of each value, so that the plan
//! can name the line that a host cannot enforce.
//!
//! `docs/policy.md` describes every key.

mod assemble;
mod builtin;
mod chain;
mod complete;
mod diff;
mod effective;
mod error;
mod keys;
mod keyword;
mod layer;
mod learnt;
mod limits;
mod load;
mod module_name;
mod network;
mod origin;
mod overrides;
mod packages;
mod paths;
mod read;
mod render;
mod rule_table;
mod schema;
mod secret;
mod source;
mod suggest;
mod units;
mod values;

pub use builtin::builtin_names;
pub use complete::overrides_beginning_with;
pub use diff::{Difference, Effect};
pub use effective::{
    AddedPackages, EnvPolicy, FilesystemPolicy, ImportPolicy, MissingPackages, Policy,
    ProcVisibility, PythonPolicy, SessionPolicy, Start, SyscallPolicy, WorkExec,
};
pub use error::PolicyError;
pub use keyword::{NetworkMode, Stdin, SystemFiles};
pub(crate) use learnt::{Grant, learnt};
pub use limits::{AbovePolicy, LimitOverrides};

pub use crate::outcome::{Level, LimitName, Limits};
pub use module_name::{ImportPattern, Preload, Presence};
pub(crate) use network::ModeRule;
pub use network::{NetworkPolicy, Proxy, Resolver};
pub use origin::{Located, Origin};
pub use overrides::Override;
pub use packages::{EnvironmentName, Requirement, SourcesDigest};
pub(crate) use paths::normalize;
pub(crate) use read::meant;
pub(crate) use render::hexadecimal;
pub use schema::schema;
pub use secret::{Reference, Template};
pub use source::{BuiltInsOnly, PolicySource};
pub(crate) use suggest::closest;
