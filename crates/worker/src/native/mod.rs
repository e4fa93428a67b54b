//! The extension module that CPython loads from a sealed memfd. It enters the jail, serves requests for workers, and
//! returns into Python in each worker.
//!
//! The module does not link libpython and uses only the stable ABI, so one library serves every CPython from 3.9 on.

mod allowance;
mod eager_copy;
mod enter;
mod module;
mod networks;
mod programs;
mod python;
mod reaper;
mod run;
mod serve;
mod snapshot;
mod sources;
