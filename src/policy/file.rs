//! The policy file as written: every key is optional, and nothing is combined or checked yet.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::field::{Field, List, table};
use super::keyword::{NetworkMode, Stdin, SystemFiles};
use super::module_name::{ImportPattern, Preload};
use super::numbers::{Cores, Count};
use super::paths::HostPath;
use super::session::Term;
use super::units::{ByteSize, Milliseconds};
use crate::outcome::Level;

/// A Sandfork policy: what untrusted Python may do. Every key is optional. The extended policy
/// provides the keys that a file leaves out. Lists append to the extended policy's lists, other
/// values replace its values.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Sandfork policy")]
pub struct PolicyFile {
    /// The policy that this file builds on: a built-in name, or a path relative to this file.
    /// Without it, `standard`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) extends: Option<Field<String>>,
    /// The purpose of the policy, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<Field<String>>,
    /// The interpreter and its preloaded modules.
    #[serde(default, deserialize_with = "table", skip_serializing_if = "is_empty")]
    pub(super) python: PythonSection,
    /// What guest code may import. An aid to good error messages, not a wall.
    #[serde(default, deserialize_with = "table", skip_serializing_if = "is_empty")]
    pub(super) imports: ImportsSection,
    /// What the guest sees of the host's files, and the quotas of its own files.
    #[serde(default, deserialize_with = "table", skip_serializing_if = "is_empty")]
    pub(super) filesystem: FilesystemSection,
    /// The network.
    #[serde(default, deserialize_with = "table", skip_serializing_if = "is_empty")]
    pub(super) network: NetworkSection,
    /// Environment variables.
    #[serde(default, deserialize_with = "table", skip_serializing_if = "is_empty")]
    pub(super) env: EnvSection,
    /// Standard streams.
    #[serde(default, deserialize_with = "table", skip_serializing_if = "is_empty")]
    pub(super) stdio: StdioSection,
    /// Limits on time, memory and every other resource that can run out.
    #[serde(default, deserialize_with = "table", skip_serializing_if = "is_empty")]
    pub(super) limits: LimitsSection,
    /// How long a session lives if it is not closed.
    #[serde(default, deserialize_with = "table", skip_serializing_if = "is_empty")]
    pub(super) session: SessionSection,
    /// Changes to the list of allowed system calls.
    #[serde(default, deserialize_with = "table", skip_serializing_if = "is_empty")]
    pub(super) syscalls: SyscallsSection,
    /// The level that must hold before a run starts.
    #[serde(default, deserialize_with = "table", skip_serializing_if = "is_empty")]
    pub(super) assurance: AssuranceSection,
}

/// Declares a section: a table whose keys are all optional. Other keys are refused.
macro_rules! section {
    (
        $(#[$meta:meta])*
        $name:ident { $($(#[$key_meta:meta])* $key:ident: $type:ty,)+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
        #[serde(deny_unknown_fields)]
        #[schemars(inline)]
        pub(super) struct $name {
            $(
                $(#[$key_meta])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub(super) $key: Option<$type>,
            )+
        }

        impl Section for $name {
            fn is_empty(&self) -> bool {
                true $(&& self.$key.is_none())+
            }
        }
    };
}

/// The interface that all sections share.
trait Section {
    /// Whether the file has no key of this section.
    fn is_empty(&self) -> bool;
}

fn is_empty(section: &impl Section) -> bool {
    section.is_empty()
}

section! {
    PythonSection {
        /// A name to look up in PATH, or the path of an interpreter or a virtual environment. A
        /// path may be relative to this file.
        interpreter: Field<String>,
        /// Modules that the zygote imports once for all sessions. `"numpy?"` is preloaded if it is
        /// installed and skipped if not. Appends.
        preload: List<Preload>,
        /// Directories added to `sys.path`, read-only. May be relative to this file. Appends.
        path: List<String>,
        /// true: a new interpreter for each session, with its own hash seed and address layout.
        fresh: Field<bool>,
    }
}

section! {
    ImportsSection {
        /// Modules that guest code may import: `"numpy"`, `"numpy.*"` or `"*"`. Without it, every
        /// module. Appends.
        allow: List<ImportPattern>,
    }
}

section! {
    FilesystemSection {
        /// The host's system directories that the guest sees, read-only.
        system: Field<SystemFiles>,
        /// true: the guest has a `/proc` that shows its own processes. false: none.
        proc: Field<bool>,
        /// Host files and directories shown read-only at the same path. Appends.
        read: List<HostPath>,
        /// Host files and directories shown read-write at the same path. Appends.
        write: List<HostPath>,
        /// Size of the session's private `/work`.
        work_size: Field<ByteSize>,
        /// Files and directories in the session's private `/work`.
        work_inodes: Field<Count>,
        /// Size of the session's private `/tmp`.
        tmp_size: Field<ByteSize>,
        /// Files and directories in the session's private `/tmp`.
        tmp_inodes: Field<Count>,
    }
}

section! {
    NetworkSection {
        /// The network that the guest has.
        mode: Field<NetworkMode>,
    }
}

section! {
    EnvSection {
        /// Variables and their values.
        set: BTreeMap<String, Field<String>>,
        /// Names of variables that are taken from the caller's environment. Appends.
        pass: List<String>,
    }
}

section! {
    StdioSection {
        /// What the guest reads on its standard input.
        stdin: Field<Stdin>,
    }
}

section! {
    LimitsSection {
        /// Wall time of each cell or run.
        wall: Field<Milliseconds>,
        /// Processor time of all threads and processes together.
        cpu: Field<Milliseconds>,
        /// Memory of all processes together, their files in `/work` and `/tmp` included.
        memory: Field<ByteSize>,
        /// Processes and threads at once.
        pids: Field<Count>,
        /// Open file descriptors of each process.
        open_files: Field<Count>,
        /// Size of any one file.
        file_size: Field<ByteSize>,
        /// Standard output and standard error together.
        output: Field<ByteSize>,
        /// Share of the processors: 0.5 is half of one processor, 2 is two.
        cores: Field<Cores>,
    }
}

section! {
    SessionSection {
        /// Time without a cell after which the session is ended; "never": no such limit.
        idle: Field<Term>,
        /// Time after which the session is ended, in a cell or not; "never": no such limit.
        age: Field<Term>,
    }
}

section! {
    SyscallsSection {
        /// System calls allowed beyond the preset. Appends.
        allow: List<String>,
        /// System calls removed from the preset. Appends.
        deny: List<String>,
    }
}

section! {
    AssuranceSection {
        /// The lowest level of protection at which a run may start.
        require: Field<Level>,
    }
}
