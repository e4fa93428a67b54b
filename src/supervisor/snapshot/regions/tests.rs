//! Tests with lines as the kernel writes them.

use super::*;

fn one(line: &str) -> Region {
    let mut parsed = parse(line.as_bytes()).expect("a line");
    parsed.pop().expect("a mapping")
}

#[test]
fn mapping_is_parsed_with_its_flags() {
    let text = "7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \nSize:               2048 kB\nVmFlags: rd wr mr mw me ac nr hg \n\
                7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]\nVmFlags: rd wr gd wf \n";
    let regions = parse(text.as_bytes()).expect("both are read");
    assert_eq!(regions[0].end - regions[0].start, 2 << 20);
    assert_eq!(regions[0].protection, Protection::READ_WRITE);
    assert_eq!(regions[0].advice.flags, libc::MAP_NORESERVE);
    assert!(!regions[0].advice.is_wiped);
    assert_eq!(regions[0].advice.huge, Some(libc::MADV_HUGEPAGE));
    assert_eq!(regions[1].backing, Backing::Stack);
    assert!(regions[1].advice.is_wiped);
    assert_eq!(regions[1].advice.flags, libc::MAP_GROWSDOWN);
    assert_eq!(at(&regions, 0x7f00_0010_0000), Some(&regions[0]));
    assert_eq!(at(&regions, 0x7f00_0020_0000), None);
}

#[test]
fn guest_chosen_names_cannot_forge_fields() {
    let path = |line: &str| match one(line).backing {
        Backing::File { path, .. } => path,
        other => panic!("{other:?}"),
    };
    let spaces = "1000-2000 r--s 00000000 00:2a 7 /work/a b  [heap]";
    assert_eq!(path(spaces), "/work/a b  [heap]");
    assert!(one(spaces).is_shared);
    let line_feed = "1000-2000 r--p 00000000 00:2a 7 /work/x\\012VmFlags: wf";
    assert_eq!(path(line_feed), "/work/x\\012VmFlags: wf");
    assert_eq!(
        one("1000-2000 rw-p 0 00:00 0 [anon:[heap]]").backing,
        Backing::Anonymous
    );
    for wrong in [
        "1000-2000 rw-p 0 00:00",
        "2000-1000 rw-p 0 00:00 0 ",
        "1000-2000 rw-s 0 00:01 5 [anon_shmem:x]",
        "1000-2000 rw-p 0 00:01 5 socket:[5]",
    ] {
        parse(wrong.as_bytes()).expect_err(wrong);
    }
}

#[test]
fn private_image_mappings_count_as_memory() {
    let image = "/memfd:sandfork-memory (deleted)";
    let text = format!(
        "5000-8000 rw-p 5000 00:01 9 {image}\n8000-9000 rw-p 0 00:00 0 [heap]\n70000-80000 rw-p 0 00:01 9 {image}"
    );
    let mut regions = parse(text.as_bytes()).expect("they are read");
    let stat = format!("7 (a) S{}", " 0".repeat(43)) + " 20480 0 0";
    name_heap(&mut regions, &stat, 0x8f00);
    let backings = regions
        .iter()
        .map(|region| (region.backing.clone(), region.is_image));
    let wanted = [
        (Backing::Heap, true),
        (Backing::Heap, false),
        (Backing::Anonymous, true),
    ];
    assert_eq!(backings.collect::<Vec<_>>(), wanted);
    assert!(!one(&format!("5000-8000 rw-s 5000 00:01 9 {image}")).is_image);
    for (name, is_image) in [
        ("sandfork", true),
        ("sandfork-value", true),
        ("mine", false),
    ] {
        let passed = one(&format!("5000-8000 rw-p 0 00:01 9 /memfd:{name} (deleted)"));
        assert_eq!(passed.is_image, is_image, "{name}");
        assert_eq!(passed.backing == Backing::Anonymous, is_image, "{name}");
    }
}

#[test]
fn file_mappings_match_by_inode_and_offset() {
    let of = |start: u64, offset: u64, inode: u64| {
        one(&format!(
            "{start:x}-9000 r--p {offset:x} fe:00 {inode} /usr/lib/a.so"
        ))
    };
    assert!(of(0x1000, 0, 5).is_same(&of(0x3000, 0x2000, 5)));
    assert!(!of(0x1000, 0, 5).is_same(&of(0x3000, 0, 5)));
    assert!(!of(0x1000, 0, 5).is_same(&of(0x1000, 0, 6)));
    assert!(!of(0x1000, 0, 5).is_same(&one("1000-9000 r--p 0 00:00 0 ")));
}

#[test]
fn too_many_mappings_are_refused() {
    let line = "1000-2000 rw-p 0 00:00 0 \n";
    let lines = line.repeat(MAX_REGIONS + 1);
    let refused = SnapshotRefusal::Fragmented(MAX_REGIONS);
    assert_eq!(parse(lines.as_bytes()), Err(refused));
}

#[test]
fn shared_writable_mapping_is_refused() {
    let regions = |line: &str| parse(line.as_bytes()).expect("a line");
    let shared = regions("1000-2000 rw-s 0 00:2a 7 /work/x");
    let refused = require_mappable(&shared).expect_err("it is refused");
    let sentence = "`/work/x` is mapped shared and writable; remove the mapping first";
    assert_eq!(refused.to_string(), sentence);
    let read = regions("1000-2000 r--s 0 00:2a 7 /work/x\n2000-3000 rw-p 0 fe:00 9 /usr/lib/a.so");
    require_mappable(&read).expect("both can be mapped");
}
