//! Sandfork behind HTTP: one port that speaks the protocols of existing clients, and one of its own.
//!
//! `config` and `tokens` say who may ask for how much, and `account` counts it: all three are data. A `tenant`
//! has sandboxes of one policy. `http` accepts connections and reads bodies within a budget. `e2b`, `fusion`, `mcp` and
//! `v1` are the protocols: they turn a body into a request for a sandbox, and an outcome into an answer. `page` is a
//! client of `v1` for browsers.

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

/// Locks what a thread that panicked may have held: it leaves nothing half done.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A text, or the beginning and the end of a long one. What is not UTF-8 is U+FFFD. No more is copied: what a guest writes
/// may be long.
fn shortened(text: &[u8], most: usize) -> String {
    let chars = || {
        text.utf8_chunks().flat_map(|chunk| {
            let replacement = (!chunk.invalid().is_empty()).then_some(char::REPLACEMENT_CHARACTER);
            chunk.valid().chars().chain(replacement)
        })
    };
    let count = chars().count();
    if count <= most {
        return chars().collect();
    }
    let half = most / 2;
    let begin: String = chars().take(half).collect();
    let end: String = chars().skip(count - half).collect();
    format!("{begin}\n[{} characters are left out]\n{end}", count - most)
}
