//! Writes archives that the kernel unpacks as its first file system: `newc`, as in
//! Documentation/driver-api/early-userspace/buffer-format.rst.

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// An archive under construction. Root owns everything in it.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    directories: Vec<String>,
    entries: u32,
}

impl Archive {
    /// Adds an executable file, with its parent directories. `path` has no leading slash.
    pub fn file(&mut self, path: &str, content: &[u8]) {
        self.parents(path);
        self.entry(path, PROGRAM, content);
    }

    /// Adds an empty directory.
    pub fn directory(&mut self, path: &str) {
        self.parents(path);
        if !self.directories.iter().any(|there| there == path) {
            self.directories.push(path.to_owned());
            self.entry(path, DIRECTORY, &[]);
        }
    }

    /// Adds the trailer and returns the archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn parents(&mut self, path: &str) {
        let ends: Vec<usize> = path.match_indices('/').map(|(end, _)| end).collect();
        for end in ends {
            self.directory(&path[..end]);
        }
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        // Inode number, mode, uid, gid, links, time, size, two devices, length of the name, no
        // checksum.
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            length(content.len()),
            0,
            0,
            0,
            0,
            length(name.len() + 1),
            0,
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        let padded = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(padded, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names, modes and contents in an archive.
    fn entries(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let number = |field: usize| {
                let start = at + 6 + 8 * field;
                let digits = std::str::from_utf8(&bytes[start..start + 8]).expect("digits");
                u32::from_str_radix(digits, 16).expect("a number")
            };
            assert_eq!(&bytes[at..at + 6], b"070701");
            let (size, name_length) = (number(6) as usize, number(11) as usize);
            let name = &bytes[at + 110..at + 110 + name_length - 1];
            let start = (at + 110 + name_length).next_multiple_of(4);
            let name = String::from_utf8(name.to_vec()).expect("text");
            found.push((name, number(1), bytes[start..start + size].to_vec()));
            at = (start + size).next_multiple_of(4);
        }
        found
    }

    #[test]
    fn a_file_comes_after_the_directories_above_it() {
        let mut archive = Archive::default();
        archive.file("lib/deep/one", b"first");
        archive.file("lib/deep/two", b"");
        archive.directory("proc");
        let expected = [
            ("lib", DIRECTORY, "".as_bytes()),
            ("lib/deep", DIRECTORY, b""),
            ("lib/deep/one", PROGRAM, b"first"),
            ("lib/deep/two", PROGRAM, b""),
            ("proc", DIRECTORY, b""),
            ("TRAILER!!!", 0, b""),
        ]
        .map(|(name, mode, content)| (name.to_owned(), mode, content.to_vec()));
        assert_eq!(entries(&archive.finish()), expected);
    }
}
