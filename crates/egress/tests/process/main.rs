//! The egress process between clients and servers of the tests, all on loopback addresses: what it lets through, and
//! what a hostile guest or host makes of it. No sandbox is needed, and no other resolver is asked.
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

/// A program that embeds the supervisor may leave descriptors open for children of its own.
#[test]
fn the_process_keeps_no_descriptor_of_others() {
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    fcntl(&writer, FcntlArg::F_SETFD(FdFlag::empty())).expect("it is open");
    let _scene = Setup::new(&[], &[]).start(&[]);
    drop(writer);
    let (ended, end) = mpsc::channel();
    thread::spawn(move || ended.send(reader.read_to_end(&mut Vec::new())));
    // The end of the pipe, which comes when the last copy of the other side is closed.
    let read = end.recv_timeout(LONG).expect("nothing holds it");
    assert_eq!(read.expect("it is a pipe"), 0);
}
