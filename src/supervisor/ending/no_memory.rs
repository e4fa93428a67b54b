//! Recognises a program that ended for lack of memory by the end of its stderr.
//!
//! Where `RLIMIT_DATA` enforces the limit, the kernel counts no refusals, so these phrases are the only evidence. A
//! guest that writes them without reason mislabels its own end.

/// The bytes at the end of stderr that are searched.
const MAX_SEARCHED: usize = 4 << 10;

/// The messages of languages and libraries, in lower case.
const PHRASES: [&str; 9] = [
    // strerror(ENOMEM): the C library's loader, shells, Go
    "cannot allocate memory",
    // the C library's loader, about a shared library
    "failed to map segment from shared object",
    // C++
    "std::bad_alloc",
    // Rust: `memory allocation of 8 bytes failed`
    "memory allocation of ",
    // Python in a child process
    "memoryerror",
    // node, Go, Java, git
    "out of memory",
    "outofmemoryerror",
    // Java
    "could not reserve enough space",
    // GNU: `virtual memory exhausted`
    "memory exhausted",
];

/// Whether the end of this output reports a lack of memory.
pub fn says_no_memory(stderr: &[u8]) -> bool {
    let last = &stderr[stderr.len().saturating_sub(MAX_SEARCHED)..];
    let last = String::from_utf8_lossy(last).to_ascii_lowercase();
    PHRASES.iter().any(|phrase| last.contains(phrase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_stderr_is_searched() {
        let abort = "terminate called after throwing an instance of 'std::bad_alloc'\n";
        assert!(says_no_memory(abort.as_bytes()));
        assert!(says_no_memory(b"sh: 1: Cannot allocate memory\n"));
        assert!(!says_no_memory(b"memory: 3 MiB allocated\n\xff"));
        let long_ago = format!("{abort}{}", "x".repeat(MAX_SEARCHED));
        assert!(!says_no_memory(long_ago.as_bytes()));
    }
}
