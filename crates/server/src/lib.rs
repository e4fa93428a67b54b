//! The HTTP server: runs untrusted Python for clients of existing protocols and of Sandfork's own API, on a single
//! port.
//!
//! `config` and `tokens` define who may use how much, and `account` tracks the usage; these three do no I/O beyond
//! reading their files. A `tenant` has sandboxes of one policy. `http` accepts connections and reads bodies within a
//! memory budget. `e2b`, `fusion`, `mcp` and `v1` implement the protocols: each converts a request body into a sandbox
//! request, and an outcome into a response. `page` is a web client of `v1`.

mod account;
mod activity;
mod args;
mod auth;
mod config;
mod descriptors;
mod display;
mod e2b;
mod failure;
mod files;
mod fusion;
mod host_memory;
mod http;
mod mcp;
mod meter;
mod metrics;
mod open;
#[cfg(test)]
mod packaging;
mod page;
mod running;
mod sandboxes;
mod server;
mod sessions;
mod start_error;
mod tenant;
mod tokens;
mod traces;
mod v1;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use server::command;

/// Locks a mutex and ignores poisoning: a thread that panics leaves no partial update.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a text, or the beginning and the end of a long one. Invalid UTF-8 becomes U+FFFD. Copies no more than it
/// returns, because a guest's output may be long.
fn shortened(text: &[u8], max: usize) -> String {
    let chars = || {
        text.utf8_chunks().flat_map(|chunk| {
            let replacement = (!chunk.invalid().is_empty()).then_some(char::REPLACEMENT_CHARACTER);
            chunk.valid().chars().chain(replacement)
        })
    };
    let count = chars().count();
    if count <= max {
        return chars().collect();
    }
    let half = max / 2;
    let begin: String = chars().take(half).collect();
    let end: String = chars().skip(count - half).collect();
    format!("{begin}\n[{} characters are left out]\n{end}", count - max)
}
