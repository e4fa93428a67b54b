//! What a guest may do: policy files, the built-in policies, and the effective [`Policy`].
//!
//! A policy file is TOML. It builds on another (`extends`), on `standard` where it names none;
//! lists append, other values replace. Loading reads the files through a [`PolicySource`],
//! applies overrides, checks everything that can be known without asking a host, and keeps for
//! each value where it was written, so that the plan can point at the line that a host cannot keep.
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
//! Every key is described in `docs/policy.md`.

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
pub use keyword::{Level, NetworkMode, Stdin, SystemFiles, UnknownWord};
pub use limits::{LimitName, Limits, Quota};
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
