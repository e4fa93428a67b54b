//! What a guest may do: policy files, the built-in policies, and the effective [`Policy`].
//!
//! A policy file is TOML. It builds on another file (`extends`), or on `standard` if it names none.
//! Lists append, other values replace. Loading reads the files through a [`PolicySource`], applies
//! overrides, and checks everything that does not depend on a host. It keeps the place where each value
//! was written, so that the plan can name the line that a host cannot enforce.
//!
//! ```
//! use sandfork::policy::{BuiltInsOnly, Policy};
//!
//! let overrides = ["limits.wall=2s".parse()?];
//! let policy = Policy::load("standard", &overrides, &BuiltInsOnly)?;
//! assert_eq!(policy.limits().wall.as_secs(), 2);
//! # Ok::<(), sandfork::policy::PolicyError>(())
//! ```
//!
//! `docs/policy.md` describes every key.

mod assemble;
mod builtin;
mod chain;
mod diagnose;
mod effective;
mod error;
mod field;
mod file;
mod keyword;
mod layer;
mod limit_text;
mod limits;
mod load;
mod located_limits;
mod merge;
mod module_name;
mod numbers;
mod origin;
mod overrides;
mod paths;
mod quantity;
mod render;
mod schema;
mod session;
mod source;
mod suggest;
mod text_value;
mod units;

pub use builtin::builtin_names;
pub use effective::{
    EnvPolicy, FilesystemPolicy, Freshness, ImportPolicy, Policy, ProcVisibility, PythonPolicy,
    SyscallPolicy,
};
pub use error::{PolicyError, PolicyProblem};
pub use file::PolicyFile;
pub use keyword::{NetworkMode, Stdin, SystemFiles, UnknownWord};
pub use limits::{Limits, Quota};

pub use crate::outcome::{Level, LimitName};
pub use module_name::{ImportPattern, ModuleNameError, Preload, Presence};
pub use numbers::Cores;
pub use origin::{Located, Origin};
pub use overrides::Override;
pub use paths::PathError;
pub use quantity::{QuantityError, parse_duration, parse_size};
pub use schema::schema;
pub use session::SessionPolicy;
pub use source::{BuiltInsOnly, PolicySource};
pub(crate) use suggest::closest;
