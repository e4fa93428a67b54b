#![allow(
    clippy::single_range_in_vec_init,
    reason = "a process may have a single range of pages"
)]

use super::super::layers::Piece;
use super::super::regions::parse;
use super::*;

const BLOB: u64 = 1 << 40;

/// The descriptor of the image.
const IMAGE: i32 = 9;

fn from(offset: u64) -> Place {
    Place {
        descriptor: IMAGE,
        offset,
    }
}

/// Ranges of the source that may be mapped from the image besides its heap.
const SHAREABLE: [Range<u64>; 1] = [0x90_1000..0xb0_0000];

fn regions(text: &str) -> Vec<Region> {
    parse(text.as_bytes()).expect("mappings")
}

fn made(
    source: (&str, &[Range<u64>]),
    target: (&str, &[Range<u64>]),
) -> Result<Vec<Step>, SnapshotRefusal> {
    let (source_regions, target_regions) = (regions(source.0), regions(target.0));
    let source = Memory {
        regions: &source_regions,
        pages: source.1,
        guards: &[],
        shareable: Some(&SHAREABLE),
        thread: 7,
        is_saved: false,
    };
    let target = Memory {
        regions: &target_regions,
        pages: target.1,
        guards: &[],
        shareable: None,
        thread: 7,
        is_saved: false,
    };
    let plan = steps(
        source,
        Places::of(&Piece::contiguous(source.pages), &[IMAGE]),
        0x2_2800,
        target,
        &mut BlobData::new(BLOB),
    )?;
    Ok(plan.steps)
}

#[test]
fn common_mapping_is_compared() {
    let text = "10000-20000 rw-p 0 00:00 0 ";
    let source = [0x1_0000..0x1_2000, 0x1_4000..0x1_5000];
    let target = [0x1_1000..0x1_3000];
    let steps = made((text, &source), (text, &target)).expect("a plan");
    let window = BlobData::new(BLOB).window();
    let wanted = [
        Step::read(0x1_0000, 0x1000, from(0)),
        Step::map_image(window, WINDOW, Protection::READ, from(0x1000)),
        Step::copy_differing(0x1_1000, 0x1000, window),
        Step::advise(0x1_2000, 0x1000, libc::MADV_DONTNEED),
        Step::read(0x1_4000, 0x1000, from(0x2000)),
        Step::unmap(window, WINDOW),
        Step::close_image(IMAGE),
    ];
    assert_eq!(steps, wanted);
}

#[test]
fn guards_are_installed_and_removed() {
    let text = "10000-20000 rw-p 0 00:00 0 ";
    let (target_regions, missing) = (regions(text), []);
    let source = Memory {
        regions: &target_regions,
        pages: &[0x1_2000..0x1_3000],
        guards: &[0x1_1000..0x1_2000],
        shareable: None,
        thread: 7,
        is_saved: false,
    };
    let target = Memory {
        pages: &[],
        guards: &[0x1_1000..0x1_4000],
        ..source
    };
    let made = |target: Memory| {
        let pieces = Piece::contiguous(source.pages);
        let places = Places::of(&pieces, &[IMAGE]);
        let plan = steps(source, places, 0, target, &mut BlobData::new(BLOB));
        plan.expect("a plan").steps
    };
    let from_source = [
        Step::read(0x1_2000, 0x1000, from(0)),
        Step::guard(0x1_1000, 0x1000),
        Step::close_image(IMAGE),
    ];
    let removed = Step::unguard(0x1_2000, 0x2000);
    assert_eq!(made(target), [&[removed], &from_source[..]].concat());
    let mapped = Step::map(0x1_0000, 0x1_0000, Protection::READ_WRITE, 0);
    let without = Memory {
        regions: &missing,
        guards: &[],
        ..target
    };
    assert_eq!(made(without), [&[mapped], &from_source[..]].concat());
}

#[test]
fn missing_mappings_are_made_and_extra_ones_unmapped() {
    let library =
        "30000-32000 r--p 1000 fe:00 7 /usr/lib/a.so\n32000-33000 rw-p 3000 fe:00 7 /usr/lib/a.so";
    let other = "40000-50000 rw-p 0 00:00 0 ";
    let source = [0x3_2000..0x3_3000];
    let steps = made((library, &source), (other, &[])).expect("a plan");
    let name = BlobData::new(BLOB).name("/usr/lib/a.so");
    let wanted = [
        Step::unmap(0x4_0000, 0x1_0000),
        Step::open(name),
        Step::map_file(0x3_0000, 0x2000, Protection(1), Sharing::Private, 0x1000),
        Step::map_file(0x3_2000, 0x1000, Protection(3), Sharing::Private, 0x3000),
        Step::close(),
        Step::read(0x3_2000, 0x1000, from(0)),
        Step::close_image(IMAGE),
    ];
    assert_eq!(steps, wanted);
}

#[test]
fn read_only_page_is_written_and_protected_again() {
    let text = "10000-12000 r--p 0 fe:00 7 /usr/lib/a.so";
    let source = [0x1_0000..0x1_1000];
    let steps = made((text, &source), (text, &[])).expect("a plan");
    assert_eq!(steps[0], Step::protect(0x1_0000, 0x2000, Protection(3)));
    assert_eq!(steps[2], Step::protect(0x1_0000, 0x2000, Protection(1)));
}

#[test]
fn heap_and_stack_take_the_sources_bounds() {
    let source = "10000-23000 rw-p 0 00:00 0 [heap]\n70000-80000 rw-p 0 00:00 0 [stack]";
    let target = "10000-20000 rw-p 0 00:00 0 [heap]\n78000-80000 rw-p 0 00:00 0 [stack]";
    let steps = made((source, &[]), (target, &[])).expect("a plan");
    let wanted = [
        // The guest's value, which lies within the last page.
        Step::program_break(0x2_2800),
        Step::touch(0x7_0000),
        Step::close_image(IMAGE),
    ];
    assert_eq!(steps, wanted);
}

#[test]
fn unrestorable_mapping_is_refused() {
    let deleted = "10000-12000 r--p 0 00:01 7 /memfd:x (deleted)";
    let refused = made((deleted, &[]), ("", &[])).expect_err("it is refused");
    assert!(refused.to_string().contains("/memfd:x"), "{refused}");
    // Every worker inherits the zygote's mappings.
    made((deleted, &[]), (deleted, &[])).expect("it is the same");
    let moved = (
        "10000-12000 r-xp 0 00:00 0 [vdso]",
        "20000-22000 r-xp 0 00:00 0 [vdso]",
    );
    made((moved.0, &[]), (moved.1, &[])).expect_err("it is refused");
}

#[test]
fn hole_is_free_in_both_processes() {
    let (source, target) = (
        regions("100000000-120000000 rw-p 0 00:00 0 "),
        regions("120000000-121000000 rw-p 0 00:00 0 "),
    );
    let hole = hole(&source, &target).expect("there is one");
    assert_eq!(hole, 0x1_3000_0000);
    // After a mapping of 16 TiB.
    let source = regions("100000000-100100000000 ---p 0 00:00 0 ");
    assert_eq!(super::hole(&source, &target), Some(0x1001_0000_0000));
    let source = regions("100000000-7fe000000000 ---p 0 00:00 0 ");
    assert_eq!(super::hole(&source, &target), Some(0x7fe0_0000_0000));
    let source = regions("100000000-7fefffffe000 ---p 0 00:00 0 ");
    assert_eq!(super::hole(&source, &target), None);
}

#[test]
fn wiped_memory_is_not_restored() {
    let text = "10000-12000 rw-p 0 00:00 0 \nVmFlags: rd wr wf";
    let target = [0x1_0000..0x1_1000];
    let steps = made((text, &[]), (text, &target)).expect("a plan");
    assert_eq!(steps, [Step::close_image(IMAGE)]);
}

/// A process with shareable and other mappings, and its pages.
const WITH_BLOCKS: (&str, [Range<u64>; 5]) = (
    "10000-60000 rw-p 0 00:00 0 [heap]\n900000-c00000 rw-p 0 00:00 0 \nc00000-d00000 r--p 0 00:00 0 ",
    [
        0x1_0000..0x4_0000,
        0x5_0000..0x5_1000,
        0x90_0000..0x98_0000,
        0xaf_0000..0xb1_0000,
        0xc0_0000..0xc2_0000,
    ],
);

#[test]
fn heap_and_large_blocks_are_mapped_from_the_image() {
    let (text, source) = (WITH_BLOCKS.0, &WITH_BLOCKS.1);
    let target = [0x1_0000..0x1_1000, 0x5_0000..0x5_1000];
    let steps = made((text, source), (text, &target)).expect("a plan");
    let window = BlobData::new(BLOB).window();
    let wanted = [
        Step::program_break(0x6_0000),
        Step::protect(0xc0_0000, 0x10_0000, Protection(3)),
        Step::map_image(0x1_0000, 0x3_0000, Protection::READ_WRITE, from(0)),
        // The first page of a block stays private.
        Step::map_image(0x90_1000, 0x7_f000, Protection::READ_WRITE, from(0x3_2000)),
        Step::map_image(0xaf_0000, 0x1_0000, Protection::READ_WRITE, from(0xb_1000)),
        // Too short to be worth a mapping.
        Step::map_image(window, WINDOW, Protection::READ, from(0x3_0000)),
        Step::copy_differing(0x5_0000, 0x1000, window),
        Step::read(0x90_0000, 0x1000, from(0x3_1000)),
        Step::read(0xb0_0000, 0x1_0000, from(0xc_1000)),
        Step::read(0xc0_0000, 0x2_0000, from(0xd_1000)),
        Step::unmap(window, WINDOW),
        Step::protect(0xc0_0000, 0x10_0000, Protection(1)),
        Step::close_image(IMAGE),
    ];
    assert_eq!(steps, wanted);
}

#[test]
fn image_on_disk_is_read_and_not_mapped() {
    let regions = regions(WITH_BLOCKS.0);
    let source = Memory {
        regions: &regions,
        pages: &WITH_BLOCKS.1,
        guards: &[],
        shareable: None,
        thread: 7,
        is_saved: false,
    };
    let target = Memory {
        pages: &[0x5_0000..0x5_1000],
        ..source
    };
    let plan = steps(
        source,
        Places::of(&Piece::contiguous(source.pages), &[IMAGE]),
        0x6_0000,
        target,
        &mut BlobData::new(BLOB),
    )
    .expect("a plan");
    let read =
        |pages: &Range<u64>, place| Step::read(pages.start, pages.end - pages.start, from(place));
    let places = [0, 0x3_0000, 0x3_1000, 0xb_1000, 0xd_1000];
    let reads = WITH_BLOCKS.1.iter().zip(places);
    let mut wanted: Vec<Step> = reads.map(|(pages, place)| read(pages, place)).collect();
    // Pages that both have are read into the buffer and compared.
    let buffer = BlobData::new(BLOB).buffer();
    wanted[1] = Step::read(buffer, 0x1000, from(0x3_0000));
    wanted.insert(2, Step::copy_differing(0x5_0000, 0x1000, buffer));
    assert_eq!(plan.steps[2..8], wanted);
    assert_eq!(plan.steps.len(), 10);
}

/// Two processes that map the kernel's pages and a file at different addresses, with a heap.
const ELSEWHERE: (&str, &str) = (
    "10000-12000 r-xp 0 fe:00 7 /usr/lib/a.so\n20000-21000 rw-p 0 00:00 0 [heap]\n\
     30000-32000 r-xp 0 00:00 0 [vdso]\n40000-41000 r--p 1000 00:01 5 /memfd:sandfork-worker (deleted)",
    "50000-51000 rw-p 0 00:00 0 [heap]\n60000-62000 r-xp 0 fe:00 7 /usr/lib/a.so\n\
     70000-71000 r--p 1000 00:01 9 /memfd:sandfork-worker (deleted)\n80000-82000 r-xp 0 00:00 0 [vdso]\n\
     90000-91000 r--p 0 fe:00 8 /usr/lib/b.so",
);

fn made_elsewhere(source: &str, target: &str) -> Result<Plan, SnapshotRefusal> {
    let (source_regions, target_regions) = (regions(source), regions(target));
    let pages = [0x2_0000..0x2_1000];
    let source = Memory {
        regions: &source_regions,
        pages: &pages,
        guards: &[],
        shareable: None,
        thread: 7,
        is_saved: false,
    };
    let target = Memory {
        regions: &target_regions,
        pages: &[0x6_1000..0x6_2000],
        guards: &[],
        shareable: None,
        thread: 8,
        is_saved: false,
    };
    steps(
        source,
        Places::of(&Piece::contiguous(source.pages), &[IMAGE]),
        0x2_1000,
        target,
        &mut BlobData::new(BLOB),
    )
}

#[test]
fn matching_mappings_move_to_the_sources_addresses() {
    let plan = made_elsewhere(ELSEWHERE.0, ELSEWHERE.1).expect("a plan");
    let wanted = [
        Step::program_break(0x5_1000),
        Step::map(0x5_1000, 0x1000, Protection(0), 0),
        Step::unmap(0x5_0000, 0x1000),
        Step::unmap(0x9_0000, 0x1000),
        Step::relocate(0x6_0000, 0x2000, 0x1_0000),
        Step::relocate(0x8_0000, 0x2000, 0x3_0000),
        Step::relocate(0x7_0000, 0x1000, 0x4_0000),
        Step::map(0x2_0000, 0x1000, Protection::READ_WRITE, 0),
        Step::advise(0x1_1000, 0x1000, libc::MADV_DONTNEED),
        Step::read(0x2_0000, 0x1000, from(0)),
        Step::thread_pointer(7),
        Step::close_image(IMAGE),
    ];
    assert_eq!(plan.steps, wanted);
    assert!(plan.opened.is_empty());
    assert!(plan.moved.contains("/usr/lib/a.so") && !plan.moved.contains("/usr/lib/b.so"));
}

#[test]
fn overlapping_moves_go_through_free_space() {
    let source = "10000-12000 r-xp 0 fe:00 7 /usr/lib/a.so\n30000-32000 r-xp 0 00:00 0 [vdso]";
    let target = "11000-13000 r-xp 0 fe:00 7 /usr/lib/a.so\n30000-32000 r-xp 0 00:00 0 [vdso]\n50000-51000 rw-p 0 00:00 0 [heap]";
    let plan = made_elsewhere(source, target).expect("a plan");
    let room = BLOB + HOLE;
    let moves = [
        Step::relocate(0x1_1000, 0x2000, room),
        Step::relocate(room, 0x2000, 0x1_0000),
    ];
    assert_eq!(plan.steps[3..5], moves);
}

#[test]
fn target_without_vdso_or_heap_is_refused() {
    let (source, target) = ELSEWHERE;
    let without = |what: &str| {
        let lines: Vec<&str> = target.lines().filter(|line| !line.contains(what)).collect();
        made_elsewhere(source, &lines.join("\n"))
            .expect_err(what)
            .to_string()
    };
    assert!(without("vdso").contains("the kernel's own pages differ"));
    assert!(without("heap").contains("has no heap"));
}
