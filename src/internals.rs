//! Exports this crate's modules to its own tests, benchmarks and fuzz targets. They are not part of the API.

#![allow(missing_docs, reason = "each module documents itself")]

/// Makes crate-private methods of a public type callable through a trait.
macro_rules! reveal {
    ($name:ident of $type:ty: $(fn $method:ident($($argument:ident: $of:ty)?) -> $value:ty;)+) => {
        pub trait $name {
            $(fn $method(&self $(, $argument: $of)?) -> $value;)+
        }

        impl $name for $type {
            $(fn $method(&self $(, $argument: $of)?) -> $value {
                <$type>::$method(self $(, $argument)?)
            })+
        }
    };
}

/// Makes crate-private fields of a public type readable through a trait.
macro_rules! reveal_fields {
    ($name:ident of $type:ty: $($field:ident: $value:ty,)+) => {
        pub trait $name {
            $(fn $field(&self) -> &$value;)+
        }

        impl $name for $type {
            $(fn $field(&self) -> &$value {
                &self.$field
            })+
        }
    };
}

pub mod batch {
    pub use crate::batch::expect::{Expect, Whitespace};
    pub use crate::batch::line::{TaskLine, TaskProgram};
    pub use crate::batch::record::RecordLine;
    pub use crate::outcome::Verdict;
}

pub mod capacity {
    pub use crate::capacity::DESCRIPTORS_OF_A_RUN;
}

pub mod environments {
    pub use crate::environments::readers::*;
}

pub mod host {
    pub use crate::host::*;
}

pub mod outcome {
    pub use crate::outcome::*;

    pub fn limit_spec(name: LimitName) -> &'static LimitSpec {
        name.spec()
    }
}

pub mod plan {
    pub use crate::plan::*;
    use crate::sandbox::Sandbox;

    reveal! { SandboxPlan of Sandbox: fn plan() -> &Plan; }
}

pub mod policy {
    pub use crate::policy::*;

    reveal! { PolicyOrigins of Policy:
        fn limit_origin(name: LimitName) -> &Origin;
        fn require_origin() -> &Origin;
    }

    reveal_fields! { PolicySettings of Policy:
        python: PythonPolicy,
        imports: ImportPolicy,
        filesystem: FilesystemPolicy,
        network: NetworkPolicy,
        env: EnvPolicy,
        stdin: Stdin,
        limits: Limits,
        session: SessionPolicy,
        syscalls: SyscallPolicy,
    }
}

pub mod protocol {
    pub use crate::protocol::*;
}

pub mod supervisor {
    use nix::errno::Errno;

    use crate::sandbox::Sandbox;
    pub use crate::supervisor::*;

    reveal! {
        SandboxProcesses of Sandbox:
        fn egress_process() -> Option<u32>;
        fn copied_at_fork() -> Option<Result<usize, Errno>>;
    }
}

pub mod snapshot {
    pub use crate::supervisor::snapshot_readers::*;
}

pub mod sandbox {
    use crate::sandbox::SandboxBuilder;
    pub use crate::sandbox::{Term, Turnover};
    pub use sandfork_jail::control::RunPath;

    /// Builder settings that only tests use.
    pub trait BuilderInternals {
        #[must_use]
        fn run_path(self, run_path: RunPath) -> Self;
        #[must_use]
        fn turnover(self, turnover: Turnover) -> Self;
    }

    impl BuilderInternals for SandboxBuilder {
        fn run_path(self, run_path: RunPath) -> Self {
            self.with_run_path(run_path)
        }

        fn turnover(self, turnover: Turnover) -> Self {
            self.with_turnover(turnover)
        }
    }
}
