//! Tests the egress process between test clients and test servers on loopback addresses: what it forwards, and how it
//! withstands hostile guests and hosts. The tests need no sandbox and query no external resolver.
#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test program"
)]

mod hostile;
mod http;
mod http2;
mod http2_limits;
mod limits;
mod names;
mod proxies;
mod questions;
mod raw;
mod scene;
mod servers;
mod tls;

use std::io::Read as _;
use std::sync::mpsc;
use std::thread;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use self::scene::{LONG, Setup};

/// A program that embeds the supervisor may leave descriptors open for its own children.
#[test]
fn inherited_descriptors_are_closed() {
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    fcntl(&writer, FcntlArg::F_SETFD(FdFlag::empty())).expect("it is open");
    let _scene = Setup::new(&[], &[]).start(&[]);
    drop(writer);
    let (ended, end) = mpsc::channel();
    thread::spawn(move || ended.send(reader.read_to_end(&mut Vec::new())));
    // The reader gets EOF once the last copy of the write end is closed.
    let read = end.recv_timeout(LONG).expect("nothing holds it");
    assert_eq!(read.expect("a pipe"), 0);
}
