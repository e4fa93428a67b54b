//! The complete environment of the interpreter, which inherits no variables from the caller unless the policy passes
//! them.

use std::collections::BTreeMap;

use super::network;
use super::paths::{TMP, WORK};
use super::view::View;
use crate::host::Host;
use crate::policy::{Level, Policy, SystemFiles};

/// Variables that have these values only while packages are preloaded.
///
/// Linear algebra libraries and memory allocators read them when they are loaded, and would otherwise
/// start threads, which do not survive a fork. Preloaded libraries stay single-threaded. A worker restores
/// the value of the plan's environment, or removes the variable, so that programs that the guest starts,
/// and libraries that the guest loads, may use all processors of the guest.
pub const PRELOAD_ONLY: [(&str, &str); 7] = [
    ("BLIS_NUM_THREADS", "1"),
    // jemalloc as built by pyarrow. Without its background thread it purges memory during allocation.
    ("JE_ARROW_MALLOC_CONF", "background_thread:false"),
    ("MKL_NUM_THREADS", "1"),
    ("NUMEXPR_NUM_THREADS", "1"),
    ("OMP_NUM_THREADS", "1"),
    ("OPENBLAS_NUM_THREADS", "1"),
    // jemalloc as built by Rust packages such as polars.
    ("_RJEM_MALLOC_CONF", "background_thread:false"),
];

/// Variables that set the number of threads of linear algebra, data frame and thread pool libraries. Without them,
/// most libraries would start a thread for each processor of the host.
const THREAD_COUNTS: [&str; 6] = [
    "MKL_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
];

/// Returns the variables that packages see while they are preloaded.
///
/// They include the configuration directory of matplotlib, which keeps the path: the temporary directory of
/// the workers. Without mounts that path would be on the host, so `/` is used, to which only root may write.
pub fn preload_env(level: Level) -> impl Iterator<Item = (&'static str, &'static str)> {
    let directory = if level == Level::Landlock { "/" } else { TMP };
    PRELOAD_ONLY
        .into_iter()
        .chain([("MPLCONFIGDIR", directory)])
}

/// The directories of programs, in the usual order of `PATH`.
const PROGRAMS: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

pub(super) fn variables(
    policy: &Policy,
    host: &Host,
    level: Level,
    view: &View,
) -> Vec<(String, String)> {
    // Without mounts there is one private directory, which also holds temporary files.
    let temporary = if level == Level::Landlock { WORK } else { TMP };
    let mut variables = BTreeMap::from(
        [("HOME", WORK), ("TMPDIR", temporary), ("LANG", "C.UTF-8")]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    variables.insert("PATH".to_owned(), search_path(policy, host));
    let threads = policy.limits.processors().to_string();
    variables.extend(THREAD_COUNTS.map(|name| (name.to_owned(), threads.clone())));
    variables.extend(network::variables(policy, view));
    let env = &policy.env;
    let passed = env
        .pass
        .iter()
        .filter_map(|name| host.caller_env.get_key_value(name));
    variables.extend(passed.map(|(name, value)| (name.clone(), value.clone())));
    variables.extend(
        env.set
            .iter()
            .map(|(name, value)| (name.clone(), value.clone())),
    );
    variables.into_iter().collect()
}

/// Returns the value of `PATH`. The interpreter's directory comes first, so that it provides the guest's `python3`.
fn search_path(policy: &Policy, host: &Host) -> String {
    let own = host
        .interpreter
        .executable
        .parent()
        .map(|dir| dir.display().to_string());
    let mut dirs: Vec<String> = own.into_iter().collect();
    if policy.filesystem.system == SystemFiles::Programs {
        dirs.extend(
            PROGRAMS
                .map(str::to_owned)
                .into_iter()
                .filter(|dir| !dirs.contains(dir))
                .collect::<Vec<_>>(),
        );
    }
    dirs.join(":")
}
