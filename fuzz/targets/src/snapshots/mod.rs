//! What is read about a guest that is copied, and the restore steps made from it. The first byte selects the parser.

mod layout;
mod model;

use std::str;

use sandfork::internals::snapshot::{
    Found, Kind, MAX_REGIONS, Memory, Outputs, Piece, Places, hole, in_order, keep, parse, steps,
};
use sandfork_jail::archive::{ENTRY, Entry};
use sandfork_jail::restore::{BlobData, Opened};

use self::layout::Layout;
use self::model::Model;
use crate::Target;
use crate::source::{Source, text_and_rest};

pub(crate) const TARGET: Target = Target {
    name: "snapshots",
    run,
    inputs: 8_000,
};

fn run(bytes: &[u8]) -> bool {
    let Some((&reader, bytes)) = bytes.split_first() else {
        return false;
    };
    match reader % 4 {
        0 => mappings(bytes),
        1 => descriptor(bytes),
        2 => entry(bytes),
        _ => way(&mut Source::new(bytes)),
    }
}

/// The number of mappings is bounded, and none is empty.
fn mappings(text: &[u8]) -> bool {
    let Ok(regions) = parse(text) else {
        return false;
    };
    assert!(regions.len() <= MAX_REGIONS);
    assert!(regions.iter().all(|region| region.start < region.end));
    !regions.is_empty()
}

/// A descriptor is reopened only by its own path, or is one of the worker's own.
fn descriptor(bytes: &[u8]) -> bool {
    let Some((&kind, bytes)) = bytes.split_first() else {
        return false;
    };
    let kinds = [
        Kind::File,
        Kind::Directory,
        Kind::Device((1, 3)),
        Kind::Pipe,
        Kind::Socket,
        Kind::Other,
    ];
    let (link, info) = text_and_rest(bytes);
    let Ok(info) = str::from_utf8(info) else {
        return false;
    };
    let found = Found {
        number: i32::from(kind >> 4),
        link: link.to_vec(),
        info: info.to_owned(),
        kind: kinds[usize::from(kind & 15) % kinds.len()],
        inode: 11,
        is_named: true,
    };
    let outputs = Outputs {
        stdout: 11,
        stderr: 12,
        starter_socket: Some(13),
    };
    let Ok(kept) = keep(&found, outputs) else {
        return false;
    };
    match kept.map(|descriptor| descriptor.open) {
        Some(Opened::File { path, .. }) => {
            assert!(path.starts_with('/'), "{path}");
            assert!(path.as_bytes() == link || path == "/dev/null", "{path}");
        }
        Some(Opened::Same(number)) => assert!((0..3).contains(&number)),
        None => {}
    }
    true
}

/// An entry has one form.
fn entry(bytes: &[u8]) -> bool {
    let Some(entry) = bytes.first_chunk::<ENTRY>().and_then(Entry::decode) else {
        return false;
    };
    assert_eq!(Entry::decode(&entry.encode()), Some(entry));
    true
}

/// The steps from one memory to another produce the other.
fn way(choices: &mut Source) -> bool {
    let (mut source, mut target) = (Layout::of_source(choices), Layout::of_target(choices));
    let page = |choices: &mut Source| layout::BASE + u64::from(choices.byte()) * layout::PAGE;
    let mut shareable = Vec::new();
    for _ in 0..choices.byte() % 8 {
        let start = page(choices);
        shareable.push(start..page(choices).wrapping_add(choices.long() >> 52));
    }
    let shareable = in_order(shareable);
    let (its, own) = (source.regions(), target.regions());
    let blob = hole(&its, &own).expect("a large enough gap");
    let mut data = BlobData::new(blob);
    let is_in_memory = !choices.byte().is_multiple_of(4);
    let is_saved = !is_in_memory && choices.byte().is_multiple_of(2);
    let program_break = choices.long();
    source.guard(choices);
    target.guard(choices);
    let from = Memory {
        regions: &its,
        pages: &source.pages,
        guards: &source.guards,
        shareable: is_in_memory.then_some(&shareable[..]),
        thread: 0,
        is_saved,
    };
    let to = Memory {
        regions: &own,
        pages: &target.pages,
        guards: &target.guards,
        shareable: None,
        is_saved: false,
        ..from
    };
    let pieces = Piece::contiguous(&source.pages);
    let places = Places::of(&pieces, &[layout::DESCRIPTOR]);
    let Ok(plan) = steps(from, places, program_break, to, &mut data) else {
        return false;
    };
    let guards = source.guards.len() + target.guards.len();
    let pages = source.pages.len() + target.pages.len();
    let most = 8 * (its.len() + own.len() + pages + guards + shareable.len());
    assert!(plan.steps.len() <= most + 8, "{} steps", plan.steps.len());
    let mut model = Model::new(&target, blob);
    model.carry_out(&data.finish(0, 0, &plan.steps));
    model.require(&source);
    true
}
