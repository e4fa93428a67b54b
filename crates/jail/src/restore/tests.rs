use std::os::fd::{AsFd, AsRawFd, IntoRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::process::Command;

use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::*;
use crate::sys;
use crate::sys::checkpoint::{Blob, IS_SUPPORTED, Resumed, suspend};
use crate::sys::sealed::memory_file;

const BLOB: u64 = 0x3000_0000_0000;

#[test]
fn encoded_step_has_the_expected_layout() {
    let mut bytes = Vec::new();
    Step::map(0x1000, 0x2000, Protection::READ_WRITE, 0).encode(&mut bytes);
    assert_eq!(bytes.len() as u64, STEP);
    assert_eq!(bytes[..2], 0_u16.to_le_bytes());
    assert_eq!(bytes[8..16], 0x1000_u64.to_le_bytes());
    assert_eq!(bytes[56..], 0x1000_u64.to_le_bytes());
}

#[test]
fn header_points_to_the_steps() {
    let mut blob = BlobData::new(0x10_0000);
    let name = blob.name("/usr/lib/a.so");
    let bytes = blob.finish(7, 9, &[Step::open(name), Step::close()]);
    let (header, data) = bytes.split_at(header::LENGTH);
    let field = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
    let at = |address: u64| usize::try_from(address - 0x10_0000).expect("small") - DATA_AT;
    assert_eq!(field(header::PLACE), 7);
    assert_eq!(field(header::NUMBER), 9);
    let named = data[at(name)..].split(|byte| *byte == 0).next();
    assert_eq!(named, Some(&b"/usr/lib/a.so"[..]));
    let (first, end) = (field(header::STEPS), field(header::STEPS_END));
    assert_eq!(end - first, 2 * STEP);
    assert_eq!(at(end), data.len());
    assert!(field(header::BLOB_LENGTH) >= end - 0x10_0000);
}

#[test]
fn steps_are_executed_and_the_process_resumes() {
    const MAPPED: u64 = 0x3000_1000_0000;
    if !IS_SUPPORTED {
        return;
    }
    let image = memory_file(c"image").expect("there is memory");
    let pages: Vec<u8> = [1, 2, 3, 4].iter().flat_map(|page| [*page; 4096]).collect();
    nix::unistd::write(&image, &pages).expect("there is memory");
    // The last step closes it.
    let image = image.into_raw_fd();
    let all = pages.len() as u64;
    let from = |offset| Place {
        descriptor: image,
        offset,
    };
    let resumed = suspend(|place| {
        let mut blob = BlobData::new(BLOB);
        let (name, buffer, window) = (blob.name("/dev/null"), blob.buffer(), blob.window());
        let steps = [
            Step::map(MAPPED + all, all, Protection::READ_WRITE, 0),
            Step::relocate(MAPPED + all, all, MAPPED),
            Step::read(MAPPED, 4096, from(0)),
            Step::read(MAPPED + 2 * 4096, 4096, from(0)),
            // The first page is the same, and the others differ.
            Step::map_image(window, WINDOW, Protection::READ, from(0)),
            Step::copy_differing(MAPPED, 2 * 4096, window),
            Step::unmap(window, WINDOW),
            Step::read(buffer, 4096, from(2 * 4096)),
            Step::copy_differing(MAPPED + 2 * 4096, 4096, buffer),
            Step::open(name),
            Step::close(),
            Step::protect(MAPPED, all, Protection(1)),
            Step::close_image(image),
        ];
        let file = memory_file(c"blob").expect("there is memory");
        let bytes = blob.finish(place, 42, &steps);
        nix::unistd::write(&file, &bytes).expect("there is memory");
        let blob = Blob::map(file.as_fd()).expect("the address is free");
        let ended = blob.enter();
        panic!("it returned: {ended:?}");
    });
    assert_eq!(resumed, Resumed::Copy(42));
    let memory = std::fs::File::open("/proc/self/mem").expect("it is this process's own");
    let firsts = [0, 1, 2, 3].map(|page| {
        let mut byte = [0];
        let read = memory.read_exact_at(&mut byte, MAPPED + page * 4096);
        read.expect("it is mapped");
        byte[0]
    });
    assert_eq!(firsts, [1, 2, 3, 0]);
    let link = std::fs::read_link(format!("/proc/self/fd/{image}"));
    assert!(!link.is_ok_and(|link| link.starts_with("/memfd:image")));
}

/// Environment variable with the failing case that a child process executes, because the restoring code ends the
/// process.
const CASE: &str = "SANDFORK_FAILING_STEP";

/// An address at which nothing is mapped.
const FREE: u64 = 0x3000_2000_0000;

/// Returns cases of steps whose last one fails, with that step's name and error.
fn failing(blob: &mut BlobData, file: RawFd) -> Vec<(Vec<Step>, String, Errno)> {
    let missing = blob.name("/nowhere/at/all");
    let from = |offset| Place {
        descriptor: file,
        offset,
    };
    let image = |length, offset| Step::read(blob.buffer(), length, from(offset));
    let map = |offset| Step::map_file(FREE, 4096, Protection(1), Sharing::Private, offset);
    let beyond = u64::MAX << 12;
    let free = format!("at {FREE:#x}");
    vec![
        (
            vec![Step::program_break(1 << 46)],
            "brk(2) at 0x400000000000".into(),
            Errno::ENOMEM,
        ),
        (
            vec![Step::unmap(1, 4096)],
            "munmap(2) at 0x1".into(),
            Errno::EINVAL,
        ),
        (
            vec![Step::relocate(FREE, 4096, FREE + 8192)],
            format!("mremap(2) {free}"),
            Errno::EFAULT,
        ),
        (
            vec![Step::thread_pointer(u64::MAX << 12)],
            format!("arch_prctl(2) at {beyond:#x}"),
            Errno::EPERM,
        ),
        (
            vec![Step::map(beyond, 4096, Protection(1), 0)],
            format!("mmap(2) at {beyond:#x}"),
            Errno::ENOMEM,
        ),
        (vec![Step::open(missing)], "openat(2)".into(), Errno::ENOENT),
        (vec![map(1)], format!("mmap(2) {free}"), Errno::EINVAL),
        (
            vec![Step::map_image(FREE, 4096, Protection::READ_WRITE, from(1))],
            format!("mmap(2) {free}"),
            Errno::EINVAL,
        ),
        (
            vec![image(4096, 0), image(8192, 0)],
            format!("pread(2) at {:#x}", blob.buffer()),
            Errno::ENOMEM,
        ),
        (
            vec![Step::protect(FREE, 4096, Protection(1))],
            format!("mprotect(2) {free}"),
            Errno::ENOMEM,
        ),
        (
            vec![Step::advise(FREE, 4096, libc::MADV_DONTNEED)],
            format!("madvise(2) {free}"),
            Errno::ENOMEM,
        ),
        (
            vec![Step::close_image(file), Step::close_image(file)],
            "close(2)".into(),
            Errno::EBADF,
        ),
    ]
}

/// Executes the steps of one case, in the child process started for it.
#[test]
fn child_executes_one_failing_case() {
    let Ok(case) = std::env::var(CASE) else {
        return;
    };
    let case: usize = case.parse().expect("a number");
    let image = memory_file(c"image").expect("there is memory");
    nix::unistd::write(&image, &[0; 4096]).expect("there is memory");
    sys::descriptors::place_at(1, DATA, OFlag::O_CLOEXEC).expect("the number is free");
    suspend(|place| {
        let mut blob = BlobData::new(BLOB);
        let (steps, ..) = failing(&mut blob, image.as_raw_fd()).swap_remove(case);
        let bytes = blob.finish(place, 1, &steps);
        let file = memory_file(c"blob").expect("there is memory");
        nix::unistd::write(&file, &bytes).expect("there is memory");
        let blob = Blob::map(file.as_fd()).expect("the address is free");
        _ = blob.enter();
    });
    panic!("no step has failed");
}

#[test]
fn failing_step_is_reported_with_its_errno() {
    if !IS_SUPPORTED {
        return;
    }
    let cases = failing(&mut BlobData::new(BLOB), 0);
    for (case, (steps, name, errno)) in cases.iter().enumerate() {
        let program = std::env::current_exe().expect("it is this program");
        let mut command = Command::new(program);
        command.args(["--exact", "restore::tests::child_executes_one_failing_case"]);
        let output = command.env(CASE, case.to_string()).output();
        let output = output.expect("this program can be started again");
        assert_eq!(output.status.code(), Some(1), "{name}: {output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        let (_, frame) = text.split_once("{\"kind\"").expect("a frame is sent");
        let words: Vec<&str> = frame.split(['"', ':', ',', '}', ' ']).collect();
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let last = (steps.len() - 1).to_string();
        let number = (*errno as i32).to_string();
        assert_eq!(
            words[..5],
            ["failed-step", "errno", &number, "step", &last],
            "{name}"
        );
        assert_eq!(steps[steps.len() - 1].to_string(), *name);
    }
}
