//! The complete environment of the interpreter. It inherits no variable from the caller.

use std::collections::BTreeMap;

use super::network;
use super::places::{TMP, WORK};
use super::view::View;
use crate::host::Host;
use crate::policy::{Level, Policy, SystemFiles};

/// Variables that have these values only while packages are preloaded.
///
/// Libraries for linear algebra and for memory read them when they are loaded, and would otherwise
/// start threads, which do not survive the fork. What is preloaded keeps its one thread. A worker
/// restores the value of the plan's environment, or removes the variable, so that programs that the
/// guest starts, and libraries that it loads itself, may use its processors.
pub const PRELOAD_ONLY: [(&str, &str); 7] = [
    ("BLIS_NUM_THREADS", "1"),
    // jemalloc as pyarrow builds it. Without its thread it purges memory when it allocates.
    ("JE_ARROW_MALLOC_CONF", "background_thread:false"),
    ("MKL_NUM_THREADS", "1"),
    ("NUMEXPR_NUM_THREADS", "1"),
    ("OMP_NUM_THREADS", "1"),
    ("OPENBLAS_NUM_THREADS", "1"),
    // jemalloc as packages in Rust build it, such as polars.
    ("_RJEM_MALLOC_CONF", "background_thread:false"),
];

/// Variables by which libraries for linear algebra, data frames and threads learn how many threads to start.
/// Without them, most would start one for each processor of the host.
const THREAD_COUNTS: [&str; 6] = [
    "MKL_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
];

/// The variables that packages see while they are preloaded.
///
/// They include a directory for matplotlib, which remembers it: the workers' own for temporary files.
/// Without mounts that path is the host's, so it is one that only root may write to.
pub fn preload_env(level: Level) -> impl Iterator<Item = (&'static str, &'static str)> {
    let directory = if level == Level::Landlock { "/" } else { TMP };
    PRELOAD_ONLY
        .into_iter()
        .chain([("MPLCONFIGDIR", directory)])
}

/// Directories of programs, in the usual order.
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

/// The interpreter's own directory first, so that `python3` inside is the same Python.
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
