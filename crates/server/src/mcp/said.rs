//! What a model reads: text in parts, and pictures.

use std::borrow::Cow;
use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{CallToolResult, ContentBlock};
use sandfork::Status;
use sandfork::session::{CellReport, DisplayOutput};

use crate::display::value_text;
use crate::failure::Failure;
use crate::http::Budget;
use crate::shortened;

/// What a model reads of one output. The middle of more is left out.
pub const LONGEST_TEXT: usize = 20_000;

/// What a model reads of a cell: how it ended, what it wrote, its value, and its pictures.
///
/// # Errors
/// If there is no memory for its pictures.
pub fn described(report: &CellReport, budget: &Budget) -> Result<CallToolResult, Failure> {
    let outcome = report.outcome();
    let mut said = format!("<status>{}</status>", outcome.status());
    // Text is for reading, and needs no quotes.
    let own = outcome
        .value()
        .and_then(|value| value.text(&report.buffers()));
    let traceback = outcome.error().map(|error| &*error.traceback);
    let limit = outcome.limit().map(|hit| hit.name.key());
    // The status of others says all of it.
    let code = matches!(outcome.status(), Status::Exit | Status::Signal)
        .then(|| outcome.exit_code().to_string());
    for (name, part) in [
        ("exit_code", code.map(Cow::Owned)),
        ("output", Some(outcome.stdout())),
        ("error_output", Some(outcome.stderr())),
        ("return_value", own.or_else(|| value_text(report))),
        ("error", traceback.map(Cow::Borrowed)),
        ("limit", limit.map(Cow::Borrowed)),
    ] {
        if let Some(part) = part.filter(|part| !part.is_empty()) {
            // Writing to a string does not fail.
            let _ = write!(
                said,
                "\n<{name}>\n{}\n</{name}>",
                without_tags(&shortened(part.trim_end().as_bytes(), LONGEST_TEXT))
            );
        }
    }
    let mut content = vec![ContentBlock::text(said)];
    let pictures: Vec<_> = report.shown().iter().filter_map(picture).collect();
    let bytes = pictures
        .iter()
        .map(|(_, bytes)| bytes.len() as u64)
        .sum::<u64>();
    // In base64. What sends the answer holds it from then on.
    let _held = budget.hold(bytes.div_ceil(3) * 4)?;
    for (kind, bytes) in pictures {
        content.push(ContentBlock::image(STANDARD.encode(bytes), kind));
    }
    Ok(if outcome.exit_code() == 0 {
        CallToolResult::success(content)
    } else {
        CallToolResult::error(content)
    })
}

/// The picture of a display, and its media type.
fn picture(display: &DisplayOutput) -> Option<(&'static str, &[u8])> {
    ["image/png", "image/jpeg"].into_iter().find_map(|kind| {
        let bytes = display.data().get(kind)?.bytes(&display.buffers())?;
        Some((kind, bytes))
    })
}

/// The tags around the parts of a result.
const TAGS: [&str; 7] = [
    "status",
    "exit_code",
    "output",
    "error_output",
    "return_value",
    "error",
    "limit",
];

/// Text of a guest, which cannot end its part or begin another: the `<` of such a tag is `&lt;`.
fn without_tags(text: &str) -> String {
    let mut pieces = text.split('<');
    let mut without = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let name = piece.trim_start_matches(|before: char| before == '/' || before.is_whitespace());
        let is_tag = TAGS.iter().any(|tag| name.starts_with(tag));
        without.push_str(if is_tag { "&lt;" } else { "<" });
        without.push_str(piece);
    }
    without
}

/// A name that could begin another line, or change how a terminal shows this one, is quoted.
pub fn on_one_line(name: &str) -> Cow<'_, str> {
    let is_plain =
        |character: char| character.escape_debug().len() == 1 || "\"'\\".contains(character);
    if name.chars().all(is_plain) && !name.starts_with('"') {
        return Cow::Borrowed(name);
    }
    Cow::Owned(format!("{name:?}"))
}

/// A result that is text.
pub fn text(text: String) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}
